package admin

import (
	"encoding/json"
	"net/http"
	"testing"

	"tierway/decisions"
	"tierway/replay"
	"tierway/routing"
	"tierway/tenants"
)

// TestDraftWithoutAWorkerForAPastRequestRejectsIt.
func TestDraftWithoutAWorkerForAPastRequestRejectsIt(t *testing.T) {
	e := &decisions.Explanation{Outcome: decisions.WouldRoute}
	st := pastAttempt(e, &decisions.Attempt{Worker: "w0", Reason: "random", Choice: &routing.Choice{}},
		func(*decisions.Attempt) (*decisions.RedecidedPick, replay.Placement, error) {
			return nil, replay.Placement{}, replay.ErrNoWorker
		})
	if e.Worker != "" || e.Outcome != decisions.WouldReject || e.Code != "no_healthy_worker" || st.OK {
		t.Errorf("%s, %s, %q; the step is %+v", e.Outcome, e.Code, e.Worker, st)
	}
	if got := e.Summary; got != "was rejected at worker: no worker of the draft can take the request" {
		t.Error(got)
	}
}

// explainPast records a past request of the rig's only worker and returns its explanation.
func (r *planeRig) explainPast(d *decisions.Decision, draft string) RouteExplanation {
	r.t.Helper()
	r.decisions.Add(d)
	order := map[string]string{"decision": d.RequestID}
	if draft != "" {
		order["draft"] = draft
	}
	body, err := json.Marshal(order)
	if err != nil {
		r.t.Fatal(err)
	}
	got := r.ask("ops", http.MethodPost, "/admin/route/explain", string(body))
	var e RouteExplanation
	if err := json.Unmarshal(got.Body.Bytes(), &e); err != nil || got.Code != http.StatusOK {
		r.t.Fatalf("%d %v: %s", got.Code, err, got.Body)
	}
	return e
}

// pastDecision returns the record of a request that w0 of the tier small has answered.
func pastDecision(id string) *decisions.Decision {
	return &decisions.Decision{RequestID: id, Tenant: "filed", Class: "batch", Tier: "small", Rule: "model",
		RequestedModel: "small", Worker: "w0", Reason: "random", Generation: 1, Result: decisions.OK, Status: http.StatusOK,
		Attempts: []decisions.Attempt{{Worker: "w0", Reason: "random"}}}
}

// TestPastRequestShowsTheBoundsOfItsQueue: those of the configuration that decided it, or of the
// draft. After a reload they are unknown and absent.
func TestPastRequestShowsTheBoundsOfItsQueue(t *testing.T) {
	r := newPlaneRig(t)
	bounds := r.plane.control.Snapshot().ByName["small"].Queue
	queue := func(e *decisions.Explanation) decisions.QueueStep {
		for _, st := range e.Steps {
			if st.Queue != nil {
				return *st.Queue
			}
		}
		t.Fatalf("there is no queue step: %+v", e.Steps)
		return decisions.QueueStep{}
	}
	draft := `tiers: [ { name: small, model: fake-7b, queue: { max_depth: 7 }, ` +
		`workers: [ { name: w0, url: "http://127.0.0.1:9" } ] } ]`
	e := r.explainPast(pastDecision("of-this-generation"), draft)
	now, drafted := queue(&e.Explanation), queue(e.Draft)
	if now.MaxDepth == nil || *now.MaxDepth != bounds.MaxDepth || *now.MaxWait != millis(bounds.MaxWait[tenants.Batch]) {
		t.Errorf("the configuration has %+v, shown are %+v", bounds, now)
	}
	if drafted.MaxDepth == nil || *drafted.MaxDepth != 7 {
		t.Errorf("the draft has a depth of 7, shown is %+v", drafted)
	}
	old := pastDecision("of-another-generation")
	old.Generation = 9
	e = r.explainPast(old, "")
	if q := queue(&e.Explanation); q.MaxDepth != nil || q.MaxWait != nil {
		t.Errorf("bounds of an unknown configuration are shown: %d requests, %g ms", *q.MaxDepth, *q.MaxWait)
	}
}
