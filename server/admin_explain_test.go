package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/decisions"
	"tierway/routing"
	"tierway/server/admin"
)

// explain requests an explanation and fails unless the answer has the status.
func (r *adminRig) explain(status int, order any) admin.RouteExplanation {
	r.t.Helper()
	text, err := json.Marshal(order)
	if err != nil {
		r.t.Fatal(err)
	}
	got := r.ops(status, http.MethodPost, "/admin/route/explain", string(text))
	if status != http.StatusOK {
		return admin.RouteExplanation{Explanation: decisions.Explanation{Error: got.body}}
	}
	return decode[admin.RouteExplanation](r.t, got)
}

// order is the JSON body of a request.
type order map[string]any

// hiRequest is a short chat request.
func hiRequest(model string) order {
	return order{"model": model, "messages": []order{{"role": "user", "content": "Hi"}}}
}

// stepOf returns the step of a stage, nil without one.
func stepOf(e *decisions.Explanation, stage string) *decisions.Step {
	for i := range e.Steps {
		if e.Steps[i].Stage == stage {
			return &e.Steps[i]
		}
	}
	return nil
}

const explainYAML = `
classifier: {} # with its preset, which rigs go without
store: { sql: "sqlite://:memory:" }
admin: { keys: [ { name: ops, sha256: %s }, { name: eyes, sha256: %s, role: viewer } ] }
auth:
  keys:
    - { name: acme, sha256: %s, tiers: [small, medium], limits: { rpm: 6, tpm: 1000, concurrent: 2 } }
    - { name: spent, sha256: %s, limits: { rpm: 1 } }
health: { path: "off" }
tiers:
  - { name: small, model: s, context: 8000, policy: { name: round_robin }, workers: [ %%s ] }
  - { name: medium, model: m, queue: { max_depth: 0 }, workers: [ { name: m0, url: "http://127.0.0.1:9", max_inflight: 1 } ] }
  - { name: large, model: l, workers: [ { name: l0, url: "http://127.0.0.1:10", max_inflight: 1 } ] }
pools: [ { name: vectors, model: bge, serves: [embeddings], workers: [ { name: v0, url: "http://127.0.0.1:11" } ] } ]
models: { mini: small }
`

func newExplainRig(t *testing.T) *adminRig {
	t.Helper()
	yaml := fmt.Sprintf(explainYAML, digestHex("ops"), digestHex("eyes"), digestHex("acme"), digestHex("spent"))
	return adminRigOf(newRig(t, yaml, fakeEngine(), fakeEngine()))
}

// occupyWorker occupies the only slot of a tier's worker. release frees it.
func (r *adminRig) occupyWorker(tier string) (release func()) {
	r.t.Helper()
	lease, err := r.control.Snapshot().ByName[tier].Routing.Acquire(&routing.Request{Now: time.Now(), Stream: true})
	if err != nil {
		r.t.Fatal(err)
	}
	return func() { lease.Release(routing.Result{Err: routing.ErrExcluded}) }
}

// TestExplainReportsARejectionAsAnOutcome: the answer is 200. It names the stage that rejects, with the
// status and code that a client would get. Earlier stages have passed, later ones are absent.
func TestExplainReportsARejectionAsAnOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newExplainRig(t)
		defer r.occupyWorker("medium")()
		r.post("/v1/chat/completions", `{"model":"small","messages":[{"role":"user","content":"Hi"}]}`, "Authorization",
			"Bearer spent")
		long := strings.Repeat("many words of a text ", 20_000)
		for _, c := range []struct {
			name   string
			order  order
			stage  string
			status int
			code   string
		}{
			{"an unknown model", order{"request": hiRequest("unknown")}, decisions.StageTier, 404, "model_not_found"},
			{"a tier that is not allowed", order{"tenant": "acme", "request": hiRequest("large")}, decisions.StageTier, 404,
				"model_not_found"},
			{"a body that is no object", order{"request": []int{1}}, decisions.StageRequest, 400, ""},
			{"a prompt that is too long",
				order{"request": order{"model": "s", "messages": []order{{"role": "user", "content": long}}}}, decisions.StageTier,
				400, "context_length_exceeded"},
			{"another dialect", order{"path": "/v1/embeddings", "request": order{"model": "small", "input": "x"}},
				decisions.StageTier, 404, "endpoint_not_supported"},
			{"no such path", order{"path": "/v1/nothing", "request": hiRequest("small")}, decisions.StageRequest, 404,
				"unknown_url"},
			{"a stored answer", order{"path": "/v1/responses/r1/cancel", "request": order{}}, decisions.StageRequest, 404,
				"endpoint_not_supported"},
			{"a spent limit", order{"tenant": "spent", "key_id": "", "request": hiRequest("small")}, decisions.StageLimits, 429,
				"rate_limit_exceeded"},
			{"a reservation over the burst",
				order{"tenant": "acme",
					"request": order{"model": "small", "messages": []order{{"role": "user", "content": long[:8000]}}}},
				decisions.StageLimits, 429, "rate_limit_exceeded"},
			{"full workers and no queue", order{"request": hiRequest("medium")}, decisions.StageQueue, 503, "overloaded"},
		} {
			t.Logf("case %v", c.name)
			e := r.explain(http.StatusOK, c.order)
			if e.Outcome != decisions.WouldReject || e.Status != c.status || c.code != "" && e.Code != c.code ||
				e.Worker != "" {
				t.Fatalf("explained as %+v", e.Explanation)
			}
			for i, st := range e.Steps {
				if last := i+1 == len(e.Steps); st.OK == last || last && (st.Stage != c.stage || st.Detail == "") {
					t.Errorf("step %d is %+v, want a rejection at %s", i, st, c.stage)
				}
			}
			if !strings.Contains(e.Summary, c.stage) {
				t.Errorf("the summary is %q", e.Summary)
			}
		}
	})
}

