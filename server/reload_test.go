package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"tierway/config"
	"tierway/routing"
	"tierway/server/control"
	"tierway/store"
)

// editableFile is a configuration file that a test rewrites.
type editableFile struct {
	mu   sync.Mutex
	text string
}

func (f *editableFile) write(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text = text
}

func (f *editableFile) read() (*config.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return config.Parse("config.yaml", []byte(f.text), func(string) (string, bool) { return "", false })
}

// newReloadRig is a rig with a configuration file that can be rewritten.
func newReloadRig(t *testing.T, yaml string, handlers ...http.Handler) (*rig, *editableFile) {
	t.Helper()
	r := newRig(t, yaml, handlers...)
	from := &editableFile{}
	r.source = from.read
	return r, from
}

// reload reloads the configuration and fails if that fails.
func (r *rig) reload() control.ReloadResult {
	r.t.Helper()
	result, err := r.Reload(r.t.Context(), control.ReloadRequest{Actor: store.Actor{Name: "test", Via: "api"}})
	if err != nil {
		r.t.Fatalf("%v: %v", err, result.Problems)
	}
	return result
}

// limitedTenantYAML is one tier and a tenant. Its verbs are the digest of the key, the limits and the workers.
const limitedTenantYAML = `
store: { sql: "" }
auth: { keys: [ { name: acme, sha256: %s, limits: { %s } } ] }
health: { path: "off" }
policy: { name: round_robin }
tiers:
  - name: small
    model: fake-7b
    workers: [ %s ]
`

func listOf(workers ...string) string { return strings.Join(workers, ", ") }

func entryOf(name, url string, weight int) string {
	return fmt.Sprintf("{ name: %s, url: %q, weight: %d }", name, url, weight)
}

// startServer serves a handler until the test ends and returns its URL.
func startServer(t *testing.T, h http.Handler) string {
	t.Helper()
	return newServer(t, h).URL
}

// CF-04: a reload keeps breakers, estimates and limit buckets.
func TestAReloadKeepsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := fakeEngine()
		failing := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		})
		a, b := startServer(t, engine), startServer(t, failing)
		text := func(weight int, limits string) string {
			return fmt.Sprintf(limitedTenantYAML, digestOfKey, limits, listOf(entryOf("a", a, weight), entryOf("b", b, 1)))
		}
		r, from := newReloadRig(t, strings.ReplaceAll(text(1, "rpm: 60, burst: 30"), "%", "%%")+
			"classifier: {} # as in the reloaded file\n# %s\n")
		for range 12 {
			r.sendChat("small")
		}
		p := r.control.Snapshot().ByName["small"]
		breakers := func() string {
			out := ""
			for _, v := range p.Routing.Snapshot(time.Now()) {
				out += v.ID + ":" + v.Ref.(*control.Member).Gate.View().State.String() + " "
			}
			return out
		}
		open, learned := breakers(), p.Routing.Estimates()
		if !strings.Contains(open, "b:open") {
			t.Fatalf("the breakers are %s", open)
		}
		left := remaining(t, r.sendChat("small"))
		from.write(text(7, "rpm: 60, burst: 30"))
		result := r.reload()
		if result.Generation != 2 || len(result.Changes) != 1 || result.Changes[0].Effect != "live" {
			t.Errorf("%+v", result)
		}
		if got := breakers(); got != open {
			t.Errorf("the breakers are %s, want %s", got, open)
		}
		if got := p.Routing.Estimates(); got.OutputTokens.Count < learned.OutputTokens.Count {
			t.Errorf("the pool lost its estimates: %+v, want %+v", got, learned)
		}
		for _, v := range p.Routing.Snapshot(time.Now()) {
			if v.ID == "a" && v.Weight != 7 {
				t.Errorf("a has the weight %d", v.Weight)
			}
		}
		if got := remaining(t, r.sendChat("small")); got > left {
			t.Errorf("%d requests are left, want at most %d: the bucket was refilled", got, left)
		}
	})
}

