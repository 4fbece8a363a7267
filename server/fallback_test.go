package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/config"
	"tierway/decisions"
	"tierway/engines"
	"tierway/engines/chaos"
	"tierway/replay"
	"tierway/routing"
	"tierway/server/control"
	"tierway/tiers"
)

// listedYAML has two tiers of one worker with one slot each, and a pool, with lists of targets. Its verbs
// are the settings of the tenant and of all queues, and the URLs of the three workers.
const listedYAML = `
store: { sql: "sqlite://:memory:" }
auth: { keys: [ { name: acme, sha256: ` + digestOfKey + `%s } ] }
health: { path: "off" }
queue: { heartbeat_after: 40ms%s }
retry: { attempts: 2, budget: 1 }
tiers:
  - name: small
    model: fake-7b
    context: 1000
    price: { input: 1, output: 2 }
    fallback: [large]
    workers: [ { name: s0, url: %q, max_inflight: 1 } ]
  - name: large
    model: fake-7b-l
    price: { input: 10, output: 20 }
    fallback: [small, other]
    workers: [ { name: l0, url: %q, max_inflight: 1 } ]
pools:
  - { name: other, models: [o], serves: [chat], price: { input: 100, output: 200 }, workers: [ { name: o0, url: %q } ] }
models: { auto: large, up: [small, large], best: [large, small, other], one: [large, small], pooled: [other, small] }
`

// listedRig serves listedYAML. All its requests and workers must be at zero in the end.
type listedRig struct {
	*rig
	small, large, other *blockingEngine
}

// wrap puts a handler before the engine of the large tier, unless it is nil.
func newListedRig(t *testing.T, tenant, queue string, wrap func(http.Handler) http.Handler) *listedRig {
	t.Helper()
	engine := func() *blockingEngine { return newBlockingEngine(engines.Config{AnyModel: true}) }
	r := &listedRig{small: engine(), large: engine(), other: engine()}
	large := http.Handler(r.large)
	if wrap != nil {
		large = wrap(large)
	}
	r.rig = newRig(t, fmt.Sprintf(listedYAML, tenant, queue, startServer(t, r.small), startServer(t, large),
		startServer(t, r.other))+"# %s")
	t.Cleanup(func() {
		for _, e := range []*blockingEngine{r.small, r.large, r.other} {
			e.release()
		}
		r.until("all requests have ended", func() bool { return r.Inflight() == 0 })
		for _, p := range r.control.Snapshot().Pools {
			if n := p.WaitQueue.Waiting(); n != 0 {
				t.Errorf("%d requests are still queued at %s", n, p.Name)
			}
		}
	})
	return r
}

// occupy occupies the slot of a worker by a request for its model.
func (r *listedRig) occupy(worker, model string) {
	r.t.Helper()
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hold"}],"max_tokens":4}`, model)
	go func() { r.postKey(body) }()
	r.until(worker+" is occupied", func() bool {
		for _, g := range r.control.Pools.Gauges() {
			if g.Worker == worker {
				return g.Inflight == 1
			}
		}
		return false
	})
}

// postKey sends a chat with the tenant's key.
func (r *listedRig) postKey(body string, headers ...string) httpAnswer {
	return r.post("/v1/chat/completions", body, append([]string{"Authorization", "Bearer key"}, headers...)...)
}

// check fails unless an answer comes from a worker, with that X-Tier-Reason.
func (r *listedRig) check(name string, got httpAnswer, tier, worker, reason string) {
	r.t.Helper()
	h := got.header
	if got.status != http.StatusOK || h.Get("X-Model-Tier") != tier || h.Get("X-Routed-To") != worker ||
		h.Get("X-Tier-Reason") != reason {
		r.t.Errorf("%s: %d from %s of %s by %q, want %s of %s by %q: %s", name, got.status, h.Get("X-Routed-To"),
			h.Get("X-Model-Tier"), h.Get("X-Tier-Reason"), worker, tier, reason, got.body)
	}
}

