package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tierway/breaker"
	"tierway/server/control"
)

// shortFirstByteYAML has two workers and a first_byte that is shorter than every answer.
const shortFirstByteYAML = `
auth: { required: false }
health: { path: "off" }
policy: { name: round_robin }
timeouts: { first_byte: 20ms, idle: 10s, total: { interactive: %s } }
tiers:
  - { name: small, model: fake-7b, serves: [chat, completions, responses, messages, embeddings, rerank, score, tokenize, moderations, images, audio], workers: [ %%s ] }
pools:
  - { name: raw, paths: ["/raw/*"], workers: [ { name: raw-0, url: %q } ] }
`

// delayedAnswer answers a request with a body after a delay.
func delayedAnswer(after time.Duration, kind, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		io.Copy(io.Discard, q.Body) // after the body, net/http detects a disconnect
		select {
		case <-time.After(after):
		case <-q.Context().Done():
		}
		w.Header().Set("Content-Type", kind)
		io.WriteString(w, body) // a test's own worker
	})
}

// TestFirstByteLimitsOnlyStreams: a whole answer arrives with its last token, so only the total timeout
// limits it. A stream without an event in time is retried on another worker.
func TestFirstByteLimitsOnlyStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 100 * time.Millisecond
		whole := delayedAnswer(slow, "application/json",
			`{"id":"resp_1","type":"message","object":"response","choices":[],"data":[]}`)
		r := newRig(t, fmt.Sprintf(shortFirstByteYAML, "10s", startServer(t, whole)), whole, whole)
		for path, body := range map[string]string{
			"/v1/chat/completions": hello, "/v1/completions": `{"model":"small","prompt":"x","max_tokens":9}`,
			"/v1/responses":  `{"model":"small","input":"x"}`,
			"/v1/messages":   `{"model":"small","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}`,
			"/v1/embeddings": `{"model":"small","input":"x"}`, "/v1/rerank": `{"model":"small","query":"x","documents":["x"]}`,
			"/tokenize":       `{"model":"small","prompt":"x"}`,
			"/v1/moderations": `{"model":"small","input":"x"}`, "/v1/audio/speech": `{"model":"small","input":"x"}`,
			"/v1/images/generations": `{"model":"small","prompt":"x"}`,
			"/raw/x":                 "anything",
		} {
			if a := r.post(path, body); a.status != http.StatusOK {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
		for _, d := range r.recorded().Last(100) {
			if len(d.Attempts) != 1 || d.Attempts[0].Error != "" {
				t.Errorf("%s: the attempts are %+v", d.Route, d.Attempts)
			}
		}
		a := r.post("/v1/chat/completions", strings.Replace(hello, "{", `{"stream":true,`, 1))
		if _, code, _ := errorOf(t, a); a.status != http.StatusGatewayTimeout || code != "worker_timeout" {
			t.Errorf("a stream: %d %s", a.status, a.body)
		}
		if d := r.recorded().Last(1)[0]; len(d.Attempts) != 2 ||
			d.Attempts[0].Error != "no first event within timeouts.first_byte" ||
			d.Attempts[1].Error != "no first event within timeouts.first_byte" {
			t.Errorf("a stream: the attempts are %+v", d.Attempts)
		}
	})
}

// TestTotalTimeoutDoesNotBlameTheWorker: a long answer and no answer look the same, so the worker is
// not at fault and no other worker is tried.
func TestTotalTimeoutDoesNotBlameTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := delayedAnswer(time.Hour, "application/json", "{}")
		r := newRig(t, fmt.Sprintf(shortFirstByteYAML, "60ms", startServer(t, never)), never, never)
		for path, body := range map[string]string{"/v1/chat/completions": hello,
			"/v1/images/generations": `{"model":"small","prompt":"x"}`, "/raw/x": "anything"} {
			a := r.post(path, body)
			if _, code, _ := errorOf(t, a); a.status != http.StatusGatewayTimeout || code != "worker_timeout" {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
			if d := r.recorded().Last(1)[0]; len(d.Attempts) != 1 ||
				!strings.Contains(d.Attempts[0].Error, "the request reached its total time") {
				t.Errorf("%s: the attempts are %+v", path, d.Attempts)
			}
		}
		for line := range strings.SplitSeq(r.scrape(), "\n") {
			if strings.HasPrefix(line, "tierway_attempts_total") && strings.Contains(line, `result="error"`) &&
				!strings.HasSuffix(line, " 0") {
				t.Errorf("a worker is blamed for the total timeout: %s", line)
			}
		}
	})
}

