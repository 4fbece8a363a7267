package server

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tierway/breaker"
	"tierway/server/control"
)

// countingEngine counts its requests. It answers with a status, or lets next answer after a delay.
type countingEngine struct {
	status int
	delay  time.Duration
	next   http.Handler // answers instead of status
	calls  atomic.Int64
}

func (c *countingEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.calls.Add(1)
	if c.next == nil {
		w.WriteHeader(c.status)
		return
	}
	body, err := io.ReadAll(r.Body) // net/http detects a disconnect only after the body
	if err != nil {
		return
	}
	timer := time.NewTimer(c.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		return
	}
	clone := r.Clone(r.Context())
	clone.Body = io.NopCloser(bytes.NewReader(body))
	c.next.ServeHTTP(w, clone)
}

// stateOf returns the state of a worker's breaker.
func (r *rig) stateOf(name string) breaker.State {
	r.t.Helper()
	for _, p := range r.control.Snapshot().Pools {
		for _, v := range p.Routing.Snapshot(time.Now()) {
			if v.ID == name {
				return v.Ref.(*control.Member).Gate.View().State
			}
		}
	}
	r.t.Fatalf("there is no worker %s", name)
	return 0
}

// retryYAML is one tier without keys under least_load. A failed attempt is always retried once.
const retryYAML = `
auth: { required: false }
health: { path: "off" }
policy: { name: least_load }
retry: { attempts: 2, budget: 1 }
tiers:
  - name: small
    model: fake-7b
    workers: [ %s ]
`

// TestTwoFailingWorkersDoNotExcuseEachOther: all requests are the same, so a failure on both proves
// nothing. Later successes on other workers do.
func TestTwoFailingWorkersDoNotExcuseEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sick := [2]*countingEngine{{status: 500}, {status: 500}}
		well := [2]*countingEngine{{next: fakeEngine(), delay: 50 * time.Millisecond},
			{next: fakeEngine(), delay: 50 * time.Millisecond}}
		r := newRig(t, retryYAML, sick[0], sick[1], well[0], well[1])
		var clients sync.WaitGroup
		var failed atomic.Int64
		for range 4 {
			clients.Go(func() {
				for range 25 {
					if r.post("/v1/chat/completions", chatBody("fake-7b", "Hi", "")).status != http.StatusOK {
						failed.Add(1)
					}
				}
			})
		}
		clients.Wait()
		for _, name := range []string{"w0", "w1"} {
			if st := r.stateOf(name); st != breaker.Open {
				t.Errorf("%s is %v", name, st)
			}
		}
		// Requests that were in flight until both workers had failed once.
		if n := failed.Load(); n > 20 {
			t.Errorf("%d of 100 requests failed", n)
		}
	})
}

// TestFailingWorkerGetsFewRequestsWhileItsOutcomeIsPending for the answer of a slow worker.
func TestFailingWorkerGetsFewRequestsWhileItsOutcomeIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sick := &countingEngine{status: 500}
		well := &countingEngine{next: fakeEngine(), delay: 2 * time.Second}
		r := newRig(t, retryYAML, sick, well)
		var clients sync.WaitGroup
		stop := time.Now().Add(2500 * time.Millisecond)
		for range 4 {
			clients.Go(func() {
				for time.Now().Before(stop) {
					r.post("/v1/chat/completions", chatBody("fake-7b", "Hi", ""))
				}
			})
		}
		clients.Wait()
		if n := sick.calls.Load(); n > 10 {
			t.Errorf("the failing worker got %d requests", n)
		}
	})
}

// TestAFollowUpDoesNotChangeThePromptScale: the engine has read text that the gateway has not seen.
func TestAFollowUpDoesNotChangeThePromptScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plain, fakeEngine())
		text := strings.Repeat("some words that an engine counts ", 40)
		scale := func() int64 { return r.control.Snapshot().ByName["small"].Routing.Estimates().PromptScale.Count }
		r.post("/v1/responses", `{"model":"fake-7b","input":"`+text+`","previous_response_id":"resp_elsewhere"}`)
		r.post("/v1/responses", `{"model":"fake-7b","input":"`+text+`","conversation":"conv_elsewhere"}`)
		r.post("/v1/rerank", `{"model":"fake-7b","query":"`+text+`","documents":["a","b"]}`)
		if n := scale(); n != 0 {
			t.Errorf("%d answers changed the prompt scale", n)
		}
		r.post("/v1/responses", `{"model":"fake-7b","input":"`+text+`"}`)
		if n := scale(); n != 1 {
			t.Errorf("a complete prompt changed the scale %d times", n)
		}
	})
}

// TestAFailingWorkerThatStaysGetsFewRequests: two of three workers fail at once, and the ejection cap
// keeps one in rotation. Its empty load must not attract requests.
func TestAFailingWorkerThatStaysGetsFewRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sick := [2]*countingEngine{{status: 500}, {status: 500}}
		r := newRig(t, retryYAML, sick[0], sick[1], &countingEngine{next: fakeEngine(), delay: 20 * time.Millisecond})
		var clients sync.WaitGroup
		var failed atomic.Int64
		for range 4 {
			clients.Go(func() {
				for range 50 {
					if r.post("/v1/chat/completions", chatBody("fake-7b", "Hi", "")).status != http.StatusOK {
						failed.Add(1)
					}
				}
			})
		}
		clients.Wait()
		if n := failed.Load(); n > 30 {
			t.Errorf("%d of 200 requests failed although one worker is healthy", n)
		}
	})
}