// record returns the record of the n-th request to end.
func (r *listedRig) record(n int) *decisions.Decision {
	r.t.Helper()
	r.until("the request is recorded", func() bool { return len(r.recorded().Last(0)) >= n })
	all := r.recorded().Last(0)
	return all[len(all)-1]
}

var streamOrWhole = map[string]string{"whole": "", "stream": `,"stream":true`}

// TestRequestFallsBackFromATargetWithoutAWorker, explained in the same way. Both forms of an answer.
func TestRequestFallsBackFromATargetWithoutAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newListedRig(t, "", "", nil)
		r.setDown("large", "l0")
		const why = "large has no healthy worker"
		for name, more := range streamOrWhole {
			for model, want := range map[string][3]string{
				"best": {"small", "s0", "fallback:small; " + why + "; alias selected large"},
				"auto": {"small", "s0", "fallback:small; " + why + "; alias selected large"}, // by the tier's fallback
			} {
				body := chatBody(model, "Hi", more)
				e := r.explained("/v1/chat/completions", body, "Authorization", "Bearer key")
				if e.Tier != want[0] || e.Rule+"; "+e.Note != want[2] {
					t.Errorf("%s %s is explained as %s by %s (%s)", name, model, e.Tier, e.Rule, e.Note)
				}
				r.check(name+" "+model, r.postKey(body), want[0], want[1], want[2])
			}
		}
		body := chatBody("best", strings.Repeat("word ", 3000), "")
		r.check("and too long for the next", r.postKey(body), "other", "o0",
			"fallback:other; "+why+"; small has too little context; alias selected large")
		if d := r.record(5); d.Tier != "other" || d.Model != "o" || len(d.Passed) != 2 ||
			d.Passed[1] != (tiers.Move{Tier: "small",
				Rule: "fallback", By: "fallback", Why: tiers.WhyContext}) {
			t.Errorf("it is recorded as %+v", d)
		}
		if got := r.postKey(chatBody("fake-7b-l", "Hi", "")); got.status != http.StatusServiceUnavailable {
			t.Errorf("a request for the engine's model gets %d: %s", got.status, got.body)
		}
	})
}

// TestRequestDoesNotWaitForABackoff if another target can take it at once.
func TestRequestDoesNotWaitForABackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newListedRig(t, "", "", nil)
		large := r.control.Snapshot().ByName["large"].Routing
		lease, err := large.Acquire(&routing.Request{Now: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		large.SetBackoff(lease.Worker(), time.Now().Add(time.Minute))
		lease.Release(routing.Result{Err: routing.ErrExcluded})
		r.check("in backoff", r.postKey(chatBody("best", "Hi", "")), "small", "s0",
			"fallback:small; large has only workers in backoff; alias selected large")
		got := r.post("/v1/completions", `{"model":"pooled","prompt":"Hi"}`, "Authorization", "Bearer key")
		r.check("another endpoint", got, "small", "s0",
			"fallback:small; other does not serve the endpoint; alias selected other")
	})
}

// setDown marks a worker as down.
func (r *listedRig) setDown(tier, worker string) {
	m := r.control.Snapshot().ByName[tier].Members[worker]
	r.control.Snapshot().ByName[tier].Routing.Observe(m.Name, m, routing.Status{})
}

