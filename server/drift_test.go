package server

import (
	"net/http"
	"testing"
	"time"

	"tierway/decisions"
)

// TestWhatIsExplainedIsWhatIsDone: 500 random requests of several tenants, under
// every policy, by header, name, alias and content, over loads that change between
// them: each is explained, then sent, and goes where the explanation said, for the
// reasons that it gave; or is refused as it said.
func TestWhatIsExplainedIsWhatIsDone(t *testing.T) {
	const requests = 500 // that go to a worker
	r := newDriftRig(t, "", quick)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	d := newDriftWorld(seed)
	held := map[string]*loads{}
	for _, p := range r.control.Snapshot().Pools {
		held[p.Name] = &loads{}
	}
	saw := map[string]int{}
	for i := 0; saw[decisions.WouldRoute] < requests; i++ {
		for _, p := range r.control.Snapshot().Pools {
			held[p.Name].shake(d, p.Routing)
		}
		r.chance.Store(d.Uint64())
		w := d.wish()
		e := r.whyOf(w)
		saw[e.Outcome]++
		saw["policy "+e.Policy]++
		if e.Outcome == decisions.WouldQueue {
			r.waits(t, w, &e.Explanation, held[e.Tier].give)
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
		for name, want := range promised(&e.Explanation) {
			if is := got.header.Get(name); got.status != http.StatusOK || is != want {
				t.Fatalf("request %d (%d): %s is %q, explained as %q\n%+v\n%.300s", i, got.status, name, is, want, e, w.body)
			}
		}
	}
	for _, l := range held {
		l.give()
	}
	t.Log(saw)
	for _, name := range []string{decisions.WouldRoute, decisions.WouldReject, "header", "model", "alias", "prompt_tokens",
		"default", "policy chwbl", "policy least_load",
		"policy power_of_two", "policy random", "policy round_robin", "policy weighted_round_robin"} {
		if saw[name] == 0 {
			t.Errorf("no request was an example of %s: %v", name, saw)
		}
	}
}

// promised are the headers of an answer that is sent as explained.
func promised(e *decisions.Explanation) map[string]string {
	reason := e.Rule
	if e.Note != "" {
		reason += "; " + e.Note
	}
	return map[string]string{"X-Routed-To": e.Worker, "X-Model-Tier": e.Tier, "X-Tier-Reason": reason,
		"X-Route-Reason": e.Reason}
}

// waits sends a request that is explained to wait, and sees it do so until free has
// made a place for it.
func (r *driftRig) waits(t *testing.T, w wish, e *decisions.Explanation, free func()) {
	t.Helper()
	done := make(chan answered, 1)
	go func() { done <- r.sent(w) }()
	q := r.control.Snapshot().ByName[e.Tier].WaitQueue
	for deadline := time.Now().Add(5 * time.Second); q.Waiting() == 0; {
		select {
		case got := <-done:
			t.Fatalf("%s is answered %d and did not wait: %+v", w.path, got.status, e)
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not wait: %+v", e)
		}
	}
	free()
	if got := <-done; got.status != http.StatusOK || got.header.Get("X-Model-Tier") != e.Tier {
		t.Fatalf("after its wait it is answered %d by %s, explained for %s", got.status, got.header.Get("X-Model-Tier"),
			e.Tier)
	}
}
