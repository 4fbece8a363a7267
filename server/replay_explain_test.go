package server

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"tierway/routing"
)

// TestExplainAndReplayAgreeUnderADraft: a past request goes to the same worker in both, whatever the
// draft changes.
func TestExplainAndReplayAgreeUnderADraft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newExplainRig(t)
		p := r.control.Snapshot().ByName["small"].Routing
		for range 2 { // one request in flight at each worker
			l, err := p.Acquire(&routing.Request{Now: time.Now(), Stream: true})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Release(routing.Result{Err: routing.ErrExcluded})
		}
		sent := r.post("/v1/chat/completions", `{"model":"small","messages":[{"role":"user","content":"Hi"}]}`,
			"Authorization", "Bearer acme", "X-Request-ID", "why-1")
		went := sent.header.Get("X-Routed-To")
		if went != "w0" {
			t.Fatalf("the request went to %s: %s", went, sent.body)
		}
		for draft, want := range map[string]string{
			`tiers: [ { name: large, workers: [ { name: l0, weight: 3 } ] } ]`:                                                "w0",
			`tiers: [ { name: small, workers: [ { name: w0, weight: 0 } ] } ]`:                                                "w1",
			`tiers: [ { name: small, workers: [ { name: w0, priority: 1 } ] } ]`:                                              "w1",
			`tiers: [ { name: small, workers: [ { name: w0, max_inflight: 1 } ] } ]`:                                          "w1",
			`tiers: [ { name: small, policy: { name: least_load }, workers: [ { name: w0, weight: 0 } ] } ]`:                  "w1",
			`tiers: [ { name: small, policy: { name: least_load }, workers: [ { name: w2, url: "http://127.0.0.1:14" } ] } ]`: "w2",
		} {
			e := r.explain(http.StatusOK, order{"decision": "why-1", "draft": r.edited(draft)})
			a := r.replay(fmt.Sprintf(`{"draft":%q}`, r.edited(draft)))
			replayed := went
			for _, m := range a.WorkerMoves {
				replayed = m.To
			}
			if e.Worker != went || e.Draft.Worker != want || replayed != want || a.Redecided != 1 {
				t.Errorf("%s: explained %s, replayed %s, want %s; skipped %+v", draft, e.Draft.Worker, replayed, want, a.Skipped)
			}
		}
	})
}