// TestRequestFallsBackFromAFullQueue, at once or after its wait, and not before.
func TestRequestFallsBackFromAFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			queue, why string
			waits      bool
		}{
			"depth": {", max_depth: 0", "has a full queue", false},
			"wait":  {", max_wait: { interactive: 60ms }", "has too long a queue", true},
		} {
			for form, more := range streamOrWhole {
				r := newListedRig(t, "", c.queue, nil)
				r.occupy("l0", "fake-7b-l")
				got := r.postKey(chatBody("best", "Hi", more))
				reason := "fallback:small; large " + c.why + "; alias selected large"
				if form == "stream" && c.waits { // heartbeats have opened it, when its tier was unknown
					if h := got.header; got.status != http.StatusOK || h.Get("X-Model-Tier") != "" ||
						!strings.Contains(got.body, ": keep-alive") || !strings.Contains(got.body, "[DONE]") {
						t.Errorf("%s, opened: %d %v %s", name, got.status, h, got.body)
					}
				} else {
					r.check(name+", "+form, got, "small", "s0", reason)
					if waited := got.header.Get("X-Queue-Ms") != "0"; waited != c.waits {
						t.Errorf("%s: it waited for %s ms", name, got.header.Get("X-Queue-Ms"))
					}
				}
				// The request that occupies the worker is booked before it arrives there.
				waitUntil(t, "the request on the full worker", func() bool { return len(r.large.Requests()) > 0 })
				if n := len(r.large.Requests()); n != 1 {
					t.Errorf("%s: the full worker got %d requests", name, n)
				}
				d := r.record(1)
				if d.Tier != "small" || d.Rule != "fallback:small" || d.Shed != "" || d.Refused != nil || len(d.Attempts) != 1 ||
					len(d.Passed) != 1 || d.Passed[0].Why != c.why {
					t.Errorf("%s, %s: it is recorded as %+v", name, form, d)
				}
			}
		}
	})
}

// TestWaitIsNotRepeatedInTheNextQueue: a request whose first wait has ended gets no second one.
func TestWaitIsNotRepeatedInTheNextQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newListedRig(t, "", ", max_wait: { interactive: 200ms }", nil)
		r.occupy("l0", "fake-7b-l")
		r.occupy("s0", "fake-7b")
		began := time.Now()
		got := r.postKey(chatBody("one", "Hi", ""))
		if took := time.Since(began); got.status != http.StatusServiceUnavailable || took > 350*time.Millisecond {
			t.Errorf("%d after %s: %s", got.status, took, got.body)
		}
	})
}

// TestErrorIsThatOfTheFirstTarget if no target can serve the request. It costs nothing.
func TestErrorIsThatOfTheFirstTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newListedRig(t, ", limits: { rpm: 60, burst: 10 }", ", max_depth: 0", nil)
		r.occupy("l0", "fake-7b-l")
		r.occupy("s0", "fake-7b")
		const want = "All workers of `large` are full"
		body := chatBody("one", "Hi", "")
		if e := r.explained("/v1/chat/completions", body, "Authorization", "Bearer key"); e.Tier != "large" ||
			e.Code != "overloaded" || !strings.Contains(e.Error, want) || !strings.HasSuffix(e.Note, "small has a full queue") {
			t.Errorf("explained as %+v", e)
		}
		for range 2 {
			if got := r.postKey(body); got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, want) ||
				got.header.Get("X-Ratelimit-Limit-Requests") != "" {
				t.Errorf("%d %v %s", got.status, got.header, got.body)
			}
		}
		d := r.record(2)
		if d.Tier != "large" || d.Rule != "alias" || d.Shed != "depth" || d.Code != "overloaded" || len(d.Passed) != 2 {
			t.Errorf("it is recorded as %+v", d)
		}
		r.setDown("large", "l0") // the first target that it reaches is small
		if got := r.postKey(body); !strings.Contains(got.body, "All workers of `small` are full") {
			t.Errorf("with large down: %d %s", got.status, got.body)
		}
		r.setDown("small", "s0")
		if got := r.postKey(body); got.status != http.StatusServiceUnavailable ||
			!strings.Contains(got.body, "No worker of `large` is up") {
			t.Errorf("with both down: %d %s", got.status, got.body)
		}
	})
}

