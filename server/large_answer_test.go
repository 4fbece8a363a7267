package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/breaker"
	"tierway/server/control"
)

// threeWorkersYAML has three workers. One breaker may open, at the second consecutive failure.
const threeWorkersYAML = `
auth: { required: false }
health: { path: "off" }
policy: { name: round_robin }
breaker: { consecutive_failures: 2 }
queue: { heartbeat_after: 1h }
%s
tiers:
  - { name: small, model: fake-7b, serves: [chat, embeddings, audio], workers: [ %%s ] }
`

const streamRequest = `{"stream":true,"model":"small` + helloTo

// contentEvent is an event with size bytes of content.
func contentEvent(size int) string {
	return `data: {"choices":[{"index":0,"delta":{"content":"` + strings.Repeat("x", size) + `"},"finish_reason":null}]}` +
		"\n\n"
}

// TestAnEventMayBeAsLongAsAnAnswer: max_response_bytes limits the memory that one worker's answer can
// take, in either form.
func TestAnEventMayBeAsLongAsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := contentEvent(5<<20) + chunkAndEnd
		r := newRig(t, fmt.Sprintf(threeWorkersYAML, ""), delayedAnswer(0, "text/event-stream", body))
		if a := r.post("/v1/chat/completions", streamRequest); a.status != http.StatusOK || a.body != body {
			t.Errorf("%d, %d of %d bytes", a.status, len(a.body), len(body))
		}
	})
}

// TestATooLargeAnswerBlamesNoWorker: another worker's answer would be as large, and one tenant must not
// open breakers. The error names the limit.
func TestATooLargeAnswerBlamesNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 64 << 10
		long := strings.Repeat("x", 2*most)
		for _, c := range []struct {
			name, path, body, kind string
			sent                   []string // one piece is sent with its length, more pieces without
			begun                  bool     // the client has received content before
		}{
			{"an announced length", "/v1/embeddings", `{"model":"small","input":"x"}`, "application/json",
				[]string{`{"data":"` + long + `"}`}, false},
			{"a whole answer in chunks", "/v1/chat/completions", hello, "application/json", []string{`{"data":"`, long, long},
				false},
			{"a first event", "/v1/chat/completions", streamRequest, "text/event-stream", []string{contentEvent(2 * most)},
				false},
			{"a later event", "/v1/chat/completions", streamRequest, "text/event-stream",
				[]string{contentEvent(1), contentEvent(2 * most)}, true},
		} {
			engine := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				if len(c.sent) == 1 {
					w.Header().Set("Content-Length", fmt.Sprint(len(c.sent[0])))
				}
				for _, piece := range c.sent {
					io.WriteString(w, piece)              // the gateway disconnects early
					http.NewResponseController(w).Flush() // the same
				}
			})
			r := newRig(t, fmt.Sprintf(threeWorkersYAML, "max_response_bytes: 64KiB"), engine, engine, engine)
			for range 6 {
				a := r.post(c.path, c.body)
				if c.begun {
					if a.status != http.StatusOK || !strings.HasPrefix(a.body, contentEvent(1)) ||
						!strings.Contains(a.body, `"code":"response_too_large"`) || strings.Contains(a.body, "[DONE]") {
						t.Errorf("%s: %d %.300s", c.name, a.status, a.body)
					}
					continue
				}
				_, code, message := errorOf(t, a)
				if a.status != http.StatusBadGateway || code != "response_too_large" ||
					!strings.Contains(message, "max_response_bytes") || !strings.Contains(message, "64") ||
					a.header.Get("X-Should-Retry") != "false" {
					t.Errorf("%s: %d %s, X-Should-Retry %q", c.name, a.status, a.body, a.header.Get("X-Should-Retry"))
				}
			}
			for _, v := range r.control.Snapshot().Pools[0].Routing.Snapshot(time.Now()) {
				if st := v.Ref.(*control.Member).Gate.View().State; st != breaker.Closed {
					t.Errorf("%s: the breaker of %s is %v", c.name, v.ID, st)
				}
			}
			for _, d := range r.recorded().Last(10) {
				if len(d.Attempts) != 1 || !d.Estimated || d.Usage.Prompt == 0 {
					t.Errorf("%s: %d attempts, usage %+v", c.name, len(d.Attempts), d.Usage)
				}
			}
		}
	})
}

// TestIdleCountsFromTheLastByte, not from the last event.
func TestIdleCountsFromTheLastByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fmt.Sprintf(threeWorkersYAML, "timeouts: { idle: 200ms }"),
			http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				writeNow(t, w, contentEvent(1)+"data:")
				for range 8 {
					<-time.After(60 * time.Millisecond)
					writeNow(t, w, " ")
				}
				writeNow(t, w, strings.TrimPrefix(chunkAndEnd, "data:"))
			}))
		if a := r.post("/v1/chat/completions", streamRequest); !strings.HasSuffix(a.body, chunkAndEnd[len("data: "):]) {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

// TestASlowClientDoesNotTripIdle: idle limits the worker, client_stall the client.
func TestASlowClientDoesNotTripIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 4 << 20 // more than a connection buffers
		for path, c := range map[string]struct{ kind, sent string }{
			"/v1/audio/speech":     {"audio/mpeg", strings.Repeat("x", size)},
			"/v1/chat/completions": {"text/event-stream", contentEvent(size) + chunkAndEnd},
		} {
			r := newRig(t, fmt.Sprintf(threeWorkersYAML, "timeouts: { idle: 100ms, client_stall: 20s }"),
				delayedAnswer(0, c.kind, c.sent))
			resp := r.send(t.Context(), r.net.client, path, `{"stream":true,"input":"x","model":"small`+helloTo)
			<-time.After(400 * time.Millisecond)
			got, err := io.ReadAll(resp.Body)
			if err != nil || len(got) != len(c.sent) {
				t.Errorf("%s: %d of %d bytes, %v: %.300s", path, len(got), len(c.sent), err, got)
			}
		}
	})
}
