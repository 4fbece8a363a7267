package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// pausingEngine returns an engine that pauses its streams after three tokens until the channel
// is closed.
func pausingEngine() (engines.Config, chan struct{}) {
	on := make(chan struct{})
	return engines.Config{Script: func(_ string, body []byte) engines.Script {
		if bytes.Contains(body, []byte(`"stream":true`)) {
			return engines.Script{Text: answerText, HoldAfter: 3, Release: on}
		}
		return engines.Script{Text: answerText}
	}}, on
}

// TestDrainLosesNoRequest: after SIGTERM, /readyz returns 503 at once, and requests are still
// served, with Connection: close, during accept_grace. Then the gateway closes its listener, the first
// requests of open connections are served, requests in progress end normally, and the program exits
// with status 0.
func TestDrainLosesNoRequest(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		engine, on := pausingEngine()
		grace := "2s"
		if rig.Soaking() {
			grace = "20s" // the requests below are slower
		}
		r := newRig(t, 1, rig.Settings{"drain": `{ accept_grace: ` + grace + `, timeout: 5m }`}, engine)
		s := r.stream(chat.path, chat.stream)
		s.ReadUntil("content")
		kept := r.dial()
		one := head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(chat.body)) + chat.body
		kept.send(one)
		if got := kept.answer(); got.Status != http.StatusOK || got.Close {
			t.Errorf("before the drain: status %d, Connection: close %v", got.Status, got.Close)
		}

		r.Signal(syscall.SIGTERM)
		r.WaitFor("/readyz to refuse", func() bool {
			got := r.do(http.MethodGet, "/readyz", "")
			var state struct{ Ready, Draining bool }
			return got.Status == http.StatusServiceUnavailable && json.Unmarshal([]byte(got.Body), &state) == nil &&
				state.Draining && !state.Ready
		})
		if got := r.do(http.MethodGet, "/livez", ""); got.Status != http.StatusOK {
			t.Errorf("/livez is %d while draining", got.Status)
		}
		kept.send(one)
		if got := kept.answer(); got.Status != http.StatusOK || !got.Close {
			t.Errorf("on a kept connection: status %d, Connection: close %v", got.Status, got.Close)
		}
		kept.checkClosed()
		fresh := r.dial()
		fresh.send(one)
		if got := fresh.answer(); got.Status != http.StatusOK || !got.Close {
			t.Errorf("on a new connection: status %d, Connection: close %v", got.Status, got.Close)
		}

		open := r.dial()
		rig.Eventually(t, func() error {
			c, err := rig.EnvironmentOf(t).Dial(t.Context(), "tcp", r.DataAddr)
			if err != nil {
				return nil
			}
			c.Close()
			return errors.New("the gateway still listens")
		})
		if !rig.Soaking() { // a request of such a connection must arrive within a second
			open.send(one)
			if got := open.answer(); got.Status != http.StatusOK || !got.Close {
				t.Errorf("on an open connection after accept_grace: status %d, Connection: close %v", got.Status, got.Close)
			}
		}
		if !r.Alive() {
			t.Fatal("the gateway ended with a stream in progress")
		}
		close(on)
		body, err := s.ReadRest()
		if h := transcriptOfStream(body); err != nil || h.text != answerText || !chat.complete(h) {
			t.Errorf("the stream in progress ended with %v: %s", err, body)
		}
		r.WaitForEnd()
	})
}

// heldStream is a stream of a dialect that the engine does not end.
type heldStream struct {
	dialect
	*rig.Stream
}

// openStreams opens a stream in each dialect and reads its first token.
func (r *chaosRig) openStreams() (held []heldStream) {
	for _, d := range []dialect{chat, completions, responses, messages} {
		s := r.stream(d.path, d.stream)
		s.ReadUntil("The ")
		held = append(held, heldStream{d, s})
	}
	return held
}

// sendWhole sends a request whose answer is not a stream, and passes the answer on.
func (r *chaosRig) sendWhole(to chan<- rig.Reply) {
	got, err := r.try(r.Request(context.Background(), http.MethodPost, chat.path, chat.body))
	if err != nil {
		r.T.Error(err)
	}
	to <- got
}

// checkShutDown checks that each stream ends with the error of a stop, in its dialect and in the access log.
func (r *chaosRig) checkShutDown(held []heldStream) {
	r.T.Helper()
	for _, s := range held {
		body, err := s.ReadRest()
		checkCut(r.T, s.dialect, rig.Reply{Body: body}, want{code: "server_shutting_down"})
		if err != nil {
			r.T.Errorf("%s: %v", s.name, err)
		}
		if line := r.AccessLine(s.ID); line["outcome"] != "truncated" || line["code"] != "server_shutting_down" {
			r.T.Errorf("%s: the log says %v", s.name, line)
		}
	}
}

// TestDrainTimeoutEndsRequestsWithAnError: requests in progress at drain.timeout get an error in
// their dialect, and the program still exits with status 0.
func TestDrainTimeoutEndsRequestsWithAnError(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 1, rig.Settings{"drain": `{ accept_grace: 1ms, timeout: 300ms }`, "queue": beating}, hanging(3))
		held := r.openStreams()
		whole := make(chan rig.Reply, 1)
		go r.sendWhole(whole)
		all := len(held) + 1
		r.WaitFor("all requests at the engine", func() bool { return r.Workers[0].Engine.Stats().Running == all })
		r.Signal(syscall.SIGTERM)
		r.checkShutDown(held)
		got := <-whole
		checkError(t, "a whole answer", got, http.StatusServiceUnavailable, "server_shutting_down")
		if got.Header.Get("Retry-After") == "" {
			t.Error("there is no Retry-After")
		}
		r.WaitForEnd()
		r.waitForCancels(int64(all))
	})
}

// TestAStopDoesNotWaitForUnreadBodies: requests without a key that announce a body but do not
// send it do not delay a stop, even with a long drain.timeout.
func TestAStopDoesNotWaitForUnreadBodies(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := keys(true)
		s["drain"] = `{ accept_grace: 1ms, timeout: 1h }`
		s["cors"] = `{ origins: ["https://app.example"] }`
		r := newRig(t, 1, s, engines.Config{})
		for _, at := range []string{r.DataAddr, r.AdminAddr} {
			for _, line := range []string{"GET /livez", "GET /readyz", "GET /metrics", "POST /nowhere", "GET /admin/workers",
				"OPTIONS /v1/models HTTP/1.1\r\nOrigin: https://app.example\r\nAccess-Control-Request-Method: POST\r\nX-Rest:"} {
				c := rig.Dial(t, at)
				if _, err := io.WriteString(c, line+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.Stop()
	})
}
