package sim

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"tierway/routing"
)

// burstOf returns a simulation of three gateways, or of one, and a burst of 64 distinct prompts that arrive within that
// time at eight engines.
func burstOf(policy string, gateways int, seed uint64, within time.Duration) Config {
	var requests at
	d := NewRNG(seed)
	for range 64 {
		r := Request{PromptTokens: 2048, OutputTokens: 200, Chain: Extend(nil, d.Uint64(), 2048)}
		r.Prefix = r.Chain[len(r.Chain)-1].Hash
		requests = append(requests, at{{time.Second + time.Duration(d.Unit()*float64(within)), r}}...)
	}
	return Config{Seed: seed, Gateways: gateways, ShareEvery: 100 * ms, Engines: identical(8, Engine{}),
		Policy: routing.Config{Name: policy}, Admission: Direct, Loads: []Load{requests}, Until: 2 * time.Second}
}

// byWorker counts the requests of each engine.
func byWorker(r *Result) map[string]int {
	n := map[string]int{}
	for _, rec := range r.Records {
		n[rec.Worker]++
	}
	return n
}

// inBursts calls do with the policies, seeds and times of the bursts.
func inBursts(do func(policy string, seed uint64, within time.Duration)) {
	for _, policy := range []string{"kv_aware", "chwbl", "least_load", "power_of_two", "cache_aware"} {
		for seed := range uint64(5) {
			for _, within := range []time.Duration{0, 100 * ms} {
				do(policy, seed, within)
			}
		}
	}
}

// TestGatewaysSpreadABurstOverIdleWorkers: although no gateway has the load of the others in time, at most a
// fourth of the burst goes to one of eight idle engines.
func TestGatewaysSpreadABurstOverIdleWorkers(t *testing.T) {
	inBursts(func(policy string, seed uint64, within time.Duration) {
		for worker, n := range byWorker(play(t, burstOf(policy, 3, seed, within))) {
			if n > 64/4 {
				t.Errorf("%s, seed %d, within %v: %d of 64 requests went to %s", policy, seed, within, n, worker)
			}
		}
	})
}

// TestGatewaysShareOneIdleWorker: if seven engines are busy, the idle one gets at most a fourth of the burst more
// from three gateways than from one.
func TestGatewaysShareOneIdleWorker(t *testing.T) {
	inBursts(func(policy string, seed uint64, within time.Duration) {
		var idle [2]int
		for i, gateways := range []int{1, 3} {
			w, err := newSimulation(burstOf(policy, gateways, seed, within))
			if err != nil {
				t.Fatal(err)
			}
			w.At(time.Second/2, func() { occupy(t, w, w.engines[1:]) })
			idle[i] = byWorker(w.run())["e0"]
		}
		if idle[1] > idle[0]+64/4 {
			t.Errorf("%s, seed %d, within %v: three gateways sent %d of 64 requests to the idle engine, one sent %d", policy,
				seed, within, idle[1], idle[0])
		}
	})
}

