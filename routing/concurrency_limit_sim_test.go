package routing

import (
	"fmt"
	"testing"
	"time"
)

// both runs the same simulation with and without a learned limit and logs the results.
func both(t *testing.T, name string, run func(w *engineSim) *engineSim, e simEngine, arrivals,
	prompt float64) (with, without measurement) {
	t.Helper()
	w, twin := newEngineSim(e, arrivals, prompt, 256), newEngineSim(e, arrivals, prompt, 256)
	twin.unbound = true
	with, without = run(w).measure(), run(twin).measure()
	t.Logf("%-34s %v", name, with)
	t.Logf("%-34s %v", name+", no bound", without)
	return with, without
}

// settled runs one minute that does not count, and then fifteen minutes.
func settled(w *engineSim) *engineSim {
	w.run(time.Minute)
	w.measure()
	w.run(15 * time.Minute)
	return w
}

func TestEngineWithRoomIsNotLimited(t *testing.T) {
	for _, prompt := range []float64{100, 400, 700} {
		for _, noise := range []float64{0, 0.5} {
			for _, load := range []float64{0.7, 0.8} {
				e := usual()
				e.noise = noise
				arrivals := load * newEngineSim(e, 1, prompt, 256).capacity()
				name := fmt.Sprintf("%.0f tokens, noise %.1f, load %.1f", prompt, noise, load)
				with, without := both(t, name, settled, e, arrivals, prompt)
				if with.throughput < 0.99*without.throughput {
					t.Errorf("%s: the bound costs throughput: %.3f of %.3f", name, with.throughput, without.throughput)
				}
				// At 0.8 all 64 seats are taken now and then, by chance.
				if most := map[float64]float64{0.7: 0.001, 0.8: 0.03}[load]; with.held > most {
					t.Errorf("%s: %.2f %% of the requests were held", name, 100*with.held)
				}
			}
		}
	}
}

func TestOverloadedEngineIsLimitedToItsSlots(t *testing.T) {
	for _, c := range []struct {
		prompt, most, ttft float64 // tokens; the level; seconds at the median
	}{
		{100, 80, 0.6}, {200, 80, 0.8}, {400, 105, 4}, // half of what the engine does is prefill, and so is half of the wait
	} {
		for _, noise := range []float64{0, 0.5} {
			for _, load := range []float64{1.1, 2, 5} {
				e := usual()
				e.noise = noise
				arrivals := load * newEngineSim(e, 1, c.prompt, 256).capacity()
				name := fmt.Sprintf("%.0f tokens, noise %.1f, load %.1f", c.prompt, noise, load)
				with := settled(newEngineSim(e, arrivals, c.prompt, 256)).measure()
				t.Logf("%-34s %v", name, with)
				if with.throughput < 0.97 || with.p10 < 60 || with.mean > c.most || with.ttft > c.ttft {
					t.Errorf("%s: it settled at %v", name, with)
				}
			}
		}
	}
}

func TestEngineWithoutALimitOverloads(t *testing.T) {
	with, without := both(t, "200 tokens, load 2", settled, usual(), 20, 200)
	if with.throughput < 0.98*without.throughput || without.ttft < 100*with.ttft {
		t.Errorf("%v; without a bound %v", with, without)
	}
}

func TestPrefillBoundEngineIsLimited(t *testing.T) {
	with, without := both(t, "4000 tokens, load 1.5", settled, usual(), 3, 4000)
	if with.throughput < 0.97*without.throughput || with.ttft > 15 || without.ttft < 100 {
		t.Errorf("%v; without a bound %v", with, without)
	}
}

func TestLimitFollowsTheEnginesCapacity(t *testing.T) {
	w := settled(newEngineSim(usual(), 30, 200, 256))
	t.Logf("64 seats: %v", w.measure())
	for _, seats := range []int{128, 32} {
		w.engine.slots = seats
		answers := 0
		for s := w.pool.Snapshot(w.now)[0].ConcurrencyLimit; s < seats*9/10 ||
			s > seats*5/4; s = w.pool.Snapshot(w.now)[0].ConcurrencyLimit {
			w.run(time.Second)
			answers += w.done
			w.measure()
			if answers > 1000 {
				t.Fatalf("%d seats: after %d answers the bound is %d", seats, answers, s)
			}
		}
		t.Logf("%d seats: known after %d answers", seats, answers)
		w.run(time.Minute)
		w.measure()
		w.run(5 * time.Minute)
		l := w.measure()
		t.Logf("%d seats: %v", seats, l)
		if l.mean < 0.95*float64(seats) || l.mean > 1.25*float64(seats) || l.throughput < 0.96 {
			t.Errorf("%d seats: %v", seats, l)
		}
	}
}

func TestSlowMomentsDoNotLimit(t *testing.T) {
	stalls := func(w *engineSim) *engineSim {
		for range 60 {
			w.run(25 * time.Second)
			w.engine.pausedTo = w.now.Add(3 * time.Second)
		}
		return w
	}
	for _, noise := range []float64{0, 0.5} {
		e := usual()
		e.noise = noise
		with, _ := both(t, fmt.Sprintf("stalls of 3 s, noise %.1f", noise), stalls, e, 7, 200)
		if with.held > 0.001 {
			t.Errorf("%.1f %% of the requests were held", 100*with.held)
		}
	}
}

// One prompt in a hundred takes 7.5 seconds to prefill, and all prompts behind it wait.
func TestLongPromptsAmongShortOnesDoNotLimit(t *testing.T) {
	convoys := func(w *engineSim) *engineSim {
		w.draw = func() (prompt, computed float64) {
			prompt = 300
			if w.rng.unit() < 0.01 {
				prompt = 60000
			}
			return prompt, prompt
		}
		w.run(time.Hour)
		return w
	}
	with, without := both(t, "convoys", convoys, usual(), 4, 300)
	if with.throughput < 0.99*without.throughput || with.total9 > 1.25*without.total9 {
		t.Errorf("%v; without a bound %v", with, without)
	}
}

// An engine that has most of each prompt cached computes a twentieth of it. Its line makes prompts
// without a cache late.
func TestLostCacheDoesNotLimit(t *testing.T) {
	lost := func(w *engineSim) *engineSim {
		cached := 0.95
		w.draw = func() (prompt, computed float64) { return 2000, 2000 * (1 - cached) }
		w.run(5 * time.Minute)
		cached, w.arrivals = 0, 2.8
		w.measure()
		w.run(10 * time.Minute)
		return w
	}
	with, _ := both(t, "lost cache", lost, usual(), 6, 2000)
	if with.held > 0.01 {
		t.Errorf("%.1f %% of the requests were held", 100*with.held)
	}
}

func TestSlowEngineWithFewSlotsIsLimited(t *testing.T) {
	with, without := both(t, "4 seats, load 2", settled, simEngine{slots: 4, rate: 2000, tokenTime: 0.03}, 1, 300)
	if with.throughput < 0.97*without.throughput || with.mean > 16 {
		t.Errorf("%v; without a bound %v", with, without)
	}
}
