package queue

import (
	"errors"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// TestReloadKeepsWaitingRequests: waiting requests get added slots at once, and a reload to
// fewer slots or a smaller depth rejects none of them.
func TestReloadKeepsWaitingRequests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 1, engines.Config{})
		r.Serve(rig.Settings{"tiers": r.Tiers("max_inflight: 2", ""), "queue": "{ max_depth: 100, " + waitLong + " }"})
		all := r.startMany(22, held)
		r.waitForRunning(2)
		r.waitForQueued(20)

		r.Reload(rig.Settings{"tiers": r.Tiers("max_inflight: 12", "")})
		r.waitForRunning(12) // no slot was released meanwhile
		r.waitForQueued(10)

		r.Reload(rig.Settings{"queue": "{ max_depth: 3, " + waitLong + " }"})
		a := r.mustSend(plain)
		if err := a.CheckRefusal(http.StatusServiceUnavailable, "overloaded"); err != nil {
			t.Errorf("a request beyond the new depth: %v", err)
		}
		r.waitForQueued(10)

		r.Reload(rig.Settings{"tiers": r.Tiers("max_inflight: 1", "")})
		r.waitForQueued(10)
		if n := r.sumEngines(func(s engines.Stats) int { return s.Running }); n != 12 {
			t.Errorf("the engine runs %d requests, want the 12 that it had", n)
		}
		r.ResumePaused()
		r.checkServed(all)
		if n := r.received(); n != len(all) {
			t.Errorf("the engine received %d requests, want %d", n, len(all))
		}
		r.checkAfterwards(nil, a)
	})
}

// TestReloadDispatchesWaitingRequestsToNewWorker: requests that wait for a full worker go to a
// worker that a reload adds.
func TestReloadDispatchesWaitingRequestsToNewWorker(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 2, engines.Config{})
		both := r.Workers
		r.Workers = both[:1]
		r.Serve(rig.Settings{"tiers": r.Tiers("max_inflight: 2", ""), "queue": "{ " + waitLong + " }"})
		all := r.startMany(2, held)
		r.waitForRunning(2)
		all = append(all, r.startMany(5, plain)...)
		r.waitForQueued(5)
		r.Workers = both
		r.Reload(rig.Settings{"tiers": r.Tiers("max_inflight: 2", "")})
		r.waitForQueued(0)
		r.ResumePaused()
		r.checkServed(all)
		if n := both[1].Engine.Stats().Requests["/v1/chat/completions"]; n != 5 {
			t.Errorf("the new engine received %d requests, 5 waited", n)
		}
	})
}

// TestDrainServesWaitingRequests: requests that wait when the gateway is stopped are served
// within drain.timeout, streams too.
//
// SD-01: queued requests.
func TestDrainServesWaitingRequests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 1, engines.Config{Slots: 4, PerToken: 5 * time.Millisecond})
		r.Serve(rig.Settings{"tiers": r.Tiers("max_inflight: 4", ""), "queue": "{ " + waitLong + " }",
			"drain": `{ accept_grace: 1ms, timeout: 30s }`})
		all := r.startMany(4, held)
		r.waitForRunning(4)
		all = append(all, r.startMany(40, plain)...)
		streams := r.startMany(10, stream)
		r.waitForQueued(50)
		r.Signal(syscall.SIGTERM)
		rig.Eventually(t, func() error { // the drain begins while all slots are held
			if !strings.Contains(r.Log(), `"draining"`) {
				return errors.New("the gateway does not drain")
			}
			return nil
		})
		r.ResumePaused()
		r.checkServed(all)
		for _, p := range streams {
			if a := r.reply(p); a.Err != nil || !strings.HasSuffix(a.Body, "data: [DONE]\n\n") ||
				strings.Contains(a.Body, `"error"`) {
				t.Errorf("a stream that waited ended as %d (%v): %s", a.Status, a.Err, a.Body)
			}
		}
		r.WaitForEnd()
	})
}

// TestDrainTimeoutRejectsWaitingRequests: at drain.timeout, waiting requests are rejected with
// server_shutting_down, and the program exits with status 0.
func TestDrainTimeoutRejectsWaitingRequests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 1, engines.Config{})
		r.Serve(rig.Settings{"tiers": r.Tiers("max_inflight: 1", ""), "queue": "{ " + waitLong + " }",
			"drain": `{ accept_grace: 1ms, timeout: 300ms }`})
		holder := r.start(held)
		r.waitForRunning(1)
		all := r.startMany(10, plain)
		r.waitForQueued(10)
		r.Signal(syscall.SIGTERM)
		for _, p := range all {
			a := r.reply(p)
			if err := a.CheckRefusal(http.StatusServiceUnavailable, "server_shutting_down"); err != nil {
				t.Error(err)
			}
			if r.reached(a) {
				t.Error("the engine received a rejected request")
			}
		}
		r.reply(holder)
		r.WaitForEnd()
	})
}