// RL-13: a lowered limit applies at once and includes earlier usage.
func TestALoweredLimitKeepsItsUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		url := startServer(t, fakeEngine())
		text := func(limits string) string {
			return fmt.Sprintf(limitedTenantYAML, digestOfKey, limits, entryOf("a", url, 1))
		}
		r, from := newReloadRig(t, text("rpm: 600, burst: 100")+"# %s\n")
		for range 20 {
			r.sendChat("small")
		}
		from.write(text("rpm: 6, burst: 30"))
		r.reload()
		if got := remaining(t, r.sendChat("small")); got > 12 {
			t.Errorf("%d of 30 are left after 20 requests", got)
		}
		from.write(text("rpm: 6, burst: 2"))
		r.reload()
		if a := r.sendChat("small"); a.status != 429 {
			t.Errorf("status %d above the new burst, want 429", a.status)
		}
	})
}

// CF-10, WK-16: a removed worker finishes its requests and gets no new ones. A worker with the same
// name and URL that is added later is a new one.
func TestARemovedWorkerFinishesItsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, started := make(chan struct{}), make(chan struct{}, 1)
		slow := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			first, rest, _ := strings.Cut(chunkAndEnd, "\n\n")
			writeNow(t, w, strings.Replace(first, `"stop"`, "null", 1)+"\n\n")
			started <- struct{}{}
			<-release
			writeNow(t, w, first+"\n\n"+rest)
		}))
		other := startServer(t, fakeEngine())
		text := func(workers string) string { return fmt.Sprintf(limitedTenantYAML, digestOfKey, "", workers) }
		r, from := newReloadRig(t, text(entryOf("old", slow, 1))+"# %s\n")
		done := make(chan httpAnswer)
		go func() {
			done <- r.post("/v1/chat/completions", streamedHello, "Authorization", "Bearer key")
		}()
		<-started
		gone := r.member("old").Worker
		from.write(text(entryOf("new", other, 1)))
		if result := r.reload(); fmt.Sprint(result.Impact.WorkersAdded, result.Impact.WorkersRemoved) != "[new] [old]" {
			t.Errorf("%+v", result.Impact)
		}
		for range 5 {
			if a := r.sendChat("small"); a.status != 200 || a.header.Get("X-Routed-To") != "new" {
				t.Errorf("%d from %s", a.status, a.header.Get("X-Routed-To"))
			}
		}
		from.write(text(listOf(entryOf("new", other, 1), entryOf("old", slow, 1))))
		r.reload()
		if r.member("old").Worker == gone {
			t.Error("the worker that was added again has the old state")
		}
		close(release)
		if a := <-done; a.status != 200 || !strings.Contains(a.body, "[DONE]") {
			t.Errorf("the stream ended with %d %s", a.status, a.body)
		}
		waitUntil(t, "no load", func() bool { return r.Inflight() == 0 })
		for _, v := range r.control.Snapshot().ByName["small"].Routing.Snapshot(time.Now()) {
			if v.Inflight != 0 {
				t.Errorf("%s has %d in flight", v.ID, v.Inflight)
			}
		}
	})
}

// CF-07: reloads run one after the other, afterwards the last written file is in force, and an unexpected file is
// rejected.
func TestConcurrentReloadsAreSerialized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		url := startServer(t, fakeEngine())
		text := func(weight int) string {
			return fmt.Sprintf(limitedTenantYAML, digestOfKey, "", entryOf("a", url, weight))
		}
		r, from := newReloadRig(t, text(1)+"# %s\n")
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				from.write(text(i%9 + 2))
				if _, err := r.Reload(context.Background(), control.ReloadRequest{}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		last, err := from.read()
		if err != nil || r.control.Snapshot().Base.Hash() != last.Hash() {
			t.Errorf("the last file written is not in force (%v)", err)
		}
		from.write(text(50))
		preview, err := r.Reload(t.Context(), control.ReloadRequest{DryRun: true})
		if err != nil || len(preview.Changes) != 1 || r.control.Snapshot().File.Hash() == preview.ToHash {
			t.Fatalf("%v %+v", err, preview)
		}
		from.write(text(60))
		if _, err := r.Reload(t.Context(), control.ReloadRequest{Expect: preview.ToHash}); !errors.Is(err,
			control.ErrChanged) {
			t.Errorf("a file that changed after its preview: %v", err)
		}
		if r.control.FileRejected() {
			t.Error("a stale If-Match marks a valid file as rejected")
		}
		scrape := r.scrape()
		for _, series := range []string{`tierway_config_reloads_total{result="rejected"} 0`,
			"tierway_config_last_reload_successful 1"} {
			if !strings.Contains(scrape, series) {
				t.Errorf("a stale If-Match counts as a rejected configuration: no %s", series)
			}
		}
		if logs := r.logs.String(); strings.Contains(logs, "level=ERROR") || !strings.Contains(logs, "a reload was refused") {
			t.Errorf("a stale If-Match is not logged at INFO: %s", logs)
		}
		if result := r.reload(); result.Generation < 2 || weightNow(r, "a") != 60 {
			t.Errorf("%+v, weight %d", result, weightNow(r, "a"))
		}
	})
}

