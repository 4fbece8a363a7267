package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/config"
	"tierway/decisions"
	"tierway/queue"
	"tierway/routing"
	"tierway/server/admin"
	"tierway/server/control"
	"tierway/tenants"
)

// state is all state that an explanation could change, as text.
func (r *driftRig) state() map[string]string {
	r.t.Helper()
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			r.t.Fatal(err)
		}
		return string(b)
	}
	at := time.Unix(1_700_000_000, 0)
	chats, responses := r.proxy.Remembered()
	all := map[string]string{"access log": r.accessLog(), "decisions": text(r.recorded().Span().Next),
		"in flight": text(r.Inflight()), "remembered": text([]int{chats, responses})}

	for _, p := range r.control.Snapshot().Pools {
		for _, v := range p.Routing.Snapshot(at) {
			v.Ref, v.Open, v.Backoff = nil, 0, 0
			all["worker "+v.ID] = text(v)
		}
		all["learned "+p.Name] = text(p.Routing.Estimates())
		all["queue "+p.Name] = text(p.WaitQueue.View(at))
	}
	directory := r.control.Snapshot().Identity.Directory
	for _, k := range slices.AppendSeq(slices.Collect(directory.FileKeys()), directory.StoredKeys()) {
		tenant, _ := directory.Tenant(k.Tenant)
		_, uses := r.control.Stores.Limiter.Peek(&tenants.Charge{Caller: tenants.NewCaller(tenant, k), At: at}, 1)
		all["limits "+k.Tenant] = text(uses)
	}
	all["ledger"] = text(r.control.Stores.Ledger.Stats().Waiting)
	all["metrics"] = r.dataMetrics()
	return all
}

// dataMetrics are the metrics of the data plane.
func (r *driftRig) dataMetrics() string {
	rec := httptest.NewRecorder()
	r.planes.metricsHandler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var kept []string
	for line := range strings.Lines(rec.Body.String()) {
		if strings.HasPrefix(line, "tierway_") && !strings.HasPrefix(line, "tierway_admin") &&
			!strings.Contains(line, "age_seconds") && !strings.Contains(line, "_uptime") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// TestExplainChangesNoState: no booking, limit, chat, policy, estimate, metric, ledger row, record or
// log line changes. This holds for every outcome, under the configuration in force and under drafts.
func TestExplainChangesNoState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDriftRig(t, "", quick)
		d := newDriftWorld(3)
		leases := &loads{}
		defer leases.releaseAll()
		for range 40 { // state that could be changed
			r.sent(d.drawRequest())
			for _, p := range r.control.Snapshot().Pools {
				leases.shake(d, p.Routing)
			}
		}
		r.chance.Store(7)
		kept, _ := r.recorded().Page(0, 5, func(*decisions.Decision) bool { return true })
		waitForRequests(t, r)
		before := r.state()
		draft := map[string]any{"draft": r.edited("policy: { name: round_robin }\ntiers: [ { name: one, workers: [ { name: " +
			"one-1, weight: 0 }, { name: new, url: \"http://127.0.0.1:9\", weight: 40 } ] } ]\n")}
		outcomes := map[string]int{}
		for i := range 120 {
			w := d.drawRequest()
			order := w.order(nil)
			if i%6 == 0 {
				order = w.order(draft)
			}
			e := decode[admin.RouteExplanation](t, r.ops(http.StatusOK, http.MethodPost, "/admin/route/explain", order))
			outcomes[e.Outcome]++
			second := decode[admin.RouteExplanation](t, r.ops(http.StatusOK, http.MethodPost, "/admin/route/explain", order))
			sameCost := cmp.Comparer(func(a, b routing.CostFacts) bool {
				a.Backlog, a.Recent = b.Backlog, b.Recent // time reduces them
				return a == b
			})
			if diff := cmp.Diff(e.Candidates, second.Candidates, cmp.AllowUnexported(routing.Terms{}), sameCost) +
				cmp.Diff([]string{e.Worker, e.Reason, e.Tier, e.Rule},
					[]string{second.Worker, second.Reason, second.Tier, second.Rule}); diff != "" {
				t.Fatalf("the second explanation differs: %s", diff)
			}
		}
		for _, k := range kept {
			r.ops(http.StatusOK, http.MethodPost, "/admin/route/explain", `{"decision":"`+k.Decision.RequestID+`"}`)
		}
		if outcomes[decisions.WouldRoute] == 0 || outcomes[decisions.WouldReject] == 0 {
			t.Errorf("an outcome is missing: %v", outcomes)
		}
		if diff := cmp.Diff(before, r.state()); diff != "" {
			t.Error(diff)
		}
	})
}

