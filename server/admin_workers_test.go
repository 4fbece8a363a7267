package server

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/store"
)

// threeWorkers is a rig of three workers of equal weight under round_robin.
func threeWorkers(t *testing.T, sql string) *adminRig {
	t.Helper()
	yaml := strings.Replace(adminYAML(sql), "workers: [ %s ]", "policy: { name: round_robin }\n    workers: [ %s ]", 1)
	return adminRigOf(newRig(t, yaml, fakeEngine(), fakeEngine(), fakeEngine()))
}

// worker returns the API's view of a worker.
func (r *adminRig) worker(name string) workerShown {
	r.t.Helper()
	return decode[workerShown](r.t, r.ops(http.StatusOK, http.MethodGet, "/admin/workers/"+name, ""))
}

// TestWorkersShowTotalsLatencyAndShare after requests that all of them have served.
func TestWorkersShowTotalsLatencyAndShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := threeWorkers(t, "")
		for range 6 {
			if status := r.chat("filed"); status != http.StatusOK {
				t.Fatalf("%d", status)
			}
		}
		all := decode[workersShown](t, r.ops(http.StatusOK, http.MethodGet, "/admin/backends", ""))
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
		if r.callAdmin("ops", http.MethodGet, "/admin/workers/none", "").status != http.StatusNotFound {
			t.Error("there is a worker none")
		}
		tiers := decode[pageOf[tierShown]](t, r.ops(http.StatusOK, http.MethodGet, "/admin/tiers", ""))
		if len(tiers.Items) != 1 || tiers.Items[0].Workers["up"] != 3 || tiers.Items[0].Model != "fake-7b" ||
			len(tiers.Items[0].Serves) != 2 {
			t.Errorf("the tiers are %+v", tiers)
		}
	})
}

// TestWeightOverrideCanBePreviewedSetAndReset: the override shows in workers, configuration and
// overrides. The worker keeps its totals.
func TestWeightOverrideCanBePreviewedSetAndReset(t *testing.T) {
	for name, sql := range map[string]string{"database": memoryDB, "memory": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := threeWorkers(t, sql)
				for range 3 {
					r.chat("filed")
				}
				preview := decode[workerChanged](t, r.ops(http.StatusOK, http.MethodPatch, "/admin/workers/w0?dry_run=true",
					`{"weight":2}`))
				if !preview.DryRun || preview.Expected["w0"] != 0.5 || preview.Expected["w1"] != 0.25 ||
					preview.Worker.Weight != 1 {
					t.Errorf("the preview is %+v", preview)
				}
				if len(r.control.OverridesNow()) != 0 {
					t.Fatal("a preview changed something")
				}
				done := decode[workerChanged](t,
					r.ops(http.StatusOK, http.MethodPatch, "/admin/workers/w0", `{"weight":2,"ttl_s":60}`))
				o := done.Worker.Weights.Override
				if done.Worker.Weight != 2 || done.Worker.Weights.File != 1 || o == nil || *o.Weight != 2 || o.By != "ops" ||
					time.Until(o.Until) > time.Minute || done.Expected["w0"] != 0.5 {
					t.Errorf("the worker is %+v", done.Worker)
				}
				if done.Worker.Totals.Requests.OK != 1 || done.Worker.Latency.Count != 1 {
					t.Errorf("a new weight reset the totals: %+v", done.Worker.Totals)
				}
				shown := decode[struct {
					Overrides []store.Override
					Effective struct {
						Tiers []struct{ Workers []struct{ Weight int } }
					}
				}](t, r.ops(http.StatusOK, http.MethodGet, "/admin/config", ""))
				if len(shown.Overrides) != 1 || shown.Effective.Tiers[0].Workers[0].Weight != 2 {
					t.Errorf("the configuration shows %+v", shown)
				}
				if list := decode[pageOf[store.Override]](t,
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
					r.checkAuditLog("worker.override", "worker.override.clear", "worker.override", "worker.override.clear")
				}
			})
		})
	}
}