// TestExplainDescribesEveryStage for a request of a tenant with limits. No text of the prompt appears.
func TestExplainDescribesEveryStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newExplainRig(t)
		got := r.ops(http.StatusOK, http.MethodPost, "/admin/route/explain",
			`{"tenant":"acme","class":"batch","request":{"model":"auto","messages":[{"role":"user","content":"the canary implements a function in Python"}]}}`)
		e := decode[admin.RouteExplanation](t, got)
		if strings.Contains(got.body, "canary") {
			t.Errorf("it repeats the prompt: %s", got.body)
		}
		var stages []string
		for _, st := range e.Steps {
			stages = append(stages, st.Stage)
		}
		if want := []string{decisions.StageAuth, decisions.StageRequest, decisions.StageTier, decisions.StageLimits,
			decisions.StageQueue, decisions.StageWorker}; !slices.Equal(stages, want) {
			t.Fatalf("the stages are %v", stages)
		}
		if e.Outcome != decisions.WouldRoute || e.Tenant != "acme" || e.Class != "batch" || e.Generation != 1 ||
			e.SnapshotAt.IsZero() || e.Estimate == nil || e.Estimate.Prompt == 0 {
			t.Errorf("explained as %+v", e.Explanation)
		}
		tier := stepOf(&e.Explanation, decisions.StageTier).Tier
		if e.Tier != "medium" || e.Rule != "clamped" || len(tier.Signals) < 4 || len(tier.Moves) != 1 ||
			tier.Moves[0].Tier != "large" || tier.Moves[0].By != "clamped" {
			t.Errorf("the tier is %s by %s: %+v", e.Tier, e.Rule, tier)
		}
		if n := len(tier.Targets); n != 3 || tier.Targets[2].Allowed || !tier.Targets[1].Allowed || !tier.Targets[0].Fits {
			t.Errorf("the tiers are %+v", tier.Targets)
		}
		limits := stepOf(&e.Explanation, decisions.StageLimits).Limits
		if len(limits) != 3 || limits[0].Limit != "rpm" || limits[0].Used != 0 || limits[1].WouldUse == 0 {
			t.Errorf("the limits are %+v", limits)
		}
		if q := stepOf(&e.Explanation, decisions.StageQueue).Queue; q.Would != decisions.QueuePasses || q.Class != "batch" {
			t.Errorf("the queue is %+v", q)
		}
		if w := stepOf(&e.Explanation, decisions.StageWorker).Worker; w.Choice == nil || w.Choice.Seen != 1 ||
			w.Learned == nil || e.Worker != "m0" {
			t.Errorf("the worker is %+v", w)
		}
	})
}

// TestExplainReportsThatARequestWouldWait: it names the workers that are full.
func TestExplainReportsThatARequestWouldWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newExplainRig(t)
		defer r.occupyWorker("large")()
		e := r.explain(http.StatusOK, order{"request": hiRequest("large")})
		q, w := stepOf(&e.Explanation, decisions.StageQueue).Queue, stepOf(&e.Explanation, decisions.StageWorker).Worker
		if e.Outcome != decisions.WouldQueue || q.Would != decisions.QueueHolds || q.Why == "" ||
			!strings.Contains(e.Summary, "wait") {
			t.Errorf("explained as %+v", e.Explanation)
		}
		if w.Choice == nil && (len(w.Others) != 1 || w.Others[0].Why != "full") {
			t.Errorf("the worker is %+v", w)
		}
	})
}