// waitForRequests waits until no request is in flight.
func waitForRequests(t *testing.T, r *driftRig) {
	t.Helper()
	waitUntil(t, "the end of all requests", func() bool { return r.Inflight() == 0 })
}

// TestPastRequestIsRedecidedUnderADraft: the pick uses the draft's workers with their recorded load. A
// new worker is idle. A rejected request stays rejected.
func TestPastRequestIsRedecidedUnderADraft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newExplainRig(t)
		sent := r.post("/v1/chat/completions", `{"model":"small","messages":[{"role":"user","content":"Hi"}]}`,
			"Authorization", "Bearer acme", "X-Request-ID", "why-1")
		if sent.header.Get("X-Routed-To") != "w0" {
			t.Fatalf("the request went to %s: %s", sent.header.Get("X-Routed-To"), sent.body)
		}
		r.post("/v1/chat/completions", `{"model":"unknown","messages":[{"role":"user","content":"Hi"}]}`, "Authorization",
			"Bearer acme", "X-Request-ID", "why-2")
		for draft, want := range map[string]string{
			`tiers: [ { name: small, workers: [ { name: w0, weight: 0 } ] } ]`:                                                                    "w1",
			`tiers: [ { name: small, workers: [ { name: w0, weight: 0 }, { name: w1, weight: 0 }, { name: w2, url: "http://127.0.0.1:14" } ] } ]`: "w2",
			`tiers: [ { name: large, workers: [ { name: l0, weight: 3 } ] } ]`:                                                                    "w0",
		} {
			e := r.explain(http.StatusOK, order{"decision": "why-1", "draft": r.edited(draft)})
			if e.Worker != "w0" || e.Draft.Worker != want || e.Tier != "small" ||
				!stepOf(&e.Explanation, decisions.StageWorker).Worker.Redecided.Agrees {
				t.Errorf("%s: %s in force, %s under the draft, want %s: %+v", draft, e.Worker, e.Draft.Worker, want, e.Draft.Steps)
			}
		}
		if e := r.explain(http.StatusOK, order{"decision": "why-2"}); e.Outcome != decisions.WouldReject ||
			e.Status != http.StatusNotFound || e.Code != "model_not_found" || e.Steps[len(e.Steps)-1].OK {
			t.Errorf("explained as %+v", e.Explanation)
		}
	})
}

// TestPastRequestWithoutAWorkerIsExplained: it was rejected, answered by the gateway itself, or its
// client left. The explanation has a reason at the stage where the request ended.
func TestPastRequestWithoutAWorkerIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newExplainRig(t)
		r.do(http.MethodGet, "/v1/models", "", "Authorization", "Bearer acme", "X-Request-ID", "why-1")
		if e := r.explain(http.StatusOK, order{"decision": "why-1"}); e.Outcome != decisions.WasAnswered || e.Status != 0 ||
			len(e.Steps) != 2 || !e.Steps[1].OK {
			t.Errorf("a list of models is explained as %+v", e.Explanation)
		}
		known := decisions.Decision{Tenant: "acme", Class: "batch", Tier: "small", Rule: "model", Generation: 1}
		for name, c := range map[string]struct {
			change                  func(d *decisions.Decision)
			outcome, stage, summary string
			status                  int
		}{
			"a list": {func(d *decisions.Decision) {
				*d = decisions.Decision{Tenant: "acme", Result: decisions.OK, Status: 200}
			}, decisions.WasAnswered, decisions.StageRequest, "answered by the gateway itself", 0},
			"left in the queue": {func(d *decisions.Decision) { d.Result, d.Status, d.QueueMs = decisions.ClientGone, 499, 31 },
				decisions.WasLeft, decisions.StageQueue, "the client left after 31 ms in the queue", 0},
			"left before": {func(d *decisions.Decision) {
				*d = decisions.Decision{Tenant: "acme", Result: decisions.ClientGone, Status: 499}
			}, decisions.WasLeft, decisions.StageRequest, "the client left", 0},
			"a limit": {func(d *decisions.Decision) {
				d.Result, d.Status, d.Limit, d.Code = decisions.Refused, 429, "rpm", "rate_limit_exceeded"
			}, decisions.WouldReject, decisions.StageLimits, "was rejected at limits: rate_limit_exceeded", 429},
			"shed": {func(d *decisions.Decision) { d.Result, d.Status, d.Shed = decisions.Failed, 503, "depth" },
				decisions.WouldReject, decisions.StageQueue, "was rejected at queue: depth", 503},
			"nothing but a status": {func(d *decisions.Decision) { d.Result, d.Status = decisions.Failed, 500 },
				decisions.WouldReject, decisions.StageQueue, "was rejected at queue: answered 500", 500},
		} {
			d := known
			c.change(&d)
			d.RequestID = "past-" + strings.ReplaceAll(name, " ", "-")
			r.recorded().Add(&d)
			e := r.explain(http.StatusOK, order{"decision": d.RequestID})
			last := e.Steps[len(e.Steps)-1]
			if e.Outcome != c.outcome || e.Status != c.status || last.Stage != c.stage ||
				last.OK != (c.outcome != decisions.WouldReject) || last.Detail == "" || e.Summary != c.summary {
				t.Errorf("%s is explained as %s, %q, at %+v", name, e.Outcome, e.Summary, last)
			}
		}
	})
}

