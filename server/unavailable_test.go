package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tierway/engines"
	"tierway/routing"
	"tierway/store"
)

// steppedYAML has three tiers of one worker with one slot each. Its verbs are more settings of the tenant,
// of all queues and of the classifier, and the workers: all of small, and the URLs of the others.
const steppedYAML = `
store: { sql: "sqlite://:memory:" }
auth: { keys: [ { name: acme, sha256: ` + digestOfKey + `%s } ] }
health: { path: "off" }
retry: { attempts: 2, budget: 1 }
queue: { max_wait: { interactive: 120s }%s }
classifier: { preset: none%s }
tiers:
  - { name: small, model: fake-7b, price: { input: 1, output: 2 }, workers: [ %s ] }
  - { name: medium, model: m, context: 1000, price: { input: 10, output: 20 }, workers: [ { name: m0, url: %q, max_inflight: 1 } ] }
  - { name: large, model: l, price: { input: 100, output: 200 }, workers: [ { name: l0, url: %q, max_inflight: 1 } ] }
models: { mini: small }
`

// steppedRig serves steppedYAML. All its requests and workers must be at zero in the end.
type steppedRig struct {
	*listedRig
	medium *blockingEngine
	file   *editableFile
	engine string                      // URL of the engine of small
	yaml   func(workers string) string // the configuration with these workers of small
}

