package server

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/store"
)

// threeWorkers are three workers of one weight that take turns.
func threeWorkers(t *testing.T, sql string) *adminRig {
	t.Helper()
	yaml := strings.Replace(adminYAML(sql), "workers: [ %s ]", "policy: { name: round_robin }\n    workers: [ %s ]", 1)
	return adminRigOf(newRig(t, yaml, fakeEngine(), fakeEngine(), fakeEngine()))
}

// worker returns what the API shows of a worker.
func (r *adminRig) worker(name string) workerShown {
	r.t.Helper()
	return decoded[workerShown](r.t, r.ops(http.StatusOK, http.MethodGet, "/admin/workers/"+name, ""))
}

// TestWorkersShowWhatTheyDid: totals, times and shares of those that are chosen.
func TestWorkersShowWhatTheyDid(t *testing.T) {
	r := threeWorkers(t, "")
	for range 6 {
		if status := r.chat("filed"); status != http.StatusOK {
			t.Fatalf("%d", status)
		}
	}
	all := decoded[workersShown](t, r.ops(http.StatusOK, http.MethodGet, "/admin/backends", ""))
	if len(all.Workers) != 3 || all.Pools["small"].Policy != "round_robin" {
		t.Fatalf("%+v", all)
	}
	for _, w := range all.Workers {
		if w.State != "up" || w.Pool != "small" || !w.Tier || w.Model != "fake-7b" || w.Totals.Requests.OK != 2 ||
			w.Totals.Tokens.Output == 0 ||
			w.Latency.Count != 2 || w.Latency.P99 < w.Latency.P95 || w.LastSelected == nil ||
			time.Since(*w.LastSelected) > time.Minute ||
			math.Abs(w.Distribution.Now-1.0/3) > 1e-9 || math.Abs(w.Distribution.Expected-1.0/3) > 1e-9 ||
			w.Weights.Effective != 1 || w.Weights.File != 1 {
			t.Errorf("%+v", w)
		}
	}
	if r.ask("ops", http.MethodGet, "/admin/workers/none", "").status != http.StatusNotFound {
		t.Error("there is a worker none")
	}
	tiers := decoded[pageOf[tierShown]](t, r.ops(http.StatusOK, http.MethodGet, "/admin/tiers", ""))
	if len(tiers.Items) != 1 || tiers.Items[0].Workers["up"] != 3 || tiers.Items[0].Model != "fake-7b" ||
		len(tiers.Items[0].Serves) != 2 {
		t.Errorf("the tiers are %+v", tiers)
	}
}

// TestAWeightIsAnOverlay: it is previewed, put over the file's for all to see,
// survives what the worker has learned and done, ends by itself and by reset.
func TestAWeightIsAnOverlay(t *testing.T) {
	for name, sql := range map[string]string{"database": memoryDB, "memory": ""} {
		t.Run(name, func(t *testing.T) {
			r := threeWorkers(t, sql)
			for range 3 {
				r.chat("filed")
			}
			preview := decoded[workerChanged](t, r.ops(http.StatusOK, http.MethodPatch, "/admin/workers/w0?dry_run=true",
				`{"weight":2}`))
			if !preview.DryRun || preview.Expected["w0"] != 0.5 || preview.Expected["w1"] != 0.25 || preview.Worker.Weight != 1 {
				t.Errorf("the preview is %+v", preview)
			}
			if len(r.control.OverridesNow()) != 0 {
				t.Fatal("a preview changed something")
			}
			done := decoded[workerChanged](t,
				r.ops(http.StatusOK, http.MethodPatch, "/admin/workers/w0", `{"weight":2,"ttl_s":60}`))
			o := done.Worker.Weights.Override
			if done.Worker.Weight != 2 || done.Worker.Weights.File != 1 || o == nil || *o.Weight != 2 || o.By != "ops" ||
				time.Until(o.Until) > time.Minute || done.Expected["w0"] != 0.5 {
				t.Errorf("the worker is %+v", done.Worker)
			}
			if done.Worker.Totals.Requests.OK != 1 || done.Worker.Latency.Count != 1 {
				t.Errorf("a weight made the worker forget: %+v", done.Worker.Totals)
			}
			shown := decoded[struct {
				Overrides []store.Override
				Effective struct {
					Tiers []struct{ Workers []struct{ Weight int } }
				}
			}](t, r.ops(http.StatusOK, http.MethodGet, "/admin/config", ""))
			if len(shown.Overrides) != 1 || shown.Effective.Tiers[0].Workers[0].Weight != 2 {
				t.Errorf("the configuration shows %+v", shown)
			}
			if list := decoded[pageOf[store.Override]](t,
				r.ops(http.StatusOK, http.MethodGet, "/admin/overrides", "")); list.Total != 1 || list.Items[0].Worker != "w0" {
				t.Errorf("the overrides are %+v", list)
			}
			r.ops(http.StatusOK, http.MethodPatch, "/admin/workers/w0", `{"weight":null}`)
			if w := r.worker("w0"); w.Weight != 1 || w.Weights.Override != nil {
				t.Errorf("after the reset: %+v", w.Weights)
			}
			r.ops(http.StatusOK, http.MethodPatch, "/admin/workers/w1", `{"weight":0}`)
			r.ops(http.StatusNoContent, http.MethodDelete, "/admin/overrides/w1", "")
			r.ops(http.StatusNotFound, http.MethodDelete, "/admin/overrides/w1", "")
			r.ops(http.StatusNotFound, http.MethodPatch, "/admin/workers/none", `{"weight":1}`)
			for _, body := range []string{`{}`, `{"weight":-1}`, `{"weight":101}`, `{"weight":1.5}`, `{"weight":1,"ttl_s":0}`,
				`{"weight":1,"wieght":1}`} {
				r.ops(http.StatusUnprocessableEntity, http.MethodPatch, "/admin/workers/w0", body)
			}
			if sql != "" {
				r.wroteDown("worker.override", "worker.override.clear", "worker.override", "worker.override.clear")
			}
		})
	}
}