// TestDraftSaturationMatchesItsReload: a worker that is excluded under a draft is also excluded after
// its reload.
func TestDraftSaturationMatchesItsReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newExplainRig(t)
		p := r.control.Snapshot().ByName["small"].Routing
		observe := func() {
			for i, v := range p.Snapshot(time.Now()) {
				p.Observe(v.ID, v.Ref, routing.Status{Up: true, Waiting: 4 * (1 - i), LoadAt: time.Now()}) // w0 has four waiting
			}
		}
		observe()
		draft := `tiers: [ { name: small, saturation: { waiting: 3 } } ]`
		e := r.explain(http.StatusOK, order{"request": hiRequest("small"), "draft": r.edited(draft)})
		f := r.draft(draft)
		r.source = func() (*config.File, error) { return f, nil }
		if _, err := r.Reload(t.Context(), control.ReloadRequest{}); err != nil {
			t.Fatal(err)
		}
		observe()
		after := r.explain(http.StatusOK, order{"request": hiRequest("small")})
		if e.Worker != "w0" || e.Draft.Worker != "w1" || after.Worker != "w1" {
			t.Errorf("%s in force, %s under the draft, %s after its reload", e.Worker, e.Draft.Worker, after.Worker)
		}
	})
}

// TestDraftQueueLimitsMatchTheirReload explains a request behind ten others of its class and tenant.
// One request ends each second, and the draft's wait limit is 5 s.
func TestDraftQueueLimitsMatchTheirReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newExplainRig(t)
		p := r.control.Snapshot().ByName["large"]
		now := time.Now().Add(-5 * time.Minute)
		for range 200 { // the pool learns that a request lasts 1 s
			lease, err := p.Routing.Acquire(&routing.Request{Now: now, Stream: true})
			if err != nil {
				t.Fatal(err)
			}
			now = now.Add(time.Second)
			lease.Answered(now, nil)
			lease.Release(routing.Result{At: now, OutputTokens: 9})
		}
		defer r.occupyWorker("large")()
		for range 10 {
			tk := &queue.Ticket{Request: &routing.Request{Stream: true}, Tenant: tenants.Anonymous().Tenant, Tokens: 10,
				Bytes: 10}
			if _, err := p.WaitQueue.Enter(tk, time.Now()); !errors.Is(err, queue.ErrWaiting) {
				t.Fatal(err)
			}
			defer p.WaitQueue.Leave(tk, queue.Cancelled, time.Now()) // it may have left already
		}
		draft := `tiers: [ { name: large, queue: { max_wait: { interactive: 5s } } } ]`
		e := r.explain(http.StatusOK, order{"request": hiRequest("large"), "draft": r.edited(draft)})
		f := r.draft(draft)
		r.source = func() (*config.File, error) { return f, nil }
		if _, err := r.Reload(t.Context(), control.ReloadRequest{}); err != nil {
			t.Fatal(err)
		}
		after := r.explain(http.StatusOK, order{"request": hiRequest("large")})
		if e.Draft.Outcome != decisions.WouldReject || after.Outcome != decisions.WouldReject {
			t.Errorf("%s under the draft, %s after its reload, want %s for both", e.Draft.Outcome, after.Outcome,
				decisions.WouldReject)
		}
	})
}
