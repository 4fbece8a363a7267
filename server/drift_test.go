package server

import (
	"fmt"
	"maps"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"tierway/decisions"
	"tierway/fixedseed"
	"tierway/routing"
)

// TestRequestsGoAsExplained: random requests are explained and then sent, under every policy, over changing
// loads. Each request goes where its explanation says, for the same reasons, or is rejected as it says.
func TestRequestsGoAsExplained(t *testing.T) {
	for _, seed := range fixedseed.Seeds(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const requests = 100 // that go to a worker
				r, d := newDriftRig(t, "", quick), newDriftWorld(seed)
				leases := map[string]*loads{}
				for _, p := range r.control.Snapshot().Pools {
					leases[p.Name] = &loads{}
					defer leases[p.Name].releaseAll()
				}
				saw := map[string]int{}
				for saw[decisions.WouldRoute] < requests {
					for _, p := range r.control.Snapshot().Pools {
						leases[p.Name].shake(d, p.Routing)
					}
					r.chance.Store(d.Uint64())
					w := d.drawRequest()
					e := r.explainRequest(w)
					r.checkServed(t, w, &e.Explanation, func() { leases[e.Tier].releaseAll() })
					saw[e.Outcome]++
				}
				t.Log(saw)
			})
		})
	}
}

// kindOfRequest is a request for a driftRig and what its explanation must say.
type kindOfRequest struct {
	what, outcome, tier string
	rule, code          string // of a request that goes to a worker, and of one that is rejected
	request             randomRequest
	full                string // the tier whose workers are full
}

// kindsOfRequests has a request for each outcome, each rule and each policy of a driftRig.
func kindsOfRequests() []kindOfRequest {
	d := newDriftWorld(1)
	chat := func(tenant, model, text, more string, header ...string) randomRequest {
		w := randomRequest{tenant: tenant, path: "/v1/chat/completions", body: chatBody(model, text, more),
			header: http.Header{}}
		for i := 0; i+1 < len(header); i += 2 {
			w.header.Set(header[i], header[i+1])
		}
		return w
	}
	embed := func(model string) randomRequest {
		return randomRequest{tenant: "acme", path: "/v1/embeddings", body: fmt.Sprintf(`{"model":%q,"input":"x"}`, model)}
	}
	all := []kindOfRequest{
		{"a model", decisions.WouldRoute, "six", "model", "", chat("acme", "six-model", "hi", ""), ""},
		{"an alias", decisions.WouldRoute, "three", "alias", "", chat("acme", "gpt-4o", "hi", ""), ""},
		{"nothing special", decisions.WouldRoute, "one", "default", "", chat("acme", "auto", "hi", ""), ""},
		{"a long prompt", decisions.WouldRoute, "two", "prompt_tokens", "", chat("acme", "auto", d.words(500), ""), ""},
		{"a long answer", decisions.WouldRoute, "two", "max_tokens", "", chat("acme", "auto", "hi", `,"max_tokens":400`), ""},
		{"code", decisions.WouldRoute, "six", "keyword:code", "",
			chat("acme", "auto", "Implement a function in Python that sorts a list", ""), ""},
		{"a target that does not fit", decisions.WouldRoute, "three", "fallback:three", "",
			chat("acme", "listed", d.words(6000), ""), ""},
		{"an embedding", decisions.WouldRoute, "vectors", "model", "", embed("bge"), ""},
		{"an alias of a pool", decisions.WouldRoute, "vectors", "alias", "", embed("text-embed"), ""},
		{"full workers", decisions.WouldQueue, "four", "header", "", chat("acme", "auto", "hi", "", "X-Model-Tier", "four"),
			"four"},
		{"an unknown model", decisions.WouldReject, "", "", "model_not_found", chat("acme", "nothing", "hi", ""), ""},
		{"a tier of others", decisions.WouldReject, "", "", "model_not_found", chat("beta", "six-model", "hi", ""), ""},
		{"an embedding by a chat model", decisions.WouldReject, "", "", "endpoint_not_supported", embed("one"), ""},
	}
	for _, tier := range driftTiers {
		all = append(all, kindOfRequest{"the header " + tier, decisions.WouldRoute, tier, "header", "",
			chat("gamma", "auto", "hi", "", "X-Model-Tier", tier), ""})
	}
	return all
}

// TestEveryKindOfRequestGoesAsExplained over idle workers, and over full ones.
func TestEveryKindOfRequestGoesAsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDriftRig(t, "", quick)
		policies := map[string]bool{}
		for _, c := range kindsOfRequests() {
			full := r.fill(c.full)
			r.chance.Store(1)
			e := r.explainRequest(c.request)
			if e.Outcome != c.outcome || e.Tier != c.tier && c.tier != "" || e.Rule != c.rule && c.rule != "" ||
				e.Code != c.code {
				t.Errorf("%s: %s to %s by %s, code %s: %+v", c.what, e.Outcome, e.Tier, e.Rule, e.Code, e.Steps)
			}
			policies[e.Policy] = true
			r.checkServed(t, c.request, &e.Explanation, full.releaseAll)
			full.releaseAll()
		}
		if delete(policies, ""); len(policies) != len(driftPolicies) {
			t.Errorf("the policies are %v", policies)
		}
	})
}

// fill occupies all slots of a tier, if there is one of that name.
func (r *driftRig) fill(tier string) *loads {
	l := &loads{}
	for tier != "" {
		lease, err := r.control.Snapshot().ByName[tier].Routing.Acquire(&routing.Request{Now: time.Now(), Stream: true})
		if err != nil {
			break
		}
		l.leases = append(l.leases, &lease)
	}
	return l
}

// checkServed sends a request. It fails unless the request goes where its explanation says, for the same
// reasons, waits until free has released a slot, or is rejected as the explanation says.
func (r *driftRig) checkServed(t *testing.T, w randomRequest, e *decisions.Explanation, free func()) {
	t.Helper()
	if e.Outcome == decisions.WouldQueue {
		r.checkWaits(t, w, e, free)
		return
	}
	got, status, want := r.sent(w), http.StatusOK, expectedHeaders(e)
	is := map[string]string{}
	if e.Outcome == decisions.WouldReject {
		status, want, is["code"] = e.Status, map[string]string{"code": e.Code, "X-Routed-To": ""}, codeOf(got)
	}
	for name := range want {
		if name != "code" {
			is[name] = got.header.Get(name)
		}
	}
	if got.status != status || !maps.Equal(is, want) {
		t.Fatalf("answered %d with %v, explained as %d with %v: %s\n%.300s", got.status, is, status, want, e.Summary, w.body)
	}
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