// TestRequestFallsBackAfterItsAttemptsFailed, unless the client is the cause, the answer has begun, or the
// request must not run twice.
func TestRequestFallsBackAfterItsAttemptsFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := func(f chaos.Fault) func(http.Handler) http.Handler {
			return func(h http.Handler) http.Handler {
				c := chaos.New(h)
				if err := c.Set(f); err != nil {
					t.Fatal(err)
				}
				return c
			}
		}
		gone := func(http.Handler) http.Handler {
			return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		}
		for name, c := range map[string]struct {
			wrap   func(http.Handler) http.Handler
			path   string
			more   string
			status int // 0: another target answers
		}{
			"500":                   {wrap: fails(chaos.Fault{Kind: chaos.Status, Status: 500})},
			"500, a stream":         {wrap: fails(chaos.Fault{Kind: chaos.Status, Status: 500}), more: `,"stream":true`},
			"a cut":                 {wrap: gone},
			"429":                   {wrap: fails(chaos.Fault{Kind: chaos.Status, Status: 429})},
			"an error in the first": {wrap: fails(chaos.Fault{Kind: chaos.ErrorFirst}), more: `,"stream":true`, status: 400},
			"400":                   {wrap: fails(chaos.Fault{Kind: chaos.Status, Status: 400}), status: 400},
			"404":                   {wrap: fails(chaos.Fault{Kind: chaos.Status, Status: 404}), status: 404},
			"after content":         {wrap: fails(chaos.Fault{Kind: chaos.Close, After: 2}), more: `,"stream":true`, status: 200},
			"stored":                {wrap: fails(chaos.Fault{Kind: chaos.Status, Status: 500}), path: "/v1/responses", status: 502},
		} {
			r := newListedRig(t, ", limits: { rpm: 60, burst: 10 }", "", c.wrap)
			body, path := chatBody("best", "Hi", c.more), "/v1/chat/completions"
			if c.path != "" {
				path, body = c.path, `{"model":"best","input":"Hi"}`
			}
			got := r.post(path, body, "Authorization", "Bearer key")
			used := len(r.small.Requests()) + len(r.other.Requests())
			switch {
			case c.status == 0:
				r.check(name, got, "small", "s0", "fallback:small; large failed; alias selected large")
				if n := remaining(t, got); n != 9 {
					t.Errorf("%s: %d requests remain of 10", name, n)
				}
				d := r.record(1)
				if first := d.Attempts[0]; first.Tier != "large" || d.Attempts[len(d.Attempts)-1].Tier != "" {
					t.Errorf("%s: its attempts are %+v", name, d.Attempts)
				}
				row := r.row("ok") // at the price of small
				if want := row.Prompt + 2*row.Output; row.Requests != 1 || float64(row.Money)/1e3 != float64(want) {
					t.Errorf("%s: it costs %v for %d and %d tokens", name, row.Money, row.Prompt, row.Output)
				}
			case got.status != c.status || used > 0:
				t.Errorf("%s: %d, and %d requests to other targets: %s", name, got.status, used, got.body)
			case name == "after content" && !strings.Contains(got.body, `"error"`):
				t.Errorf("%s: no error ends the stream: %s", name, got.body)
			}
		}
	})
}

// TestDegradedRequestDoesNotFallBack: its budget allows the cheapest tier only.
func TestDegradedRequestDoesNotFallBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newListedRig(t, ", degrade: true, limits: { day_money: 0.000000001 }", ", max_depth: 0", nil)
		r.postKey(chatBody("up", "Hi", "")) // spends the budget
		r.record(1)
		r.check("degraded", r.postKey(chatBody("best", "Hi", "")), "small", "s0",
			"budget; the day_money budget is spent; alias selected large")
		lease, err := r.control.Snapshot().ByName["small"].Routing.Acquire(&routing.Request{Now: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Release(routing.Result{Err: routing.ErrExcluded})
		if got := r.postKey(chatBody("up", "Hi", "")); got.status != http.StatusServiceUnavailable {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
}

// TestForbiddenTargetIsPassedOver, also when the request falls back from a queue.
func TestForbiddenTargetIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newListedRig(t, ", tiers: [large, other]", ", max_depth: 0", nil)
		r.occupy("l0", "large")
		r.check("after a full queue", r.postKey(chatBody("best", "Hi", "")), "other", "o0",
			"fallback:other; large has a full queue; small is not allowed; alias selected large")
		r = newListedRig(t, ", tiers: [small]", "", nil)
		r.check("the first", r.postKey(chatBody("best", "Hi", "")), "small", "s0",
			"fallback:small; large is not allowed; alias selected large")
	})
}

