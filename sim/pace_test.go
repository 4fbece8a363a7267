package sim

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"tierway/breaker"
	"tierway/fixedseed"
	"tierway/routing"
)

// pacedSimulation is a simulation with breakers of the workers, connected as in the server.
type pacedSimulation struct {
	*Simulation
	breakers []*breaker.Breaker
	base     time.Time // the bubble's time at the start of the simulation
	opened   []ejected
}

// ejected is one opening of a breaker.
type ejected struct {
	worker string
	at     time.Duration
}

// pacedGate is the breaker of one worker. The bubble's time follows that of the simulation.
type pacedGate struct {
	simulation *pacedSimulation
	*breaker.Breaker
}

func (g pacedGate) Allow(expected time.Duration) (uint64, error) {
	g.simulation.align()
	return g.Breaker.Allow(expected)
}

func (g pacedGate) Report(ticket uint64, err error) {
	g.simulation.align()
	g.Breaker.Report(ticket, err)
}

func (w *pacedSimulation) align() { time.Sleep(time.Until(w.base.Add(w.now))) }

// poll reads the breakers each second.
func (w *pacedSimulation) poll() {
	w.align()
	for _, b := range w.breakers {
		b.Poll()
	}
	w.After(time.Second, w.poll)
}

// breakerChanged reports a breaker's state to the pool.
func (w *pacedSimulation) breakerChanged(e *engineState, c breaker.Change) {
	now := w.time(w.now)
	if c.To == breaker.Closed {
		w.Pool().Restore(e.Name, e, now)
		return
	}
	until := time.Time{}
	if c.To == breaker.Open {
		until = w.time(w.now + time.Until(c.Until))
		w.opened = append(w.opened, ejected{e.Name, w.now})
	}
	w.Pool().Eject(e.Name, e, routing.Ejection{At: now, Until: until, Slow: c.Slow})
}

// ejections runs a simulation with breakers, in a bubble, and returns their openings.
func ejections(t testing.TB, c Config) []ejected {
	t.Helper()
	world, err := newSimulation(c)
	if err != nil {
		t.Fatal(err)
	}
	w := &pacedSimulation{Simulation: world, base: time.Now()}
	policy, err := routing.New(c.Policy)
	if err != nil {
		t.Fatal(err)
	}
	var members []routing.Member
	for _, e := range w.engines {
		b := breaker.New(breaker.Config{}, breaker.Options{
			Rand:     func() float64 { return 0.5 },
			OnChange: func(c breaker.Change) { w.breakerChanged(e, c) },
			Outcome: func(err error) breaker.Outcome {
				switch {
				case err == nil:
					return breaker.Success
				case errors.Is(err, routing.ErrSlow):
					return breaker.TooSlow
				}
				return breaker.Failure
			},
		})
		w.breakers = append(w.breakers, b)
		m := e.member(&w.config)
		m.Gate = pacedGate{w, b}
		members = append(members, m)
	}
	w.Pool().Configure(policy, members)
	w.Pool().SetSlowness(routing.Slowness(breaker.Default().Slow))
	w.At(time.Second, w.poll)
	w.run()
	return w.opened
}

// oneOf returns one of the values.
func oneOf[T any](d *RNG, values ...T) T { return values[d.Below(len(values))] }

// reports lets the engines of some simulations report their load.
func (c *Config) reports(d *RNG) {
	if d.Below(2) == 0 {
		c.Scrape, c.Saturation = time.Second, routing.Saturation{Waiting: 5, KVUsage: 0.9, StaleAfter: 5 * time.Second}
	}
}

// burstConfig is two engines without a configured limit that have prompts cached and
// are idle, and five bursts of 200 such prompts.
func burstConfig(seed uint64) Config {
	const bursts, prompts, quiet = 5, 200, 500 * ms
	d := Split(seed, 77)
	step, distinct, prefix := time.Duration(5+d.Below(25))*ms, oneOf(d, 1, 8, prompts), int64(200+d.Below(4000))
	answer, sigma := oneOf(d, 30.0, 60, 120, 240), oneOf(d, 0, 0.3, 0.7)
	newRequest := func(d *RNG, n int) Request {
		chain := Extend(nil, seed+uint64(n%distinct), prefix)
		return Request{Chain: chain, Prefix: chain[0].Hash, PromptTokens: int64(len(chain)) * BlockTokens,
			OutputTokens: int64(1 + d.Lognormal(answer, sigma))}
	}
	c := Config{
		Seed: seed, Queue: patient(), Policy: routing.Config{Name: oneOf(d, "chwbl", "chwbl", "least_load", "round_robin")},
		Engines: identical(2, Engine{MaxSeqs: oneOf(d, 16, 32, 64, 128), Step: step, StepEach: step / 50,
			CacheTokens: 2_000_000}),
	}
	c.reports(d)
	for n := range prompts { // what the engines have cached, and their pace before
		c.Loads = append(c.Loads,
			Burst{At: time.Duration(n) * quiet, Count: 1, Make: func(d *RNG, _ int) Request { return newRequest(d, n) }})
	}
	at := prompts*quiet + 5*time.Second
	for range bursts {
		c.Loads = append(c.Loads, Burst{At: at, Count: prompts, Make: newRequest})
		at += time.Duration(1+d.Below(60)) * time.Second
	}
	c.Until = at + 2*time.Minute
	return c
}

