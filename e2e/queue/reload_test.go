package queue

import (
	"errors"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"tierway/e2e/rig"
	"tierway/engines"
)

// TestReloadKeepsWaiters: more places are given to those that wait at once, and
// fewer places or a smaller depth throw nobody out.
func TestReloadKeepsWaiters(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, engines.Config{})
	r.Serve(rig.Settings{"tiers": r.Tiers("max_inflight: 2", ""), "queue": "{ max_depth: 100, " + waitLong + " }"})
	all := r.crowd(22, held)
	r.running(2)
	r.waiting(20)

	r.Reload(rig.Settings{"tiers": r.Tiers("max_inflight: 12", "")})
	r.running(12) // nothing was given back meanwhile
	r.waiting(10)

	r.Reload(rig.Settings{"queue": "{ max_depth: 3, " + waitLong + " }"})
	a := r.now(plain)
	if err := a.CheckRefusal(http.StatusServiceUnavailable, "overloaded"); err != nil {
		t.Errorf("one more than the new depth: %v", err)
	}
	r.waiting(10)

	r.Reload(rig.Settings{"tiers": r.Tiers("max_inflight: 1", "")})
	r.waiting(10)
	if n := r.engines(func(s engines.Stats) int { return s.Running }); n != 12 {
		t.Errorf("the engine works on %d of 12 requests that it has", n)
	}
	r.ReleaseHeld()
	r.served(all)
	if n := r.asked(); n != len(all) {
		t.Errorf("the engine was asked %d times by %d requests", n, len(all))
	}
	r.outlived(nil, a)
}

// TestAReloadFindsAnotherWorkerForWaiters: those that wait for a full worker go to
// one that is new.
func TestAReloadFindsAnotherWorkerForWaiters(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, engines.Config{})
	both := r.Workers
	r.Workers = both[:1]
	r.Serve(rig.Settings{"tiers": r.Tiers("max_inflight: 2", ""), "queue": "{ " + waitLong + " }"})
	all := r.crowd(2, held)
	r.running(2)
	all = append(all, r.crowd(5, plain)...)
	r.waiting(5)
	r.Workers = both
	r.Reload(rig.Settings{"tiers": r.Tiers("max_inflight: 2", "")})
	r.waiting(0)
	r.ReleaseHeld()
	r.served(all)
	if n := both[1].Engine.Stats().Requests["/v1/chat/completions"]; n != 5 {
		t.Errorf("the new engine was asked %d times, 5 waited", n)
	}
}

// TestDrainServesWaiters: whoever waits when the gateway is told to stop is served
// within drain.timeout, streams as well.
//
// SD-01: the queued ones.
func TestDrainServesWaiters(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, engines.Config{Slots: 4, PerToken: 5 * time.Millisecond})
	r.Serve(rig.Settings{"tiers": r.Tiers("max_inflight: 4", ""), "queue": "{ " + waitLong + " }",
		"drain": `{ accept_grace: 1ms, timeout: 30s }`})
	all := r.crowd(4, held)
	r.running(4)
	all = append(all, r.crowd(40, plain)...)
	streams := r.crowd(10, stream)
	r.waiting(50)
	r.Signal(syscall.SIGTERM)
	rig.Eventually(t, func() error { // nobody new is taken, and all places are still held
		if !strings.Contains(r.Log(), `"draining"`) {
			return errors.New("the gateway does not drain")
		}
		return nil
	})
	r.ReleaseHeld()
	r.served(all)
	for _, p := range streams {
		if a := r.answer(p); a.Err != nil || !strings.HasSuffix(a.Body, "data: [DONE]\n\n") ||
			strings.Contains(a.Body, `"error"`) {
			t.Errorf("a stream that waited ended as %d (%v): %s", a.Status, a.Err, a.Body)
		}
	}
	r.WaitForEnd()
}

// TestADrainThatTakesTooLongTellsWaiters: at drain.timeout they are told that this
// gateway goes, and the program ends with status 0.
func TestADrainThatTakesTooLongTellsWaiters(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, engines.Config{})
	r.Serve(rig.Settings{"tiers": r.Tiers("max_inflight: 1", ""), "queue": "{ " + waitLong + " }",
		"drain": `{ accept_grace: 1ms, timeout: 300ms }`})
	holder := r.later(held)
	r.running(1)
	all := r.crowd(10, plain)
	r.waiting(10)
	r.Signal(syscall.SIGTERM)
	for _, p := range all {
		a := r.answer(p)
		if err := a.CheckRefusal(http.StatusServiceUnavailable, "server_shutting_down"); err != nil {
			t.Error(err)
		}
		if r.reached(a) {
			t.Error("the engine got a request that was refused")
		}
	}
	r.answer(holder)
	r.WaitForEnd()
}
