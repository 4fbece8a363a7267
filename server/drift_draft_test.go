package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/config"
	"tierway/decisions"
	"tierway/fixedseed"
	"tierway/routing"
	"tierway/server/admin"
	"tierway/server/control"
	"tierway/store"
)

// draftRig is a driftRig that explains requests under a draft and sends them after a reload of that
// draft.
type draftRig struct {
	*driftRig
	*driftWorld
	leases map[string]*loads // by tier or pool

	drained string // the tier with draining workers
}

// newDraftRig makes a rig that has served some requests and has some slots occupied.
func newDraftRig(t *testing.T, seed uint64) *draftRig {
	t.Helper()
	r := newIdleDraftRig(t, seed)
	for range 30 { // so that later turns of chats occur
		r.sent(r.drawRequest())
	}
	for range 30 { // after the requests: with these slots occupied, one of them could wait for minutes
		r.shakeAll()
	}
	return r
}

// newIdleDraftRig makes a rig without requests.
func newIdleDraftRig(t *testing.T, seed uint64) *draftRig {
	t.Helper()
	r := &draftRig{driftRig: newDriftRig(t, "", quick), driftWorld: newDriftWorld(seed), leases: map[string]*loads{}}
	t.Cleanup(r.releaseAll)
	return r
}

// shakeAll occupies or releases slots of every pool in force.
func (r *draftRig) shakeAll() {
	for _, p := range r.control.Snapshot().Pools {
		if r.leases[p.Name] == nil {
			r.leases[p.Name] = &loads{}
		}
		r.leases[p.Name].shake(r.driftWorld, p.Routing)
		for _, name := range slices.Sorted(maps.Keys(p.Members)) {
			m := p.Members[name]
			at := time.Now().Add(-time.Minute) // so that slow start is over
			switch r.IntN(8) {
			case 0:
				p.Routing.Eject(name, m, routing.Ejection{At: at, Until: at.Add(time.Hour)})
			case 1, 2:
				p.Routing.Restore(name, m, at)
			}
		}
	}
}

// releaseAll releases all slots.
func (r *draftRig) releaseAll() {
	for _, l := range r.leases {
		l.releaseAll()
	}
}

// reloads puts a configuration in force.
func (r *draftRig) reloads(t *testing.T, text string) {
	t.Helper()
	f, err := config.Parse("test.yaml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	r.source = func() (*config.File, error) { return f, nil }
	if _, err := r.Reload(t.Context(), control.ReloadRequest{}); err != nil {
		t.Fatal(err)
	}
}

// drains drains the tier's workers that driftConfig defines, and ends the previous drain.
func (r *draftRig) drains(t *testing.T, tier string) {
	t.Helper()
	for i := range 4 {
		for of, drain := range map[string]bool{r.drained: false, tier: true} {
			if of == "" || r.drained == tier {
				continue
			}
			if err := r.override(t.Context(), store.Actor{},
				store.Override{Worker: fmt.Sprint(of, "-", i), Drain: drain}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.drained = tier
}

// servesAsExplained explains a random request under a draft, reloads the draft and sends the request.
func (r *draftRig) servesAsExplained(t *testing.T, draft string) {
	t.Helper()
	r.shakeAll()
	waitForRequests(t, r.driftRig)
	r.chance.Store(r.Uint64())
	w := r.drawRequest()
	e := r.explainUnder(draft, w)
	r.reloads(t, draft)
	defer func() {
		if t.Failed() {
			t.Logf("under\n%s", draft)
		}
	}()
	r.checkServed(t, w, e, func() {
		r.releaseAll()
		r.drains(t, "")
	})
}

// explainUnder returns the explanation of a request under a draft.
func (r *driftRig) explainUnder(draft string, w randomRequest) *decisions.Explanation {
	r.t.Helper()
	return decode[admin.RouteExplanation](r.t, r.ops(http.StatusOK, http.MethodPost, "/admin/route/explain",
		w.order(map[string]any{"draft": draft}))).Draft
}

// codeOf is the code of an error.
func codeOf(a httpAnswer) string {
	var body struct{ Error struct{ Code string } }
	_ = json.Unmarshal([]byte(a.body), &body) // other answers have no code
	return body.Error.Code
}

// TestRequestsGoAsExplainedUnderTheDraft: after a reload of the draft, a request goes where the
// explanation said.
func TestRequestsGoAsExplainedUnderTheDraft(t *testing.T) {
	for i, draft := range []string{
		`policy: { name: least_load }`,
		`tiers: [ { name: one, workers: [ { name: one-0, weight: 0 }, { name: one-1, weight: 9 } ] }, { name: two, policy: { name: chwbl } } ]`,
		`tiers: [ { name: five, policy: { name: weighted_round_robin } }, { name: four, policy: { name: least_load } } ]`,
		`classifier: { prompt_tokens: { two: 10, three: 20, four: 100 }, max_tokens: { two: 20, six: 300 } }`,
		`models: { "gpt-4*": six }`,
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newDraftRig(t, uint64(10*i))
				for range 3 {
					r.servesAsExplained(t, r.edited(draft))
					r.servesAsExplained(t, r.text)
				}
			})
		})
	}
}

