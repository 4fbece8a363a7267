package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
)

// drainingRig serves a rig with one worker and a database, whose drain takes an hour. tiers returns its tiers.
func drainingRig(t *testing.T, tiers func(r *chaosRig) string) *chaosRig {
	t.Helper()
	s := keys(true)
	s["store"] = fmt.Sprintf(`{ sql: "sqlite://%s" }`, filepath.Join(t.TempDir(), "t.db"))
	s["drain"], s["queue"] = `{ accept_grace: 30m, timeout: 30m }`, beating
	s["timeouts"] = `{ first_byte: 30m, idle: 30m, client_stall: 30m }`
	r := &chaosRig{rig.New(t, 1, hanging(3), s)}
	r.Key = "tenant"
	r.Listen()
	r.Serve(rig.Settings{"tiers": tiers(r)})
	return r
}

// signalTwice sends a signal, and again when the gateway drains.
func (r *chaosRig) signalTwice(s syscall.Signal) {
	r.T.Helper()
	r.Signal(s)
	r.WaitFor("the drain", func() bool { return strings.Contains(r.Log(), `"draining"`) })
	r.Signal(s)
	if status := r.ExitStatus(); status != 130 {
		r.T.Errorf("%v: the status is %d, want 130", s, status)
	}
}

// TestASecondSignalCutsRequestsWithAnError: SD-04. Streams get an error in their dialect and queued requests
// 503. The log has their numbers, and each request has its line in the access log and its row in the ledger.
func TestASecondSignalCutsRequestsWithAnError(t *testing.T) {
	for _, sent := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		bubble.Run(t, sent.String(), func(t *testing.T) { cutBySecondSignal(t, sent) })
	}
}

// cutBySecondSignal sends two signals to a gateway with streams, an answer that is not a stream, and a queued request.
func cutBySecondSignal(t *testing.T, sent syscall.Signal) {
	t.Helper()
	r := drainingRig(t, func(r *chaosRig) string { return r.Tiers("max_inflight: 5", "") })
	held := r.openStreams()
	whole := make(chan rig.Reply, 2)
	go r.sendWhole(whole)
	r.WaitFor("the fifth request at the engine", func() bool { return r.Workers[0].Engine.Stats().Running == 5 })
	go r.sendWhole(whole)
	r.WaitFor("the queued request", func() bool { return r.Sum("tierway_queue_depth") == 1 })
	r.signalTwice(sent)
	r.checkShutDown(held)
	for range 2 {
		checkError(t, "a whole answer", <-whole, http.StatusServiceUnavailable, "server_shutting_down")
	}
	if log := r.Log(); !strings.Contains(log, `"cause":"a second signal","inflight":6,"queued":1`) {
		t.Errorf("the log does not say what was cut: %s", log)
	}
	r.checkLedger(6)
}

// checkLedger starts the gateway again, and checks that its ledger has that number of requests.
func (r *chaosRig) checkLedger(n int64) {
	r.T.Helper()
	again := r.StartAgain()
	var usage struct{ Items []struct{ Requests int64 } }
	status, body := again.Admin(http.MethodGet, "/admin/tenants/team/usage", "", "operator")
	if err := json.Unmarshal([]byte(body), &usage); err != nil || status != http.StatusOK || len(usage.Items) != 1 ||
		usage.Items[0].Requests != n {
		r.T.Errorf("the ledger has not %d requests: %d %s", n, status, body)
	}
	again.Kill()
}

// flood is an engine whose streams never end. written counts their bytes.
func flood(t *testing.T, written *atomic.Int64) (url string) {
	event := `data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"` +
		strings.Repeat("word ", 1000) + `"}}]}` + "\n\n"
	engine := rig.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body) // an unread body would end the stream
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			n, err := io.WriteString(w, event)
			if err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			written.Add(int64(n))
		}
	}))
	return engine.URL
}

// TestAClientThatDoesNotReadDelaysNoExit after a second signal, and its request is in the ledger.
func TestAClientThatDoesNotReadDelaysNoExit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var written atomic.Int64
		url := flood(t, &written)
		r := drainingRig(t, func(*chaosRig) string {
			return fmt.Sprintf("[ { name: small, model: sim, serves: [chat], workers: [ { name: w0, url: %q } ] } ]", url)
		})
		c := r.dial()
		if small, ok := c.Conn.(*net.TCPConn); ok {
			if err := small.SetReadBuffer(4 << 10); err != nil {
				t.Fatal(err)
			}
		}
		c.send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer tenant\r\n" +
			"Content-Type: application/json\r\n" + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(chat.stream)) + chat.stream)
		seen, same := int64(0), 0
		r.WaitFor("full buffers", func() bool {
			now := written.Load()
			if same++; now != seen || now == 0 {
				seen, same = now, 0
			}
			return same == 20
		})
		r.signalTwice(syscall.SIGTERM)
		if log := r.Log(); !strings.Contains(log, `"cause":"a second signal","inflight":1,"queued":0`) {
			t.Errorf("the log does not say what was cut: %s", log)
		}
		r.checkLedger(1)
	})
}