// TestDrainFinishesRequestsAndAcceptsNoNewOnes: progress is shown until the last request has ended.
// Undrain restores the previous weight.
func TestDrainFinishesRequestsAndAcceptsNoNewOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reached, hold := make(chan struct{}), make(chan struct{})
		slow := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			close(reached)
			<-hold
			fakeEngine().ServeHTTP(w, q)
		})
		r := adminRigOf(newRig(t, adminYAML(memoryDB), slow))
		r.ops(http.StatusOK, http.MethodPatch, "/admin/workers/w0", `{"weight":5}`)
		r.ops(http.StatusOK, http.MethodPost, "/admin/workers/w0/undrain", "") // no drain to end
		inflight := make(chan int)
		go func() { inflight <- r.chat("filed") }()
		<-reached
		got := decode[drainBegun](t, r.ops(http.StatusAccepted, http.MethodPost, "/admin/workers/w0/drain",
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
		if status := <-inflight; status != http.StatusOK {
			t.Errorf("the request in flight ends with %d", status)
		}
		if w := r.worker("w0"); w.State != "drained" || w.Drain.Inflight != 0 {
			t.Errorf("it ends as %s, %+v", w.State, w.Drain)
		}
		back := decode[workerChanged](t, r.ops(http.StatusOK, http.MethodPost, "/admin/workers/w0/undrain", ""))
		if back.Worker.State != "up" || back.Worker.Weight != 5 || back.Worker.Drain != nil || len(back.Warnings) != 0 {
			t.Errorf("afterwards it is %+v", back.Worker)
		}
		r.ops(http.StatusNotFound, http.MethodPost, "/admin/workers/none/drain", "")
		r.checkAuditLog("worker.override", "worker.override", "worker.override")
	})
}

// TestDrainAndWeightOfTwoGatewaysAreMerged: a gateway that has not read the other's change does not
// undo it by a change of its own.
func TestDrainAndWeightOfTwoGatewaysAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoGateways(t)
		a.ops(http.StatusAccepted, http.MethodPost, "/admin/workers/w0/drain", "")
		got := decode[workerChanged](t, b.ops(http.StatusOK, http.MethodPatch, "/admin/workers/w0", `{"weight":5}`))
		if w := got.Worker; w.State != "drained" || w.Weight != 0 || w.Weights.Override == nil || !w.Weights.Override.Drain ||
			*w.Weights.Override.Weight != 5 {
			t.Errorf("after a weight from elsewhere: %+v", w.Weights)
		}
		a.ops(http.StatusOK, http.MethodPatch, "/admin/workers/w1", `{"weight":7}`)
		b.ops(http.StatusAccepted, http.MethodPost, "/admin/workers/w1/drain", "")
		back := decode[workerChanged](t, a.ops(http.StatusOK, http.MethodPost, "/admin/workers/w1/undrain", ""))
		if back.Worker.Weight != 7 {
			t.Errorf("after a drain from elsewhere and back: %+v", back.Worker.Weights)
		}
		a.ops(http.StatusAccepted, http.MethodPost, "/admin/workers/w1/drain", "")
		b.ops(http.StatusConflict, http.MethodPatch, "/admin/workers/w1", `{"weight":3,"ttl_s":60}`)
		b.ops(http.StatusOK, http.MethodPost, "/admin/workers/w1/undrain", "")
		b.ops(http.StatusOK, http.MethodPatch, "/admin/workers/w1", `{"weight":3,"ttl_s":60}`)
		a.ops(http.StatusAccepted, http.MethodPost, "/admin/workers/w1/drain", "") // it replaces the weight with a TTL
		if o := a.worker("w1").Weights.Override; o == nil || !o.Drain || o.Weight != nil || !o.Until.IsZero() {
			t.Errorf("a drain over a weight for a minute is %+v", o)
		}
	})
}