// TestBurstEjectsNoWorker: streams that wait for slots inside a sound engine do not make it
// slow.
func TestBurstEjectsNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(fixedseed.Samples(20, 400)) {
			if opened := ejections(t, burstConfig(seed)); len(opened) > 0 {
				t.Errorf("seed %d: ejected %v", seed, opened)
			}
		}
	})
}

// soundConfig returns two to six engines that differ by a tenth at most, under any load up to
// more than they can serve.
func soundConfig(seed uint64) Config {
	d := Split(seed, 78)
	n, step, answer := 2+d.Below(5), time.Duration(5+d.Below(25))*ms, d.Lognormal(120, 0.7)
	e := Engine{MaxSeqs: oneOf(d, 8, 16, 32, 64, 128, 256), Rate: d.Lognormal(8000, 0.5), Step: step,
		StepEach: step / time.Duration(20+d.Below(80))}
	prompt, sigma, prefixes := d.Lognormal(800, 1), oneOf(d, 0, 0.5, 1), oneOf(d, 0, 1, 20)
	c := Config{
		Seed: seed, Queue: patient(), Until: 5 * time.Minute,
		Policy: routing.Config{Name: oneOf(d, "chwbl", "chwbl", "least_load", "round_robin", "power_of_two", "random")},
	}
	for range n {
		like := e
		like.Rate *= 0.9 + 0.2*d.Unit()
		like.Step = time.Duration(float64(like.Step) * (0.9 + 0.2*d.Unit()))
		c.Engines = append(c.Engines, like)
	}
	c.reports(d)
	newRequest := func(d *RNG, _ int) Request {
		var chain []routing.Block
		if prefixes > 0 {
			chain = Extend(nil, seed+uint64(d.Below(prefixes)), int64(prompt/2))
		}
		chain = Extend(chain, d.Uint64(), int64(min(30_000, 1+d.Lognormal(prompt/2, sigma))))
		return Request{Chain: chain, Prefix: chain[0].Hash, PromptTokens: int64(len(chain)) * BlockTokens,
			OutputTokens: int64(1 + d.Lognormal(answer, 0.6))}
	}
	service := e.Service(int64(prompt), int64(answer*1.2), e.MaxSeqs/2+1).Seconds()
	// requests/s; a test can run 40
	capacity := min(40, float64(n)*min(float64(e.MaxSeqs)/service, e.Rate/prompt*0.6))
	c.Loads = append(c.Loads, Poisson{Rate: (0.05 + 1.15*d.Unit()) * capacity, Until: c.Until, Make: newRequest})
	for range d.Below(5) {
		c.Loads = append(c.Loads,
			Burst{At: time.Duration(d.Unit() * float64(c.Until)), Count: int(capacity * (1 + 10*d.Unit())), Make: newRequest})
	}
	return c
}

// TestSoundPoolKeepsItsWorkers: under any load, similar engines stay in rotation, except in at
// most one of a hundred simulations of five minutes. An overloaded engine sometimes exceeds the
// factor by chance.
func TestSoundPoolKeepsItsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ejecting := uint64(fixedseed.Samples(15, 3000)), uint64(0)
		for seed := range n {
			if opened := ejections(t, soundConfig(100+seed)); len(opened) > 0 {
				t.Logf("seed %d: ejected %v", 100+seed, opened)
				ejecting++
			}
		}
		if ejecting > n/100 {
			t.Errorf("%d of %d simulations ejected a worker", ejecting, n)
		}
	})
}

// TestSlowWorkerIsEjected: a worker that is four times slower than its peer is found under load
// and with few requests, and its peer stays.
func TestSlowWorkerIsEjected(t *testing.T) {
	for _, c := range []struct {
		name, policy string
		rate         float64 // requests a second
		usual, most  time.Duration
	}{
		{"under load", "chwbl", 4, time.Minute, 90 * time.Second},
		{"one stream in four seconds", "round_robin", 0.25, 3 * time.Minute, 4 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := Engine{MaxSeqs: 32}.withDefaults()
				slow := e
				slow.Rate, slow.Step, slow.StepEach = e.Rate/4, 4*e.Step, 4*e.StepEach
				var found []time.Duration
				for seed := range uint64(8) {
					world := Config{
						Seed: seed, Queue: patient(), Policy: routing.Config{Name: c.policy}, Until: c.most, Engines: []Engine{slow, e},
						Loads: []Load{Poisson{Rate: c.rate, Until: c.most, Make: func(d *RNG, _ int) Request {
							return Request{PromptTokens: int64(d.Lognormal(1500, 0.5)), OutputTokens: int64(1 + d.Lognormal(100, 0.5))}
						}}},
					}
					world.reports(Split(seed, 79))
					opened := ejections(t, world)
					if len(opened) == 0 || slices.ContainsFunc(opened, func(o ejected) bool { return o.worker != "e0" }) {
						t.Fatalf("seed %d: ejected %v", seed, opened)
					}
					found = append(found, opened[0].at)
				}
				slices.Sort(found)
				if found[len(found)/2] > c.usual {
					t.Errorf("the slow worker was found after %s", found)
				}
				t.Logf("found after %s", found)
			})
		})
	}
}
