package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// waitUntil lets virtual time pass until a condition holds. It looks less and less often, at last every 50 ms.
func waitUntil(t *testing.T, what string, holds func() bool) {
	t.Helper()
	synctest.Wait()
	step := time.Millisecond
	for end := time.Now().Add(time.Minute); !holds(); step = min(2*step, 50*time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout while waiting for %s", what)
		}
		time.Sleep(step)
	}
}

// scrape returns the metrics in Prometheus' text format.
func (r *rig) scrape() string {
	w := httptest.NewRecorder()
	r.proxy.FlushRecords()
	r.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

const streamedHello = `{"model":"small","stream":true,"messages":[{"role":"user","content":"hi"}]}`

func TestTheFirstEventClearsPendingPromptTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, plain, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			<-release
			w.Header().Set("Content-Type", "text/event-stream")
			first, rest, _ := strings.Cut(chunkAndEnd, "\n\n")
			writeNow(t, w, strings.Replace(first, `"stop"`, "null", 1)+"\n\n")
			<-release
			writeNow(t, w, first+"\n\n"+rest)
		}))
		done := make(chan httpAnswer)
		go func() { done <- r.post("/v1/chat/completions", streamedHello) }()
		waitUntil(t, "the booking", func() bool {
			g := r.control.Pools.Gauges()[0]
			return g.PendingTokens > 0 && g.OutputTokens > 0
		})
		release <- struct{}{}
		waitUntil(t, "the first event", func() bool {
			g := r.control.Pools.Gauges()[0]
			return g.PendingTokens == 0 && g.OutputTokens > 0 && g.Inflight == 1
		})
		release <- struct{}{}
		if a := <-done; a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

func TestACutConnectionTriggersAHealthCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var checks atomic.Int64
		r := newRig(t, strings.Replace(plain, `health: { path: "off" }`, "health: { path: /health, interval: 1h }", 1),
			http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
				if q.URL.Path != "/health" {
					panic(http.ErrAbortHandler)
				}
				checks.Add(1)
			}))
		r.runControl()
		waitUntil(t, "the first check", func() bool { return checks.Load() == 1 })
		if a := r.post("/v1/chat/completions", hello); a.status != 502 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		waitUntil(t, "another check", func() bool { return checks.Load() > 1 })
	})
}

func TestAStreamEndsAtItsDoneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan struct{})
		r := newRig(t, plain, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			writeNow(t, w, chunkAndEnd)
			<-q.Context().Done()
			close(left)
		}))
		if a := r.post("/v1/chat/completions", streamedHello); a.body != chunkAndEnd || a.err != nil {
			t.Errorf("%q, %v", a.body, a.err)
		}
		<-left
		if m := r.scrape(); !strings.Contains(m, `tierway_attempts_total{result="ok",tier="small",worker="w0"} 1`) ||
			!strings.Contains(m, `tierway_stream_end_total{reason="complete"} 1`) {
			t.Error("the stream does not count as complete")
		}
	})
}

func TestA403OfAPathDoesNotEjectItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, `
auth: { required: false }
health: { path: "off" }
pools:
  - { name: other, paths: ["/v9/*"], workers: [ %s ] }
`, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if strings.HasSuffix(q.URL.Path, "forbidden") {
				w.WriteHeader(http.StatusForbidden)
			}
		}))
		if a := r.do("GET", "/v9/forbidden", ""); a.status != 502 {
			t.Errorf("forbidden: %d %s", a.status, a.body)
		}
		if a := r.do("GET", "/v9/else", ""); a.status != 200 {
			t.Errorf("then: %d %s", a.status, a.body)
		}
	})
}

func TestARejectedEngineKeyEjectsTheWorkerOnlyIfAnotherServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unauthorized := http.HandlerFunc(func(w http.ResponseWriter,
			_ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
		})
		alone := newRig(t, plain, unauthorized)
		for range 2 {
			if a := alone.post("/v1/chat/completions", hello); a.status != 502 ||
				!strings.Contains(a.body, "worker_auth_failed") {
				t.Errorf("alone: %d %s", a.status, a.body)
			}
		}
		two := newRig(t, strings.Replace(plain, "auth:", "policy: { name: round_robin }\nauth:", 1), unauthorized,
			fakeEngine())
		for range 4 {
			if a := two.post("/v1/chat/completions", hello); a.status != 200 {
				t.Errorf("beside another: %d %s", a.status, a.body)
			}
		}
		if m := two.scrape(); !strings.Contains(m, `tierway_retries_total{tier="small"} 1`) {
			t.Error("the worker with the wrong key stayed in rotation")
		}
	})
}

// TestSDKTimeoutLimitsAHeldStream: while the gateway holds the first events, the client has no headers
// and its clock runs.
func TestSDKTimeoutLimitsAHeldStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "timeouts: { idle: 2s }\n"+plain, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			writeNow(t, w, `data: {"choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}`+"\n\n")
			<-q.Context().Done()
		}))
		a := r.post("/v1/chat/completions", streamedHello, "X-Stainless-Timeout", "0.2")
		if d := r.recorded().Last(1)[0]; a.status != http.StatusGatewayTimeout || len(d.Attempts) != 1 ||
			!strings.Contains(d.Attempts[0].Error, "the request reached its total time") {
			t.Errorf("%d %s; the attempts were %+v", a.status, a.body, d.Attempts)
		}
	})
}

func TestSDKTimeoutEndsWithTheFirstEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plain, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			first, rest, _ := strings.Cut(chunkAndEnd, "\n\n")
			writeNow(t, w, strings.Replace(first, `"stop"`, "null", 1)+"\n\n")
			<-time.After(700 * time.Millisecond)
			writeNow(t, w, first+"\n\n"+rest)
		}))
		if a := r.post("/v1/chat/completions", streamedHello, "X-Stainless-Timeout", "0.5"); a.status != 200 ||
			!strings.HasSuffix(a.body, "data: [DONE]\n\n") || strings.Contains(a.body, "error") {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}