// occupy books six requests on each of the engines, from the gateways in turn. They do not end.
func occupy(t *testing.T, w *Simulation, engines []*engineState) {
	t.Helper()
	for _, e := range engines {
		for i := range 6 {
			g := w.gateways[i%len(w.gateways)]
			r := routing.Request{Now: w.time(w.now), Only: e, PromptTokens: 4000, OutputTokens: 200, Stream: true}
			if _, err := g.pool.Acquire(&r); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestGatewaysThatShareAreNearlyAsFastAsOne: the mean time to first token of three gateways that share loads and
// caches is within a twentieth of that of one. Without sharing it is not.
func TestGatewaysThatShareAreNearlyAsFastAsOne(t *testing.T) {
	mean := func(gateways int, every time.Duration, events bool) float64 {
		const seeds = 4 // the means of two seeds differ by up to 5 % between numbers of gateways
		sum := 0.0
		for seed := range uint64(seeds) {
			r := play(t, Config{Seed: seed, Gateways: gateways, ShareEvery: every, Events: events, Admission: Direct,
				Engines: identical(8, Engine{}), Policy: routing.Config{Name: "kv_aware"},
				Loads: []Load{Sessions{Rate: 5, Until: 2 * time.Minute}}})
			sum += r.Figures(20*time.Second).TTFT.Mean().Seconds() / seeds
		}
		return sum
	}
	for _, events := range []bool{false, true} {
		one, shared, alone := mean(1, 0, events), mean(3, 0, events), mean(3, -1, events)
		t.Logf("events %t: one gateway %.3f s, three %.3f s, without sharing %.3f s", events, one, shared, alone)
		if shared > 1.05*one {
			t.Errorf("events %t: three gateways have %.3f s, one has %.3f s", events, shared, one)
		}
		if alone < 1.05*one {
			t.Errorf("events %t: sharing has no effect: %.3f s without it, one gateway has %.3f s", events, alone, one)
		}
	}
}

// TestGatewaysKeepTheInvariants: all leases are released, all requests end, and the same seed gives the same result,
// with each admission.
func TestGatewaysKeepTheInvariants(t *testing.T) {
	for _, a := range []Admission{Queued, Direct, FIFO} {
		c := Config{Seed: 3, Gateways: 3, Engines: identical(4, Engine{MaxInflight: 6}), Admission: a, Queue: patient(),
			Policy: routing.Config{Name: "kv_aware"}, Scrape: time.Second,
			Loads: []Load{Sessions{Rate: 3, Until: 30 * time.Second}}}
		first, second := play(t, c), play(t, c)
		if len(first.Records) < 100 || !reflect.DeepEqual(first.Stats(nil), second.Stats(nil)) {
			t.Errorf("%v: %d requests; %+v, and then %+v", a, len(first.Records), first.Stats(nil), second.Stats(nil))
		}
		for _, e := range first.Engines {
			if a != Direct && e.Most > 6 {
				t.Errorf("%v: %s had %d requests at once, want at most 6", a, e.Name, e.Most)
			}
		}
	}
}

// TestARequestIsPlacedByWhatAnotherGatewayCached: the second turn of a chat finds the cache of the first one,
// although it arrives at another gateway. Without sharing, that gateway knows nothing of the cache.
func TestARequestIsPlacedByWhatAnotherGatewayCached(t *testing.T) {
	for _, every := range []time.Duration{0, -1} {
		w, err := newSimulation(Config{Gateways: 2, ShareEvery: every, Engines: identical(4, Engine{}), Admission: Direct,
			Choices: true, Policy: routing.Config{Name: "kv_aware"}})
		if err != nil {
			t.Fatal(err)
		}
		chain := Extend(nil, 1, 6400)
		for i := range 10 {
			w.At(time.Duration(i)*10*time.Second, func() {
				w.Submit(Request{Chain: chain, PromptTokens: 6400, OutputTokens: 10})
			})
		}
		r := w.run()
		cold := 0
		for _, rec := range r.Records {
			if rec.Choice.CandidateOf(rec.Worker).Overlap == 0 {
				cold++
			}
		}
		if want := 1; every == 0 && cold != want || every < 0 && cold != 2 {
			t.Errorf("shared every %v: %d choices saw no cache", every, cold)
		}
	}
}

func TestPoliciesOfOtherRoutersNeedOneGateway(t *testing.T) {
	_, err := Run(Config{Gateways: 2, Engines: make([]Engine, 1), Admission: Direct, NewPolicy: Peers()[0].New})
	if err == nil || !strings.Contains(err.Error(), "needs one gateway, and there are 2") {
		t.Error(err)
	}
}

// TestGatewaysPrefillEqualPromptsOnce: a prompt counts as cached for the other gateways while it is computed, so that
// they send equal prompts to the same engine.
func TestGatewaysPrefillEqualPromptsOnce(t *testing.T) {
	var requests at
	chain := Extend(nil, 1, 65_536) // more than six seconds of prefill
	for i := range 16 {
		requests = append(requests, at{{time.Second + time.Duration(i)*100*ms,
			Request{Chain: chain, Prefix: chain[0].Hash, PromptTokens: 65_536, OutputTokens: 100}}}...)
	}
	r := play(t, Config{Gateways: 3, Engines: identical(4, Engine{}), Policy: routing.Config{Name: "kv_aware"},
		Admission: Direct, Loads: []Load{requests}})
	cold := 0
	for _, rec := range r.Records {
		if rec.Cached == 0 {
			cold++
		}
	}
	if cold != 1 {
		t.Errorf("%d of 16 equal prompts were prefilled", cold)
	}
}