// TestRequestsGoAsExplainedUnderRandomDrafts: drafts have random tiers, workers, policies, queues,
// contexts, names and thresholds. Requests are explained under each of two drafts while the other one
// is in force.
func TestRequestsGoAsExplainedUnderRandomDrafts(t *testing.T) {
	for _, seed := range fixedseed.Seeds(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newDraftRig(t, seed)
				for range 4 {
					r.drains(t, r.pick(append([]string{"one", "six", "vectors"}, driftTiers...)...))
					drafts := [...]string{r.draft(), r.draft()}
					for i := range 8 {
						r.servesAsExplained(t, drafts[i%2])
					}
				}
			})
		})
	}
}

// TestEveryOutcomeUnderADraftIsAsExplained: the configuration in force routes the request to a worker of
// another tier, or rejects it.
func TestEveryOutcomeUnderADraftIsAsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newIdleDraftRig(t, 1)
		chat := func(model, text string) randomRequest {
			return randomRequest{tenant: "acme", path: "/v1/chat/completions", body: chatBody(model, text, "")}
		}
		for _, c := range []struct {
			what, draft   string
			request       randomRequest
			full, drained string // tiers
			outcome, code string
		}{
			{"another tier", `models: { "gpt-4*": six }`, chat("gpt-4o", "hi"), "three", "", decisions.WouldRoute, ""},
			{"full workers", `models: { "gpt-4*": four }`, chat("gpt-4o", "hi"), "four", "", decisions.WouldQueue, ""},
			{"no queue", `tiers: [ { name: four, queue: { max_depth: 0 } } ]`, chat("four", "hi"), "four", "",
				decisions.WouldReject, "overloaded"},
			{"no worker", `classifier: { unavailable: refuse }`, chat("four", "hi"), "", "four", decisions.WouldReject,
				"no_healthy_worker"},
			{"another model", `tiers: [ { name: six, model: other } ]`, chat("six-model", "hi"), "", "",
				decisions.WouldReject, "model_not_found"},
			{"a small context", `tiers: [ { name: one, context: 200 } ]`, chat("one-model", r.words(500)), "", "",
				decisions.WouldReject, "context_length_exceeded"},
			{"a pool without chats", `models: { "gpt-4*": vectors }`, chat("gpt-4o", "hi"), "", "",
				decisions.WouldReject, "endpoint_not_supported"},
		} {
			r.reloads(t, r.text)
			r.drains(t, c.drained)
			full := r.fill(c.full)
			r.chance.Store(1)
			draft := r.edited(c.draft)
			e := r.explainUnder(draft, c.request)
			if e.Outcome != c.outcome || e.Code != c.code {
				t.Errorf("%s: %s, code %s: %+v", c.what, e.Outcome, e.Code, e.Steps)
			}
			r.reloads(t, draft)
			r.checkServed(t, c.request, e, full.releaseAll)
			full.releaseAll()
		}
	})
}