// TestFollowUpOfAStoredResponseDoesNotFallBack: only its engine has the response.
func TestFollowUpOfAStoredResponseDoesNotFallBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newListedRig(t, "", ", max_depth: 0", nil)
		got := r.post("/v1/responses", `{"model":"best","input":"Hi"}`, "Authorization", "Bearer key")
		_, after, _ := strings.Cut(got.body, `"id":"`)
		id, _, _ := strings.Cut(after, `"`)
		if got.status != http.StatusOK || got.header.Get("X-Model-Tier") != "large" || !strings.HasPrefix(id, "resp_") {
			t.Fatalf("%d %v %s", got.status, got.header, got.body)
		}
		r.record(1)
		r.occupy("l0", "fake-7b-l")
		got = r.post("/v1/responses", `{"model":"best","input":"And then?","previous_response_id":"`+id+`"}`, "Authorization",
			"Bearer key")
		if got.status != http.StatusServiceUnavailable || len(r.small.Requests()) > 0 {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
}

// TestClientThatLeavesADeepQueueLeavesNothing in the queues of its targets.
func TestClientThatLeavesADeepQueueLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newListedRig(t, "", "", nil)
		r.occupy("l0", "fake-7b-l")
		ctx, leave := context.WithCancel(t.Context())
		got := r.chat(ctx, "Hi")
		r.until("it waits", func() bool { return r.control.Snapshot().ByName["large"].WaitQueue.Waiting() == 1 })
		leave()
		<-got
		r.large.release()
		if d := r.record(2); len(r.small.Requests()) > 0 {
			t.Errorf("it was sent to small: %+v", d)
		}
	})
}

// TestPreferredTargetGetsItsRequestsAgain once it has a worker.
func TestPreferredTargetGetsItsRequestsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newListedRig(t, "", "", nil)
		r.setDown("large", "l0")
		body := chatBody("best", "Hi", "")
		r.postKey(body)
		m := r.control.Snapshot().ByName["large"].Members["l0"]
		r.control.Snapshot().ByName["large"].Routing.Observe(m.Name, m, routing.Status{Up: true})
		r.check("afterwards", r.postKey(body), "large", "l0", "alias")
	})
}

// TestReplayRepeatsAFallback: the record has the targets that could not take the request.
func TestReplayRepeatsAFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newListedRig(t, "", ", max_depth: 0", nil)
		r.occupy("l0", "fake-7b-l")
		r.check("recorded", r.postKey(chatBody("best", "Hi", "")), "small", "s0",
			"fallback:small; large has a full queue; alias selected large")
		d := r.record(1)
		setup := func(text string) replay.Setup {
			file, err := config.Parse("draft.yaml", []byte(text), func(string) (string, bool) { return "", false })
			if err != nil {
				t.Fatal(err)
			}
			s, err := control.ReplaySetup(file)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		draft := setup(strings.Replace(r.text, "best: [large, small, other]", "best: [large, other, small]", 1))
		again, err := replay.New(replay.Config{Now: setup(r.text), Draft: &draft})
		if err != nil {
			t.Fatal(err)
		}
		again.Add(d)
		got := again.Report()
		if got.TiersReproduced != (replay.Part{N: 1, Of: 1}) || len(got.ChangedTier) != 1 ||
			got.ChangedTier[0].From != "small" ||
			got.ChangedTier[0].To != "other" {
			t.Errorf("replayed as %+v", got)
		}
	})
}