// TestExplainComparesADraftWithTheConfigurationInForce for weights, policies, tiers, workers and
// limits. The configuration in force does not change.
func TestExplainComparesADraftWithTheConfigurationInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newExplainRig(t)
		defer r.occupyWorker("large")()
		in := r.control.Snapshot()
		for _, c := range []struct {
			name, draft string
			request     order
			changed     []string
			check       func(e *admin.RouteExplanation) bool
		}{
			{"a worker without weight", `tiers: [ { name: small, workers: [ { name: w0, weight: 0 } ] } ]`, hiRequest("small"),
				[]string{"worker"},
				func(e *admin.RouteExplanation) bool { return e.Worker == "w0" && e.Draft.Worker == "w1" }},
			{"another policy", `tiers: [ { name: small, policy: { name: least_load } } ]`, hiRequest("small"), nil,
				func(e *admin.RouteExplanation) bool {
					return e.Policy == "round_robin" && e.Draft.Policy == "least_load"
				}},
			{"another threshold", `classifier: { prompt_tokens: { medium: 1, large: 9000 } }`,
				order{"model": "auto", "messages": []order{{"role": "user", "content": "a few words here, some"}}},
				[]string{"tier", "worker"},
				func(e *admin.RouteExplanation) bool {
					return e.Tier == "small" && e.Draft.Tier == "medium" && e.Draft.Worker == "m0"
				}},
			{"a new worker", `tiers: [ { name: large, workers: [ { name: l1, url: "http://127.0.0.1:12" } ] } ]`,
				hiRequest("large"),
				[]string{"outcome", "worker"},
				func(e *admin.RouteExplanation) bool {
					return e.Outcome == decisions.WouldQueue && e.Draft.Worker == "l1"
				}},
			{"no queue", `tiers: [ { name: large, queue: { max_depth: 0 } } ]`, hiRequest("large"), []string{"outcome", "worker"},
				func(e *admin.RouteExplanation) bool {
					return e.Outcome == decisions.WouldQueue && e.Draft.Outcome == decisions.WouldReject &&
						e.Draft.Code == "overloaded"
				}},
			{"a new pool",
				`pools: [ { name: extra, model: x, serves: [chat], workers: [ { name: x0, url: "http://127.0.0.1:13" } ] } ]`,
				hiRequest("x"), []string{"outcome", "tier", "worker"},
				func(e *admin.RouteExplanation) bool { return e.Status == 404 && e.Draft.Worker == "x0" }},
			{"a tenant's rights", `auth: { keys: [ { name: spent, tiers: [medium] } ] }`, hiRequest("small"), nil,
				func(e *admin.RouteExplanation) bool {
					return e.Outcome == decisions.WouldRoute && e.Draft.Outcome == decisions.WouldRoute
				}},
		} {
			t.Logf("case %v", c.name)
			e := r.explain(http.StatusOK, order{"request": c.request, "draft": r.edited(c.draft)})
			if e.Draft == nil || len(e.Changes) == 0 {
				t.Fatalf("the draft is not explained: %+v", e)
			}
			if c.changed != nil && !slices.Equal(e.Changed, c.changed) || !c.check(&e) {
				t.Errorf("changed is %v; in force %s %s %s, under the draft %s %s %s: %+v", e.Changed, e.Outcome, e.Tier, e.Worker,
					e.Draft.Outcome, e.Draft.Tier, e.Draft.Worker, e.Draft.Steps)
			}
		}
		if r.control.Snapshot() != in || len(in.Pools) != 4 {
			t.Error("a draft was put in force")
		}
	})
}

// TestInvalidExplainRequestsAreRejected: the error names the field. Credentials, bodies above the limit
// and invalid drafts are rejected.
func TestInvalidExplainRequestsAreRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newExplainRig(t)
		for _, c := range []struct {
			name   string
			order  order
			status int
			detail string
		}{
			{"neither request nor decision", order{}, 422, "request or decision"},
			{"both request and decision", order{"request": hiRequest("small"), "decision": "x"}, 422, "request or decision"},
			{"an unknown decision", order{"decision": "unknown"}, 404, "decisions.keep"},
			{"a decision with a tenant", order{"decision": "x", "tenant": "acme"}, 422, "its own tenant"},
			{"an unknown tenant", order{"request": hiRequest("small"), "tenant": "unknown"}, 422, "no such tenant"},
			{"an unknown key", order{"request": hiRequest("small"), "key_id": "unknown"}, 422, "no such key"},
			{"a credential", order{"request": hiRequest("small"), "headers": order{"authorization": "Bearer tw-x"}}, 422,
				"credential"},
			{"another credential", order{"request": hiRequest("small"), "headers": order{"X-API-Key": "tw-x"}}, 422,
				"credential"},
			{"no path", order{"request": hiRequest("small"), "path": "v1"}, 422, "path"},
			{"an unknown class", order{"request": hiRequest("small"), "class": "urgent"}, 422, "class"},
			{"a draft with errors", order{"request": hiRequest("small"),
				"draft": "tiers: [ { name: small, polcy: x } ]\nlisten: 5x"},
				422, "polcy"},
			{"a draft with a variable", order{"request": hiRequest("small"), "draft": "listen: ${HOME}"}, 422, "draft"},
			{"a body above the limit",
				order{"request": order{"model": "small",
					"messages": []order{{"role": "user", "content": strings.Repeat("x", 1<<20)}}}}, 413, "1048576"},
		} {
			t.Logf("case %v", c.name)
			if got := r.explain(c.status, c.order); !strings.Contains(got.Error, c.detail) ||
				strings.Contains(got.Error, "tw-x") {
				t.Errorf("the answer is %s", got.Error)
			}
		}
		if got := r.callAdmin("eyes", http.MethodPost, "/admin/route/explain",
			`{"request":{"model":"small","messages":[{"role":"user","content":"Hi"}]}}`); got.status != http.StatusOK {
			t.Errorf("a viewer gets %d: %s", got.status, got.body)
		}
	})
}
