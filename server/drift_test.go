package server

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"tierway/decisions"
)

// TestRequestsGoAsExplained: 500 random requests are explained and then sent, under every policy, over
// changing loads. Tiers are selected by header, name, alias and content. Each request goes where its
// explanation says, for the same reasons, or is rejected as it says.
func TestRequestsGoAsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests = 500 // that go to a worker
		r := newDriftRig(t, "", quick)
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		d := newDriftWorld(seed)
		leases := map[string]*loads{}
		for _, p := range r.control.Snapshot().Pools {
			leases[p.Name] = &loads{}
		}
		saw := map[string]int{}
		for i := 0; saw[decisions.WouldRoute] < requests; i++ {
			for _, p := range r.control.Snapshot().Pools {
				leases[p.Name].shake(d, p.Routing)
			}
			r.chance.Store(d.Uint64())
			w := d.drawRequest()
			e := r.explainRequest(w)
			saw[e.Outcome]++
			saw["policy "+e.Policy]++
			if e.Outcome == decisions.WouldQueue {
				r.checkWaits(t, w, &e.Explanation, leases[e.Tier].releaseAll)
				continue
			}
			got := r.sent(w)
			if e.Outcome == decisions.WouldReject {
				if got.status != e.Status {
					t.Fatalf("request %d is answered %d, explained as %d: %s", i, got.status, e.Status, got.body)
				}
				continue
			}
			saw[e.Rule]++
			for name, want := range expectedHeaders(&e.Explanation) {
				if is := got.header.Get(name); got.status != http.StatusOK || is != want {
					t.Fatalf("request %d (%d): %s is %q, explained as %q\n%+v\n%.300s", i, got.status, name, is, want, e, w.body)
				}
			}
		}
		for _, l := range leases {
			l.releaseAll()
		}
		t.Log(saw)
		for _, name := range []string{decisions.WouldRoute, decisions.WouldReject, "header", "model", "alias",
			"prompt_tokens",
			"fallback:three",
			"default", "policy chwbl", "policy least_load",
			"policy power_of_two", "policy random", "policy round_robin", "policy weighted_round_robin"} {
			if saw[name] == 0 {
				t.Errorf("no request was an example of %s: %v", name, saw)
			}
		}
	})
}

// expectedHeaders are the headers of an answer that matches its explanation.
func expectedHeaders(e *decisions.Explanation) map[string]string {
	reason := e.Rule
	if e.Note != "" {
		reason += "; " + e.Note
	}
	return map[string]string{"X-Routed-To": e.Worker, "X-Model-Tier": e.Tier, "X-Tier-Reason": reason,
		"X-Route-Reason": e.Reason}
}

// checkWaits sends a request that waits according to its explanation. It fails unless the request waits
// until free has released a slot.
func (r *driftRig) checkWaits(t *testing.T, w randomRequest, e *decisions.Explanation, free func()) {
	t.Helper()
	done := make(chan httpAnswer, 1)
	go func() { done <- r.sent(w) }()
	synctest.Wait()
	select {
	case got := <-done:
		t.Fatalf("%s is answered %d and did not wait: %+v", w.path, got.status, e)
	default:
	}
	if n := r.control.Snapshot().ByName[e.Tier].WaitQueue.Waiting(); n != 1 {
		t.Fatalf("%d requests wait: %+v", n, e)
	}
	free()
	if got := <-done; got.status != http.StatusOK || got.header.Get("X-Model-Tier") != e.Tier {
		t.Fatalf("after its wait it gets %d from %s, explained for %s", got.status, got.header.Get("X-Model-Tier"),
			e.Tier)
	}
}
