package server

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tierway/breaker"
)

// suspectedEngine is a simulated engine. Its health checks wait while checking is full. It fails
// everything while dead is set.
type suspectedEngine struct {
	next     http.Handler
	checking chan struct{} // has room for one element
	dead     atomic.Bool
	calls    atomic.Int64           // client requests
	inflight atomic.Int64           // of calls
	onCall   func(concurrent int64) // runs at the start of each client request
}

func (e *suspectedEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		e.checking <- struct{}{}
		<-e.checking
	} else {
		e.calls.Add(1)
		e.onCall(e.inflight.Add(1))
		defer e.inflight.Add(-1)
	}
	if e.dead.Load() {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	e.next.ServeHTTP(w, r)
}

// suspicionYAML lets every failed request reach its client. Only suspicions lead to a health check
// within the test.
const suspicionYAML = `
auth: { required: false }
health: { interval: 1h, down_after: 5 }
policy: { name: round_robin }
retry: { attempts: 1 }
tiers:
  - name: small
    model: fake-7b
    workers: [ %s ]
`

// newSuspicionRig runs a gateway in front of a suspectedEngine, w0, and its peer. No client request may
// fail, and w0 may receive one at a time while its breaker is half-open.
func newSuspicionRig(t *testing.T) (*rig, *suspectedEngine) {
	e := &suspectedEngine{next: fakeEngine(), checking: make(chan struct{}, 1), onCall: func(int64) {}}
	r := newRig(t, suspicionYAML, e, fakeEngine())
	r.runControl()
	r.waitForChecks()
	e.onCall = func(concurrent int64) {
		if state := r.stateOf("w0"); state == breaker.Open || state == breaker.HalfOpen && concurrent > 1 {
			t.Errorf("w0 has %d requests while its breaker is %s", concurrent, state)
		}
	}
	return r, e
}

// sendUntil sends requests of eight clients until ok holds.
func (r *rig) sendUntil(what string, ok func() bool) {
	r.t.Helper()
	var clients sync.WaitGroup
	var ended atomic.Bool
	defer clients.Wait()
	defer ended.Store(true)
	for range 8 {
		clients.Go(func() {
			for ; !ended.Load(); time.Sleep(10 * time.Millisecond) {
				if a := r.post("/v1/chat/completions", chatBody("small", "hi", "")); a.status != http.StatusOK {
					r.t.Errorf("a client received %d %s", a.status, a.body)
					return
				}
			}
		})
	}
	r.until(what, ok)
}

// TestSuspectedHealthyWorkerReturnsWithoutAFailedRequest: nothing is sent to it before a good check, and
// then one probe at a time until its breaker is closed. A finding soon afterwards has no effect.
func TestSuspectedHealthyWorkerReturnsWithoutAFailedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e := newSuspicionRig(t)
		e.checking <- struct{}{}
		r.control.Pools.Suspect("small", "w0")
		r.sendUntil("100 answers of the peer", func() bool { return r.answeredBy("w1") >= 100 })
		if e.calls.Load() != 0 {
			t.Errorf("%d client requests before the health check ended", e.calls.Load())
		}
		<-e.checking
		r.sendUntil("w0 in rotation", func() bool { return r.stateOf("w0") == breaker.Closed && e.calls.Load() > 20 })
		r.control.Pools.Suspect("small", "w0")
		if state := r.stateOf("w0"); state != breaker.Closed {
			t.Errorf("a finding soon afterwards made the breaker %s", state)
		}
	})
}

// TestSuspectedDeadWorkerReceivesNoRequest until its check passes.
func TestSuspectedDeadWorkerReceivesNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e := newSuspicionRig(t)
		e.dead.Store(true)
		r.control.Pools.Suspect("small", "w0")
		failed := func() bool { return r.member("w0").Worker.Status().Failed > 0 }
		r.sendUntil("a failed check of w0", failed)
		before := r.answeredBy("w1")
		r.sendUntil("100 answers of the peer", func() bool { return r.answeredBy("w1") >= before+100 })
		if state := r.stateOf("w0"); state != breaker.Open || e.calls.Load() != 0 {
			t.Fatalf("the breaker is %s after %d client requests", state, e.calls.Load())
		}
		if own := r.control.Snapshot().ByName["small"].OwnOpenings(time.Now()); len(own) != 0 {
			t.Errorf("the finding of the other gateway returns to it: %v", own)
		}
		e.dead.Store(false)
		r.member("w0").Worker.Suspect() // instead of the next check in an hour
		r.sendUntil("w0 in rotation", func() bool { return r.stateOf("w0") == breaker.Closed && e.calls.Load() > 0 })
	})
}

// answeredBy returns the number of requests that a worker has answered.
func (r *rig) answeredBy(worker string) int64 { return r.member(worker).Stats.View(time.Now()).OK }