// TestADrainShowsItsOwnDeadline, not that of an earlier drain which another gateway has ended. A change of the weight
// and a repeated order do not begin it again; an order with a time sets a new deadline.
func TestADrainShowsItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoGateways(t)
		const path = "/admin/workers/w0"
		drain := func(r *adminRig, body string) time.Time {
			return decode[drainBegun](t, r.ops(http.StatusAccepted, http.MethodPost, path+"/drain", body)).Deadline
		}
		read := func(r *adminRig) {
			time.Sleep(time.Second)
			must(t, r.control.Refresh(t.Context()))
		}
		check := func(r *adminRig, what string, since, deadline time.Time) {
			t.Helper()
			read(r)
			d := r.worker("w0").Drain
			switch {
			case d == nil:
				t.Errorf("%s: no drain is shown", what)
			case deadline.IsZero() != (d.Deadline == nil), d.Deadline != nil && !d.Deadline.Equal(deadline):
				t.Errorf("%s: the deadline is %v, want %v", what, d.Deadline, deadline)
			case d.Since.Sub(since).Abs() > time.Millisecond:
				t.Errorf("%s: it began at %v, want %v", what, d.Since, since)
			}
		}
		began := time.Now()
		first := drain(a, `{"timeout_s":600}`)
		check(a, "begun here", began, first)
		if again := drain(a, ""); !again.Equal(first) {
			t.Errorf("a second order answers %v, want %v", again, first)
		}
		check(a, "ordered again", began, first)
		a.ops(http.StatusOK, http.MethodPatch, path, `{"weight":5}`)
		check(a, "after another weight", began, first)
		longer := drain(a, `{"timeout_s":900}`)
		check(a, "with another deadline", began, longer)

		for _, end := range []func(){
			func() { b.ops(http.StatusOK, http.MethodPost, path+"/undrain", "") },
			func() { b.ops(http.StatusNoContent, http.MethodDelete, "/admin/overrides/w0", "") },
		} {
			drain(a, "")
			time.Sleep(time.Minute)
			end()
			began := time.Now()
			theirs := drain(b, "")
			check(a, "begun elsewhere", began, time.Time{})
			check(b, "begun here", began, theirs)
			b.ops(http.StatusOK, http.MethodPost, path+"/undrain", "")
			read(a)
			if d := a.worker("w0").Drain; d != nil {
				t.Errorf("after its end: %+v", d)
			}
		}
	})
}

// TestWorkerChangesHonourIfMatch, on one gateway and on two. A rejected change has no effect. The ETag
// of each answer is valid for the next change.
func TestWorkerChangesHonourIfMatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoGateways(t)
		alone := adminRigOf(newRig(t, adminYAML(""), fakeEngine()))
		for name, pair := range map[string][2]*adminRig{"two gateways": {a, b}, "without a database": {alone, alone}} {
			t.Logf("case %v", name)
			const path = "/admin/workers/w0"
			first, second := pair[0], pair[1]
			tag := func(got httpAnswer) string { return got.header.Get("ETag") }
			none := tag(second.ops(http.StatusOK, http.MethodGet, path, ""))
			changed := tag(first.ops(http.StatusOK, http.MethodPatch, path, `{"weight":5}`, "If-Match", none))
			if none != `"v0"` || changed == none {
				t.Errorf("the ETags are %s and %s", none, changed)
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
			got := second.ops(http.StatusOK, http.MethodGet, path, "") // the rejected change has read the database
			if w := decode[workerShown](t, got); tag(got) != changed || etagOf(w.Weights.Version) != changed || w.Weight != 5 {
				t.Errorf("%s: %+v", tag(got), w.Weights)
			}
			drained := tag(second.ops(http.StatusAccepted, http.MethodPost, path+"/drain", "", "If-Match", changed))
			if again := tag(second.ops(http.StatusAccepted, http.MethodPost, path+"/drain", "")); again != drained ||
				drained == changed {
				t.Errorf("drained is %s, and again %s", drained, again)
			}
			back := tag(first.ops(http.StatusOK, http.MethodPost, path+"/undrain", "", "If-Match", drained))
			stale(changed) // the weight is the same again, the version is not
			preview := first.ops(http.StatusOK, http.MethodPatch, path+"?dry_run=true", `{"weight":9}`, "If-Match", back)
			if tag(preview) != back {
				t.Errorf("a preview has the ETag %s, want %s", tag(preview), back)
			}
			second.ops(http.StatusNoContent, http.MethodDelete, "/admin/overrides/w0", "", "If-Match", back)
			time.Sleep(time.Microsecond) // versions are times
			third := tag(first.ops(http.StatusOK, http.MethodPatch, path, `{"weight":5}`))
			stale(changed)
			stale(back)
			if reset := tag(first.ops(http.StatusOK, http.MethodPatch, path, `{"weight":null}`, "If-Match", third)); reset !=
				`"v0"` {
				t.Errorf("after the reset the ETag is %s", reset)
			}
		}
	})
}

func TestWorkerShowsTheModelsThatItsEngineLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yaml := strings.Replace(adminYAML(""), `health: { path: "off" }`, "health: { interval: 50ms, timeout: 40ms }", 1)
		r := adminRigOf(newRig(t, yaml, fakeEngine()))
		r.runControl()
		waitUntil(t, "the engine's models", func() bool { return cmp.Equal(r.worker("w0").Models, []string{"fake-7b"}) })
	})
}