// draft draws a configuration with the tenants and engines of driftConfig.
func (r *draftRig) draft() string {
	var b strings.Builder
	b.WriteString(driftHead())
	names := driftTiers
	if r.IntN(2) == 0 {
		names = append(slices.Clone(driftTiers), "seven")
	}
	roamer := r.IntN(len(names))
	b.WriteString("tiers:\n")
	for i, name := range names {
		context := ""
		if r.IntN(4) > 0 {
			context = fmt.Sprintf("context: %d, ", []int{4000 << i, 400 + r.IntN(8000)}[r.IntN(2)])
		}
		version := ""
		if name != "six" && r.IntN(4) == 0 { // a name of models stands for six's model
			version = "-2"
		}
		fmt.Fprintf(&b, "  - { name: %s, model: %s-model%s, %spolicy: %s, queue: %s, workers: [ %s ] }\n",
			name, name, version, context, r.policy(), r.queue(), strings.Join(r.workers(name, i, i == roamer), ", "))
	}
	fmt.Fprintf(&b,
		"pools:\n  - { name: vectors, model: bge, serves: [embeddings], policy: %s, queue: %s, workers: [ %s ] }\n",
		r.policy(), r.queue(), strings.Join(r.workers("vectors", len(driftTiers), false), ", "))
	usual := r.IntN(3)
	thresholds := func(most int) string {
		var list []string
		tokens := 0
		for _, name := range names[usual+1:] {
			if r.IntN(3) > 0 {
				tokens += 1 + r.IntN(most)
				list = append(list, fmt.Sprintf("%s: %d", name, tokens))
			}
		}
		return "{ " + strings.Join(list, ", ") + " }"
	}
	fmt.Fprintf(&b,
		"classifier: { preset: %s, mode: %s, default: %s, unavailable: %s, prompt_tokens: %s, max_tokens: %s }\n",
		r.pick("groups", "none", "none", "none"), r.pick("max", "first_match"), names[usual],
		r.pick("up", "down", "refuse", "refuse"), thresholds(800), thresholds(1000))
	b.WriteString("models:\n")
	for _, name := range []string{"gpt-4*", "gpt-5", "best", "text-*", "unknown-*", "auto"} {
		if r.IntN(4) > 0 {
			fmt.Fprintf(&b, "  %q: %s\n", name, r.pick(append([]string{"classify", "vectors", "six-model"}, names...)...))
		}
	}
	return b.String()
}

// policy draws a policy, some with options.
func (r *draftRig) policy() string {
	return r.pick(append([]string{"{ name: chwbl, epsilon: 0.1, slack: 0.5 }", "{ name: chwbl, no_key: model_hash, " +
		"depth: fixed, virtual_nodes: 20 }"}, driftPolicies...)...)
}

// queue draws a queue section.
func (r *draftRig) queue() string {
	wait := func() string { return r.pick("20s", "20s", "20s", "0s") }
	return fmt.Sprintf("{ max_depth: %s, max_wait: { interactive: %s, background: %s, batch: %s }, engine_wait: %s }",
		r.pick("1000", "1000", "1000", "0"), wait(), wait(), wait(), r.pick("0s", "0s", "20s"))
}

// workers draws the workers of a tier or pool, at most six of its own. Workers that driftConfig does
// not have use engines of the next tier. Some workers move to another engine.
func (r *draftRig) workers(of string, at int, roamer bool) (list []string) {
	worker := func(name string, engine int) {
		if r.IntN(8) == 0 {
			engine += 8
		}
		weight := r.IntN(4)
		if len(list) == 0 {
			weight++
		}
		tokens := ""
		if r.IntN(4) == 0 {
			tokens = fmt.Sprintf(", max_tokens_inflight: %d", 1000+r.IntN(20000))
		}
		list = append(list, fmt.Sprintf("{ name: %s, url: %q, weight: %d, priority: %d, max_inflight: %d%s }", name,
			r.engines[engine%len(r.engines)], weight, r.IntN(2), r.IntN(6), tokens))
	}
	for i := range 6 {
		if i == 0 || i < 4 && r.IntN(4) > 0 || r.IntN(6) == 0 {
			worker(fmt.Sprint(of, "-", i), 4*at+i)
		}
	}
	if roamer {
		worker("roamer", 4*at+6)
	}
	return list
}