func weightNow(r *rig, worker string) int {
	for _, p := range r.control.Snapshot().Pools {
		for _, v := range p.Routing.Snapshot(time.Now()) {
			if v.ID == worker {
				return v.Weight
			}
		}
	}
	return -1
}

func TestOverrideAppliesOverTheFileUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		url := startServer(t, fakeEngine())
		text := func(weight int) string {
			return fmt.Sprintf(limitedTenantYAML, digestOfKey, "",
				listOf(entryOf("a", url, weight), entryOf("b", startServer(t, fakeEngine()), 1)))
		}
		first := text(10)
		r, from := newReloadRig(t, first+"# %s\n")
		actor := store.Actor{Name: "ops", Via: "api"}
		if err := r.override(t.Context(), actor, store.Override{Worker: "a", Weight: new(40), By: "ops",
			At: time.Now()}); err !=
			nil || weightNow(r, "a") != 40 {
			t.Fatalf("%v: the weight is %d", err, weightNow(r, "a"))
		}
		from.write(strings.Replace(first, "weight: 10", "weight: 20", 1))
		r.reload()
		if got := weightNow(r, "a"); got != 40 {
			t.Errorf("a reload removed the override: the weight is %d", got)
		}
		if err := r.override(t.Context(), actor,
			store.Override{Worker: "a", Drain: true, At: time.Now(),
				Until: time.Now().Add(20 * time.Millisecond)}); err != nil ||
			weightNow(r, "a") != 0 {
			t.Errorf("%v: a worker that drains has the weight %d", err, weightNow(r, "a"))
		}
		r.runControl()
		waitUntil(t, "the end of the override", func() bool { return weightNow(r, "a") == 20 })
		if err := r.clearOverride(t.Context(), actor, "unknown"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("clearing an override that does not exist: %v", err)
		}
	})
}

// CF-11: reloads leak no goroutines, workers or pools.
func TestReloadsLeakNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		url := startServer(t, fakeEngine())
		text := func(i int) string {
			return fmt.Sprintf(limitedTenantYAML, digestOfKey, "", entryOf(fmt.Sprintf("w%d", i%7), url, i%9+1)) +
				fmt.Sprintf("pools:\n  - { name: extra-%d, serves: [embeddings], models: [m], workers: [ { name: e%d, url: "+
					"\"http://127.0.0.1:%d\" } ] }\n", i%5, i%5, 1+i%5)
		}
		r, from := newReloadRig(t, text(0)+"# %s\n")
		stopControl := r.runControl()
		pools := map[weak.Pointer[routing.Pool]]bool{}
		round := func(n int) {
			for i := range n {
				from.write(text(i))
				r.reload()
				for _, p := range r.control.Snapshot().Pools {
					pools[weak.Make(p.Routing)] = true
				}
				if a := r.sendChat("small"); a.status != 200 {
					t.Fatalf("%d %s", a.status, a.body)
				}
			}
		}
		round(35) // every combination
		goroutines := runtime.NumGoroutine()
		round(35)
		waitUntil(t, "the goroutines of removed workers to end",
			func() bool { return runtime.NumGoroutine() <= goroutines+10 })
		stopControl() // a tick during a collection would keep its pools until the next one
		waitUntil(t, "the removed pools to be collected", func() bool {
			runtime.GC()
			maps.DeleteFunc(pools, func(p weak.Pointer[routing.Pool], _ bool) bool { return p.Value() == nil })
			return len(pools) == 2
		})
	})
}