// newSteppedRig wraps the engine of the small tier by wrap, unless that is nil.
func newSteppedRig(t *testing.T, tenant, queue, classifier string,
	wrap func(*steppedRig, http.Handler) http.Handler) *steppedRig {
	t.Helper()
	engine := func() *blockingEngine { return newBlockingEngine(engines.Config{AnyModel: true}) }
	r := &steppedRig{listedRig: &listedRig{small: engine(), large: engine()}, medium: engine(), file: &editableFile{}}
	small := http.Handler(r.small)
	if wrap != nil {
		small = wrap(r, small)
	}
	r.engine = startServer(t, small)
	medium, large := startServer(t, r.medium), startServer(t, r.large)
	r.yaml = func(workers string) string {
		return fmt.Sprintf(steppedYAML, tenant, queue, classifier, workers, medium, large)
	}
	r.rig = newRig(t, r.yaml(r.smallWorker("s0", r.engine))+"# %s")
	r.source = r.file.read
	r.runControl()
	r.waitForChecks()
	t.Cleanup(func() {
		for _, e := range []*blockingEngine{r.small, r.medium, r.large} {
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

// smallWorker returns the entry of a worker of small with one slot.
func (r *steppedRig) smallWorker(name, url string) string {
	return fmt.Sprintf("{ name: %s, url: %q, max_inflight: 1 }", name, url)
}

// queued sends a chat with the tenant's key, and returns when it waits at small.
func (r *steppedRig) queued(body string, headers ...string) <-chan httpAnswer {
	r.t.Helper()
	q, got := r.control.Snapshot().ByName["small"].WaitQueue, make(chan httpAnswer, 1)
	before := q.Waiting()
	go func() { got <- r.postKey(body, headers...) }()
	r.until("the request waits", func() bool { return q.Waiting() == before+1 })
	return got
}

// setUp marks a worker as up or down.
func (r *steppedRig) setUp(tier, worker string, up bool) {
	p := r.control.Snapshot().ByName[tier]
	m := p.Members[worker]
	p.Routing.Observe(m.Name, m, routing.Status{Up: up})
}

// drain drains a worker as the admin API does.
func (r *steppedRig) drain(worker string) {
	r.t.Helper()
	drain := store.Override{Worker: worker, Drain: true}
	if err := r.override(context.Background(), store.Actor{Name: "ops"}, drain); err != nil {
		r.t.Fatal(err)
	}
}

// eject ejects the worker of small, as its breaker does if its server accepts no connection.
func (r *steppedRig) eject() {
	p, now := r.control.Snapshot().ByName["small"], time.Now()
	p.Routing.Eject("s0", p.Members["s0"], routing.Ejection{At: now, Until: now.Add(time.Hour), Unreachable: true})
}

// TestWaitingRequestsMoveWhenTheLastWorkerDrains, goes down, is ejected, or is removed by a reload: they get
// the tier of a request that arrives now. One that names the engine's own model stays.
func TestWaitingRequestsMoveWhenTheLastWorkerDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spare := startServer(t, fakeEngine())
		for name, lose := range map[string]func(r *steppedRig){
			"drained": func(r *steppedRig) { r.drain("s0") },
			"ejected": (*steppedRig).eject,
			"down":    func(r *steppedRig) { r.setUp("small", "s0", false) },
			"removed": func(r *steppedRig) { // the worker that remains is drained
				r.file.write(r.yaml(r.smallWorker("s1", spare)))
				r.reload()
			},
		} {
			t.Logf("case %v", name)
			r := newSteppedRig(t, ", limits: { rpm: 60, burst: 20 }", "", "", nil)
			if name == "removed" {
				r.file.write(r.yaml(listOf(r.smallWorker("s0", r.engine), r.smallWorker("s1", spare))))
				r.reload()
				r.drain("s1")
			}
			r.occupy("s0", "fake-7b")
			bodies := map[string]string{"default": chatBody("auto", "Hi", ""), "model": chatBody("small", "Hi", ""),
				"alias": chatBody("mini", "Hi", ""), "stream": chatBody("auto", "Hi", `,"stream":true`)}
			waiting := map[string]<-chan httpAnswer{}
			for rule, body := range bodies {
				waiting[rule] = r.queued(body)
			}
			waiting["header"] = r.queued(chatBody("large", "Hi", ""), "X-Model-Tier", "small")
			pinned := r.queued(chatBody("fake-7b", "Hi", ""))
			time.Sleep(10 * time.Millisecond) // the wait that the records show
			lose(r)
			for rule, answer := range waiting {
				by := rule
				if rule == "stream" {
					by = "default"
				}
				got := <-answer
				r.check(rule, got, "medium", "m0", "unavailable; "+by+" selected small")
				if got.header.Get("X-Queue-Ms") == "0" {
					t.Errorf("%s: its wait does not count", rule)
				}
			}
			if got := <-pinned; got.status != http.StatusServiceUnavailable ||
				!strings.Contains(got.body, "No worker of `small` is up") {
				t.Errorf("the engine's model: %d %s", got.status, got.body)
			}
			for _, d := range r.recorded().Last(0) {
				if d.Rule == "unavailable" && (d.Tier != "medium" || d.Shed != "" || len(d.Attempts) != 1 || d.QueueMs == 0) {
					t.Errorf("it is recorded as %+v", d)
				}
			}
			if row := r.row("ok"); float64(row.Money)/1e3 != float64(10*row.Prompt+20*row.Output) {
				t.Errorf("%d and %d tokens cost %v", row.Prompt, row.Output, row.Money)
			}
			metrics := r.scrape()
			for _, series := range []string{`moved_total{class="interactive",tier="small"} 5`,
				`expired_total{class="interactive",tier="small"} 1`} {
				if !strings.Contains(metrics, "tierway_queue_"+series+"\n") {
					t.Errorf("the metrics have no %s", series)
				}
			}
		}
	})
}

// TestMovedRequestObeysItsPermissionsAndItsContext: it passes over tiers as a request does that arrives now.
func TestMovedRequestObeysItsPermissionsAndItsContext(t *testing.T) {
	long := strings.Repeat("word ", 3000)
	for name, c := range map[string]struct {
		tenant, classifier, prompt string
		tier, worker               string // empty: 503
	}{
		"the next tier":                     {prompt: "Hi", tier: "medium", worker: "m0"},
		"a tier that the tenant may use":    {tenant: ", tiers: [small, large]", prompt: "Hi", tier: "large", worker: "l0"},
		"a tier with enough context":        {prompt: long, tier: "large", worker: "l0"},
		"the only tier that is allowed":     {tenant: ", tiers: [small]", prompt: "Hi"},
		"refuse":                            {classifier: ", unavailable: refuse", prompt: "Hi"},
		"down, from the lowest tier":        {classifier: ", unavailable: down", prompt: "Hi", tier: "medium", worker: "m0"},
		"a model name that may not be used": {tenant: ", models: [mini]", prompt: "Hi"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newSteppedRig(t, c.tenant, "", c.classifier, nil)
				free := r.occupyWorkers()
				defer free()
				waits := r.queued(chatBody("mini", c.prompt, ""))
				r.drain("s0")
				got := <-waits
				if c.tier != "" {
					r.check(name, got, c.tier, c.worker, "unavailable; alias selected small")
				} else if got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "no_healthy_worker") {
					t.Errorf("%d %s", got.status, got.body)
				}
			})
		})
	}
}