// TestSDKTimeoutEndsWithTheHeadersOfARelayedAnswer: the SDKs stop their clocks when the headers arrive,
// as with streams.
func TestSDKTimeoutEndsWithTheHeadersOfARelayedAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "audio/mpeg")
			writeNow(t, w, "begin")
			<-time.After(150 * time.Millisecond)
			writeNow(t, w, "end")
		})
		r := newRig(t, fmt.Sprintf(shortFirstByteYAML, "10s", startServer(t, engine)), engine)
		for _, path := range []string{"/v1/audio/speech", "/raw/x"} {
			if a := r.post(path, `{"model":"small","input":"x"}`, "X-Stainless-Timeout", "0.1"); a.body != "beginend" ||
				a.err != nil {
				t.Errorf("%s: %q, %v", path, a.body, a.err)
			}
		}
	})
}

// failingThenSlow answers 500 until it is cured. Then it answers slowly.
type failingThenSlow struct {
	cured atomic.Bool
	tried atomic.Int32 // requests since it was cured
	slow  http.Handler
}

func (s *failingThenSlow) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if !s.cured.Load() {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	s.tried.Add(1)
	s.slow.ServeHTTP(w, q)
}

// TestProbeTimeoutOnlyMovesARequestThatCanBeRetried: probe_timeout ends a probe early if another worker
// can serve the request. Otherwise it does not limit the request.
func TestProbeTimeoutOnlyMovesARequestThatCanBeRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const yaml = `
auth: { required: false }
health: { path: "off" }
policy: { name: round_robin }
retry: { budget: 1 }
breaker: { consecutive_failures: 2, open_for: 10ms, probe_timeout: 50ms }
tiers:
  - { name: small, model: fake-7b, serves: [chat, responses], workers: [ %s ] }
`
		for path, c := range map[string]struct{ body, answers string }{
			"/v1/chat/completions": {hello, "another"},
			// a stored response is not retried
			"/v1/responses": {`{"model":"small","input":"x","store":true,"max_output_tokens":1}`, "w0"},
		} {
			well := delayedAnswer(0, "application/json", `{"id":"resp_1","object":"response","choices":[]}`)
			sick := &failingThenSlow{slow: delayedAnswer(400*time.Millisecond, "application/json",
				`{"id":"resp_1","object":"response","choices":[]}`)}
			r := newRig(t, yaml, sick, well, well)
			p := r.control.Snapshot().Pools[0]
			first := p.Routing.Snapshot(time.Now())[0]
			gate := first.Ref.(*control.Member).Gate
			for gate.View().State != breaker.Open {
				r.post("/v1/chat/completions", hello)
			}
			sick.cured.Store(true)
			time.Sleep(10 * time.Millisecond)
			gate.Poll()
			for range 3 { // one of them is the probe
				if a := r.post(path, c.body); a.status != http.StatusOK {
					t.Fatalf("%s: %d %s", path, a.status, a.body)
				}
				if d := r.recorded().Last(1)[0]; d.Attempts[0].Worker == "w0" && (d.Worker == "w0") != (c.answers == "w0") {
					t.Errorf("%s: %s answered after %+v", path, d.Worker, d.Attempts)
				}
			}
			if seen := sick.tried.Load(); seen != 1 {
				t.Errorf("%s: %d requests tried the worker", path, seen)
			}
		}
	})
}