// TestADrainTakesNoNewRequestsAndLosesNone: progress is shown until the last has
// ended; undrain brings the weight of before back.
func TestADrainTakesNoNewRequestsAndLosesNone(t *testing.T) {
	reached, hold := make(chan struct{}), make(chan struct{})
	slow := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		close(reached)
		<-hold
		fakeEngine().ServeHTTP(w, q)
	})
	r := adminRigOf(newRig(t, adminYAML(memoryDB), slow))
	r.ops(http.StatusOK, http.MethodPatch, "/admin/workers/w0", `{"weight":5}`)
	r.ops(http.StatusOK, http.MethodPost, "/admin/workers/w0/undrain", "") // there is nothing to take back
	under := make(chan int)
	go func() { under <- r.chat("filed") }()
	<-reached
	got := decoded[drainBegun](t, r.ops(http.StatusAccepted, http.MethodPost, "/admin/workers/w0/drain",
		`{"timeout_s":60}`))
	if got.State != "draining" || got.Inflight != 1 || got.InflightAtStart != 1 ||
		time.Until(got.Deadline) > time.Minute || len(got.Warnings) != 1 {
		t.Errorf("the drain begins as %+v", got)
	}
	w := r.worker("w0")
	if w.State != "draining" || w.Drain == nil || w.Drain.Inflight != 1 || *w.Drain.InflightAtStart != 1 ||
		w.Drain.Overdue || w.Weight != 0 {
		t.Errorf("it goes on as %+v", w.Drain)
	}
	if status := r.chat("filed"); status != http.StatusServiceUnavailable {
		t.Errorf("a draining worker's only pool answers %d", status)
	}
	// a drain does not end by itself
	r.ops(http.StatusConflict, http.MethodPatch, "/admin/workers/w0", `{"weight":3,"ttl_s":60}`)
	close(hold)
	if status := <-under; status != http.StatusOK {
		t.Errorf("the request under way ends with %d", status)
	}
	if w := r.worker("w0"); w.State != "drained" || w.Drain.Inflight != 0 {
		t.Errorf("it ends as %s, %+v", w.State, w.Drain)
	}
	back := decoded[workerChanged](t, r.ops(http.StatusOK, http.MethodPost, "/admin/workers/w0/undrain", ""))
	if back.Worker.State != "up" || back.Worker.Weight != 5 || back.Worker.Drain != nil || len(back.Warnings) != 0 {
		t.Errorf("afterwards it is %+v", back.Worker)
	}
	r.ops(http.StatusNotFound, http.MethodPost, "/admin/workers/none/drain", "")
	r.wroteDown("worker.override", "worker.override", "worker.override")
}

// TestADrainOutlivesAWeightFromElsewhere: a gateway that has not heard of another's
// drain does not undo it, nor a weight, by a change of its own.
func TestADrainOutlivesAWeightFromElsewhere(t *testing.T) {
	a, b := twoGateways(t)
	a.ops(http.StatusAccepted, http.MethodPost, "/admin/workers/w0/drain", "")
	got := decoded[workerChanged](t, b.ops(http.StatusOK, http.MethodPatch, "/admin/workers/w0", `{"weight":5}`))
	if w := got.Worker; w.State != "drained" || w.Weight != 0 || w.Weights.Override == nil || !w.Weights.Override.Drain ||
		*w.Weights.Override.Weight != 5 {
		t.Errorf("after a weight from elsewhere: %+v", w.Weights)
	}
	a.ops(http.StatusOK, http.MethodPatch, "/admin/workers/w1", `{"weight":7}`)
	b.ops(http.StatusAccepted, http.MethodPost, "/admin/workers/w1/drain", "")
	back := decoded[workerChanged](t, a.ops(http.StatusOK, http.MethodPost, "/admin/workers/w1/undrain", ""))
	if back.Worker.Weight != 7 {
		t.Errorf("after a drain from elsewhere and back: %+v", back.Worker.Weights)
	}
	a.ops(http.StatusAccepted, http.MethodPost, "/admin/workers/w1/drain", "")
	b.ops(http.StatusConflict, http.MethodPatch, "/admin/workers/w1", `{"weight":3,"ttl_s":60}`)
	b.ops(http.StatusOK, http.MethodPost, "/admin/workers/w1/undrain", "")
	b.ops(http.StatusOK, http.MethodPatch, "/admin/workers/w1", `{"weight":3,"ttl_s":60}`)
	a.ops(http.StatusAccepted, http.MethodPost, "/admin/workers/w1/drain", "") // and what was to end by itself ends now
	if o := a.worker("w1").Weights.Override; o == nil || !o.Drain || o.Weight != nil || !o.Until.IsZero() {
		t.Errorf("a drain over a weight for a minute is %+v", o)
	}
}