// TestRequestWaitsUntilAnyTierHasAWorker: while all tiers are down, the first one that is up again gets it.
func TestRequestWaitsUntilAnyTierHasAWorker(t *testing.T) {
	for tier, c := range map[string][2]string{"large": {"l0", "unavailable; default selected small"},
		"small": {"s0", "default"}} {
		t.Run(tier, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newSteppedRig(t, "", ", engine_wait: 60s", "", nil)
				for _, w := range [][2]string{{"small", "s0"}, {"medium", "m0"}, {"large", "l0"}} {
					r.setUp(w[0], w[1], false)
				}
				waits := r.queued(chatBody("auto", "Hi", ""))
				r.setUp(tier, c[0], true)
				r.check(tier, <-waits, tier, c[0], c[1])
			})
		})
	}
}

// TestMovedRequestMovesAgain if the next tier loses its last worker too.
func TestMovedRequestMovesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSteppedRig(t, "", "", "", nil)
		r.occupy("s0", "fake-7b")
		r.occupy("m0", "m")
		waits := r.queued(chatBody("auto", "Hi", ""))
		r.drain("s0")
		medium := r.control.Snapshot().ByName["medium"].WaitQueue
		r.until("it waits at medium", func() bool { return medium.Waiting() == 1 })
		r.drain("m0")
		r.check("twice", <-waits, "large", "l0", "unavailable; default selected small; unavailable selected medium")
	})
}

// TestRequestLeavesATierThatItsAttemptLost: the worker fails the request and is out of rotation then. If the
// request may have run, it stays.
func TestRequestLeavesATierThatItsAttemptLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost atomic.Bool
		fails := func(r *steppedRig, _ http.Handler) http.Handler {
			return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				lost.Store(true)
				r.setUp("small", "s0", false)
				panic(http.ErrAbortHandler)
			})
		}
		for name, more := range streamOrWhole {
			r := newSteppedRig(t, ", limits: { rpm: 60, burst: 10 }", "", "", fails)
			got := r.postKey(chatBody("auto", "Hi", more))
			r.check(name, got, "medium", "m0", "unavailable; default selected small")
			if d := r.record(1); !lost.Load() || len(d.Attempts) != 2 || d.Attempts[0].Tier != "small" ||
				remaining(t, got) != 9 {
				t.Errorf("%s: it is recorded as %+v", name, d)
			}
		}
		r := newSteppedRig(t, "", "", "", fails)
		if got := r.post("/v1/responses", `{"model":"auto","input":"Hi"}`, "Authorization", "Bearer key"); got.status !=
			http.StatusBadGateway || len(r.medium.Requests()) > 0 {
			t.Errorf("a stored response: %d %s", got.status, got.body)
		}
	})
}

// TestDegradedRequestDoesNotMove: its budget allows the cheapest tier only.
func TestDegradedRequestDoesNotMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSteppedRig(t, ", degrade: true, limits: { day_money: 0.000000001 }", "", "", nil)
		r.postKey(chatBody("auto", "Hi", "")) // spends the budget
		r.record(1)
		free := r.occupyWorkers()
		defer free()
		waits := r.queued(chatBody("auto", "Hi", ""))
		r.drain("s0")
		if got := <-waits; got.status != http.StatusServiceUnavailable || len(r.medium.Requests()) > 0 {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
}

// TestStreamThatAHeartbeatOpenedMoves: the head has no tier, because the tier is unknown then.
func TestStreamThatAHeartbeatOpenedMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSteppedRig(t, "", ", heartbeat_after: 20ms", "", nil)
		free := r.occupyWorkers()
		defer free()
		q := r.control.Snapshot().ByName["small"].WaitQueue
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.rig.url+"/v1/chat/completions",
			strings.NewReader(chatBody("auto", "Hi", `,"stream":true`)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer key")
		resp, err := r.net.transport.RoundTrip(req) // returns when a heartbeat opens the stream
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if q.Waiting() != 1 || resp.StatusCode != http.StatusOK || resp.Header.Get("X-Model-Tier") != "" {
			t.Fatalf("%d wait: %d %v", q.Waiting(), resp.StatusCode, resp.Header)
		}
		r.drain("s0")
		body, err := io.ReadAll(resp.Body)
		if d := r.record(1); err != nil || !strings.Contains(string(body), "[DONE]") || d.Tier != "medium" {
			t.Errorf("%v, %+v: %s", err, d, body)
		}
	})
}
