package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"tierway/config"
	"tierway/routing"
	"tierway/server/control"
	"tierway/store"
)

// source is a configuration file that a test writes.
type source struct {
	mu   sync.Mutex
	text string
}

func (s *source) write(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = text
}

func (s *source) read() (*config.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return config.Parse("config.yaml", []byte(s.text), func(string) (string, bool) { return "", false })
}

// reloadable is a rig whose configuration can be written anew.
func reloadable(t *testing.T, yaml string, handlers ...http.Handler) (*rig, *source) {
	t.Helper()
	r := newRig(t, yaml, handlers...)
	from := &source{}
	r.source = from.read
	return r, from
}

// reload reads the configuration again, which must go well.
func (r *rig) reload() control.ReloadResult {
	r.t.Helper()
	result, err := r.Reload(r.t.Context(), control.ReloadRequest{Actor: store.Actor{Name: "test", Via: "api"}})
	if err != nil {
		r.t.Fatalf("%v: %v", err, result.Problems)
	}
	return result
}

// twoWorkers has two workers whose weights are its verbs, and a tenant whose
// limits are the last.
const twoWorkers = `
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

// served starts a worker.
func served(t *testing.T, h http.Handler) string {
	t.Helper()
	w := httptest.NewServer(h)
	t.Cleanup(w.Close)
	return w.URL
}

// CF-02, CF-05: a configuration with an error changes nothing at all, and every
// problem is reported with its line.
func TestARejectedConfigurationChangesNothing(t *testing.T) {
	r, from := reloadable(t, plain, fakeEngine())
	before := r.control.Snapshot()
	from.write("auth: { required: false }\ntiers:\n  - name: small\n    modle: x\n    workers: [ { name: a, url: " +
		"\"http://127.0.0.1:1\", weight: 900 } ]\n")
	result, err := r.Reload(t.Context(), control.ReloadRequest{})
	if !errors.Is(err, control.ErrRejected) || len(result.Problems) < 2 || result.Problems[0].Line != 4 ||
		result.Generation != 1 {
		t.Fatalf("%v %+v", err, result)
	}
	if r.control.Snapshot() != before {
		t.Error("another snapshot is in force")
	}
	if !strings.Contains(r.scrape(), `tierway_config_reloads_total{result="rejected"} 1`) {
		t.Error("the rejection is not counted")
	}
	if !strings.Contains(r.logs.String(), "level=ERROR") {
		t.Error("the rejection is not logged at ERROR")
	}
	if _, err := r.Reload(t.Context(), control.ReloadRequest{Expect: "stale"}); !errors.Is(err, control.ErrRejected) ||
		!r.control.FileRejected() {
		t.Errorf("a file with errors and a stale If-Match: %v", err)
	}
	from.write("")
	r.source = func() (*config.File, error) { return nil, context.DeadlineExceeded }
	if _, err := r.Reload(t.Context(), control.ReloadRequest{}); !errors.Is(err, context.DeadlineExceeded) ||
		r.control.Snapshot() != before {
		t.Errorf("a file that cannot be read: %v", err)
	}
}

// CF-04: what was learned and counted stays over a reload.
func TestAReloadKeepsWhatIsKnown(t *testing.T) {
	engine := fakeEngine()
	failing := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	})
	a, b := served(t, engine), served(t, failing)
	text := func(weight int, limits string) string {
		return fmt.Sprintf(twoWorkers, digestOfKey, limits, listOf(entryOf("a", a, weight), entryOf("b", b, 1)))
	}
	r, from := reloadable(t, strings.ReplaceAll(text(1, "rpm: 60, burst: 30"), "%", "%%")+
		"classifier: {} # as what is loaded below\n# %s\n")
	for range 12 {
		r.ask("small")
	}
	p := r.control.Snapshot().ByName["small"]
	breakers := func() string {
		out := ""
		for _, v := range p.Routing.Snapshot(time.Now()) {
			out += v.ID + ":" + v.Ref.(*control.Member).Gate.State().String() + " "
		}
		return out
	}
	open, learned := breakers(), p.Routing.Estimates()
	if !strings.Contains(open, "b:open") {
		t.Fatalf("the breakers are %s", open)
	}
	left := remaining(t, r.ask("small"))
	from.write(text(7, "rpm: 60, burst: 30"))
	result := r.reload()
	if result.Generation != 2 || len(result.Changes) != 1 || result.Changes[0].Effect != "live" {
		t.Errorf("%+v", result)
	}
	if got := breakers(); got != open {
		t.Errorf("the breakers are %s, and were %s", got, open)
	}
	if got := p.Routing.Estimates(); got.OutputTokens.Count < learned.OutputTokens.Count {
		t.Errorf("the pool has forgotten: %+v, was %+v", got, learned)
	}
	for _, v := range p.Routing.Snapshot(time.Now()) {
		if v.ID == "a" && v.Weight != 7 {
			t.Errorf("a has the weight %d", v.Weight)
		}
	}
	if got := remaining(t, r.ask("small")); got > left {
		t.Errorf("%d requests are left, and were %d: the bucket was refilled", got, left)
	}
}

// RL-13: a limit that is lowered counts at once, with what was used before.
func TestALoweredLimitKeepsWhatWasUsed(t *testing.T) {
	url := served(t, fakeEngine())
	text := func(limits string) string {
		return fmt.Sprintf(twoWorkers, digestOfKey, limits, entryOf("a", url, 1))
	}
	r, from := reloadable(t, text("rpm: 600, burst: 100")+"# %s\n")
	for range 20 {
		r.ask("small")
	}
	from.write(text("rpm: 6, burst: 30"))
	r.reload()
	if got := remaining(t, r.ask("small")); got > 12 {
		t.Errorf("%d of 30 are left after 20 requests", got)
	}
	from.write(text("rpm: 6, burst: 2"))
	r.reload()
	if a := r.ask("small"); a.status != 429 {
		t.Errorf("%d after more than the new burst", a.status)
	}
}

// CF-10, WK-16: a worker that leaves the configuration finishes what it has and
// gets nothing new; one of the same name and place that comes back is another.
func TestAWorkerThatLeavesFinishesItsStreams(t *testing.T) {
	release, started := make(chan struct{}), make(chan struct{}, 1)
	slow := served(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		first, rest, _ := strings.Cut(chunkAndEnd, "\n\n")
		say(t, w, strings.Replace(first, `"stop"`, "null", 1)+"\n\n")
		started <- struct{}{}
		<-release
		say(t, w, first+"\n\n"+rest)
	}))
	other := served(t, fakeEngine())
	text := func(workers string) string { return fmt.Sprintf(twoWorkers, digestOfKey, "", workers) }
	r, from := reloadable(t, text(entryOf("old", slow, 1))+"# %s\n")
	done := make(chan answered)
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
		if a := r.ask("small"); a.status != 200 || a.header.Get("X-Routed-To") != "new" {
			t.Errorf("%d from %s", a.status, a.header.Get("X-Routed-To"))
		}
	}
	from.write(text(listOf(entryOf("new", other, 1), entryOf("old", slow, 1))))
	r.reload()
	if r.member("old").Worker == gone {
		t.Error("the worker that came back is the one that left")
	}
	close(release)
	if a := <-done; a.status != 200 || !strings.Contains(a.body, "[DONE]") {
		t.Errorf("the stream ended with %d %s", a.status, a.body)
	}
	until(t, "no load", func() bool { return r.Inflight() == 0 })
	for _, v := range r.control.Snapshot().ByName["small"].Routing.Snapshot(time.Now()) {
		if v.Inflight != 0 {
			t.Errorf("%s has %d in flight", v.ID, v.Inflight)
		}
	}
}

// CF-07: reloads are done one after the other, and an unexpected file is refused.
func TestReloadsAreDoneOneByOne(t *testing.T) {
	url := served(t, fakeEngine())
	text := func(weight int) string {
		return fmt.Sprintf(twoWorkers, digestOfKey, "", entryOf("a", url, weight))
	}
	r, from := reloadable(t, text(1)+"# %s\n")
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

func TestALiveOverrideLiesOverTheFileUntilItIsOver(t *testing.T) {
	url := served(t, fakeEngine())
	text := func(weight int) string {
		return fmt.Sprintf(twoWorkers, digestOfKey, "",
			listOf(entryOf("a", url, weight), entryOf("b", served(t, fakeEngine()), 1)))
	}
	first := text(10)
	r, from := reloadable(t, first+"# %s\n")
	who := store.Actor{Name: "ops", Via: "api"}
	if err := r.override(t.Context(), who, store.Override{Worker: "a", Weight: new(40), By: "ops", At: time.Now()}); err !=
		nil || weightNow(r, "a") != 40 {
		t.Fatalf("%v: the weight is %d", err, weightNow(r, "a"))
	}
	from.write(strings.Replace(first, "weight: 10", "weight: 20", 1))
	r.reload()
	if got := weightNow(r, "a"); got != 40 {
		t.Errorf("a reload has taken the override away: %d", got)
	}
	if err := r.override(t.Context(), who,
		store.Override{Worker: "a", Drain: true, At: time.Now(), Until: time.Now().Add(20 * time.Millisecond)}); err != nil ||
		weightNow(r, "a") != 0 {
		t.Errorf("%v: a worker that drains has the weight %d", err, weightNow(r, "a"))
	}
	r.running()
	until(t, "the end of the override", func() bool { return weightNow(r, "a") == 20 })
	if err := r.clearOverride(t.Context(), who, "nobody"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("clearing what is not there: %v", err)
	}
}

// CF-11: reloads leave nothing behind: no goroutine, no worker, no pool.
func TestManyReloadsLeaveNothingBehind(t *testing.T) {
	url := served(t, fakeEngine())
	text := func(i int) string {
		return fmt.Sprintf(twoWorkers, digestOfKey, "", entryOf(fmt.Sprintf("w%d", i%7), url, i%9+1)) +
			fmt.Sprintf("pools:\n  - { name: extra-%d, serves: [embeddings], models: [m], workers: [ { name: e%d, url: "+
				"\"http://127.0.0.1:%d\" } ] }\n", i%5, i%5, 1+i%5)
	}
	r, from := reloadable(t, text(0)+"# %s\n")
	r.running()
	pools := map[weak.Pointer[routing.Pool]]bool{}
	round := func(n int) {
		for i := range n {
			from.write(text(i))
			r.reload()
			for _, p := range r.control.Snapshot().Pools {
				pools[weak.Make(p.Routing)] = true
			}
			if a := r.ask("small"); a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
	}
	round(35) // every combination
	goroutines := runtime.NumGoroutine()
	round(35)
	until(t, "the goroutines of workers that are gone", func() bool { return runtime.NumGoroutine() <= goroutines+10 })
	until(t, "the pools that are gone", func() bool {
		runtime.GC()
		maps.DeleteFunc(pools, func(p weak.Pointer[routing.Pool], _ bool) bool { return p.Value() == nil })
		return len(pools) == 2
	})
}