// TestAWorkerChangesAtTheVersionThatWasSeen: every write of a worker honours
// If-Match, here and where another gateway was first; what was refused changed
// nothing, and the ETag of each answer is good for the next write.
func TestAWorkerChangesAtTheVersionThatWasSeen(t *testing.T) {
	a, b := twoGateways(t)
	alone := adminRigOf(newRig(t, adminYAML(""), fakeEngine()))
	for name, pair := range map[string][2]*adminRig{"two gateways": {a, b}, "without a database": {alone, alone}} {
		t.Run(name, func(t *testing.T) {
			const path = "/admin/workers/w0"
			first, second := pair[0], pair[1]
			tag := func(got answered) string { return got.header.Get("ETag") }
			none := tag(second.ops(http.StatusOK, http.MethodGet, path, ""))
			weighed := tag(first.ops(http.StatusOK, http.MethodPatch, path, `{"weight":5}`, "If-Match", none))
			if none != `"v0"` || weighed == none {
				t.Errorf("the ETags are %s and %s", none, weighed)
			}
			stale := func(tag string) {
				t.Helper()
				second.ops(http.StatusPreconditionFailed, http.MethodPatch, path, `{"weight":9}`, "If-Match", tag)
				second.ops(http.StatusPreconditionFailed, http.MethodPatch, path+"?dry_run=true", `{"weight":9}`, "If-Match", tag)
				second.ops(http.StatusPreconditionFailed, http.MethodPost, path+"/drain", "", "If-Match", tag)
				second.ops(http.StatusPreconditionFailed, http.MethodPost, path+"/undrain", "", "If-Match", tag)
				second.ops(http.StatusPreconditionFailed, http.MethodDelete, "/admin/overrides/w0", "", "If-Match", tag)
			}
			stale(none)
			stale("v")
			got := second.ops(http.StatusOK, http.MethodGet, path, "") // the refusal has read the database
			if w := decoded[workerShown](t, got); tag(got) != weighed || etagOf(w.Weights.Version) != weighed || w.Weight != 5 {
				t.Errorf("%s: %+v", tag(got), w.Weights)
			}
			drained := tag(second.ops(http.StatusAccepted, http.MethodPost, path+"/drain", "", "If-Match", weighed))
			if again := tag(second.ops(http.StatusAccepted, http.MethodPost, path+"/drain", "")); again != drained ||
				drained == weighed {
				t.Errorf("drained is %s, and again %s", drained, again)
			}
			back := tag(first.ops(http.StatusOK, http.MethodPost, path+"/undrain", "", "If-Match", drained))
			stale(weighed) // the same weight as then, and not the same version
			preview := first.ops(http.StatusOK, http.MethodPatch, path+"?dry_run=true", `{"weight":9}`, "If-Match", back)
			if tag(preview) != back {
				t.Errorf("a preview has the ETag %s, want %s", tag(preview), back)
			}
			second.ops(http.StatusNoContent, http.MethodDelete, "/admin/overrides/w0", "", "If-Match", back)
			anew := tag(first.ops(http.StatusOK, http.MethodPatch, path, `{"weight":5}`))
			stale(weighed)
			stale(back)
			if reset := tag(first.ops(http.StatusOK, http.MethodPatch, path, `{"weight":null}`, "If-Match", anew)); reset !=
				`"v0"` {
				t.Errorf("after the reset the ETag is %s", reset)
			}
		})
	}
}

// TestAWorkerShowsWhatItsEngineLists: beside the models that it is told to have.
func TestAWorkerShowsWhatItsEngineLists(t *testing.T) {
	yaml := strings.Replace(adminYAML(""), `health: { path: "off" }`, "health: { interval: 50ms, timeout: 40ms }", 1)
	r := adminRigOf(newRig(t, yaml, fakeEngine()))
	r.running()
	until(t, "the engine's models", func() bool { return cmp.Equal(r.worker("w0").Models, []string{"fake-7b"}) })
}
