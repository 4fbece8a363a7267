package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/routing"
	"tierway/tenants"
)

// remains is all that an explanation could have changed, as text to be compared.
func (r *driftRig) remains() map[string]string {
	r.t.Helper()
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			r.t.Fatal(err)
		}
		return string(b)
	}
	at := time.Unix(1_700_000_000, 0)
	all := map[string]string{"access log": r.access.String(), "decisions": text(r.decisions.span().next), "chats": text(r.chats.Len()), "in flight": text(r.Inflight()), "stored": text(r.stored.order.Len())}

	for _, p := range r.snapshot.Load().pools {
		for _, v := range p.routing.Snapshot(at) {
			v.Ref, v.Open, v.Cooling = nil, 0, 0
			all["worker "+v.ID] = text(v)
		}
		all["learned "+p.Name] = text(p.routing.Estimates())
		all["queue "+p.Name] = text(p.queue.View(at))
	}
	ts, ks := r.people.Load().tenants()
	for _, k := range ks {
		i := slices.IndexFunc(ts, func(t tenants.Tenant) bool { return t.Name == k.Tenant })
		_, uses := r.local.Peek(&tenants.Charge{Caller: tenants.NewCaller(ts[i], k), At: at}, 1)
		all["limits "+k.Tenant] = text(uses)
	}
	all["ledger"] = text(r.ledger.Stats().Spooled)
	all["metrics"] = r.dataMetrics()
	return all
}

// dataMetrics are the metrics of the data plane.
func (r *driftRig) dataMetrics() string {
	rec := httptest.NewRecorder()
	r.metricsHandler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var kept []string
	for line := range strings.Lines(rec.Body.String()) {
		if strings.HasPrefix(line, "tierway_") && !strings.HasPrefix(line, "tierway_admin") && !strings.Contains(line, "age_seconds") && !strings.Contains(line, "_uptime") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// TestToExplainChangesNothing: no booking, no debit of a limit, no chat kept, nothing
// that a policy or an estimate remembers, no metric of the data plane, no row of the
// ledger, no record and no line of a log, whatever becomes of the request, under the
// configuration in force and under drafts.
func TestToExplainChangesNothing(t *testing.T) {
	r := newDriftRig(t, "", quick)
	d := newDriftWorld(3)
	held := &loads{}
	defer held.give()
	for range 40 { // a past that could be changed
		r.sent(d.wish())
		for _, p := range r.snapshot.Load().pools {
			held.shake(d, p.routing)
		}
	}
	r.chance.Store(7)
	kept, _ := r.decisions.page(maxSeq, 5, func(*routing.Decision) bool { return true })
	settled(t, r)
	before := r.remains()
	draft := map[string]any{"draft": map[string]any{"text": "policy: { name: round_robin }\ntiers: [ { name: one, workers: [ { name: one-1, weight: 0 }, { name: new, url: \"http://127.0.0.1:9\", weight: 40 } ] } ]\n"}}
	outcomes := map[string]int{}
	for i := range 120 {
		w := d.wish()
		order := w.order(nil)
		if i%3 == 0 {
			order = w.order(draft)
		}
		e := decoded[RouteExplanation](t, r.ops(http.StatusOK, http.MethodPost, "/admin/route/explain", order))
		outcomes[e.Outcome]++
		again := decoded[RouteExplanation](t, r.ops(http.StatusOK, http.MethodPost, "/admin/route/explain", order))
		if diff := cmp.Diff(e.Candidates, again.Candidates, cmp.AllowUnexported(routing.Terms{})) + cmp.Diff([]string{e.Worker, e.Reason, e.Tier, e.Rule}, []string{again.Worker, again.Reason, again.Tier, again.Rule}); diff != "" {
			t.Fatalf("asked twice it says something else: %s", diff)
		}
	}
	for _, k := range kept {
		r.ops(http.StatusOK, http.MethodPost, "/admin/route/explain", `{"decision":"`+k.d.RequestID+`"}`)
	}
	if outcomes[wouldRoute] == 0 || outcomes[wouldReject] == 0 {
		t.Errorf("not every outcome was met: %v", outcomes)
	}
	if diff := cmp.Diff(before, r.remains()); diff != "" {
		t.Error(diff)
	}
}

// settled waits until what the last answers leave behind is done.
func settled(t *testing.T, r *driftRig) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); r.Inflight() > 0; {
		if time.Now().After(deadline) {
			t.Fatal("requests do not end")
		}
		<-time.After(time.Millisecond)
	}
}

// TestAPastRequestIsTriedUnderADraft: its pick is decided again among the draft's
// workers as they were then; a new one is idle. A refused one stays refused.
func TestAPastRequestIsTriedUnderADraft(t *testing.T) {
	r := newExplainRig(t)
	sent := r.post("/v1/chat/completions", `{"model":"small","messages":[{"role":"user","content":"Hi"}]}`, "Authorization", "Bearer acme", "X-Request-ID", "why-1")
	if sent.header.Get("X-Routed-To") != "w0" {
		t.Fatalf("it went to %s: %s", sent.header.Get("X-Routed-To"), sent.body)
	}
	r.post("/v1/chat/completions", `{"model":"nobody's","messages":[{"role":"user","content":"Hi"}]}`, "Authorization", "Bearer acme", "X-Request-ID", "why-2")
	for draft, want := range map[string]string{
		`tiers: [ { name: small, workers: [ { name: w0, weight: 0 } ] } ]`:                                                                    "w1",
		`tiers: [ { name: small, workers: [ { name: w0, weight: 0 }, { name: w1, weight: 0 }, { name: w2, url: "http://127.0.0.1:14" } ] } ]`: "w2",
		`tiers: [ { name: large, workers: [ { name: l0, weight: 3 } ] } ]`:                                                                    "w0",
	} {
		e := r.explains(http.StatusOK, order{"decision": "why-1", "draft": order{"text": draft}})
		if e.Worker != "w0" || e.Draft.Worker != want || e.Tier != "small" || !stepOf(&e.Explanation, stageWorker).Worker.Again.Agrees {
			t.Errorf("%s: %s in force, %s under the draft, want %s: %+v", draft, e.Worker, e.Draft.Worker, want, e.Draft.Steps)
		}
	}
	if e := r.explains(http.StatusOK, order{"decision": "why-2"}); e.Outcome != wouldReject || e.Status != http.StatusNotFound || e.Code != "model_not_found" || e.Steps[len(e.Steps)-1].OK {
		t.Errorf("explained as %+v", e.Explanation)
	}
}
