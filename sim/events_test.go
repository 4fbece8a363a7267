package sim

import (
	"strings"
	"testing"
	"time"

	"tierway/routing"
)

// TestPoolGetsTheCacheEventsOfItsEngines: blocks of requests that did not pass the gateway count as cached
// once their events have arrived, until they are evicted.
func TestPoolGetsTheCacheEventsOfItsEngines(t *testing.T) {
	for _, events := range []bool{false, true} {
		w, err := newSimulation(Config{Engines: identical(2, Engine{CacheTokens: 64 * 20}), Events: events, Choices: true,
			Policy: routing.Config{Name: "kv_aware"}, Admission: Direct})
		if err != nil {
			t.Fatal(err)
		}
		newRequest := func(seed uint64) Request {
			return Request{Chain: Extend(nil, seed, 640), PromptTokens: 640, OutputTokens: 1}
		}
		store := func(seed uint64, blocks int64) {
			w.engines[1].cache.store(w.numbers.appendNumbers(nil, Extend(nil, seed, 64*blocks)))
		}
		w.At(0, func() { store(1, 10) })
		w.At(9*ms, func() { w.Submit(newRequest(1)) })
		w.At(time.Second, func() { store(2, 10) })
		w.At(1010*ms, func() { w.Submit(newRequest(2)) })
		w.At(2*time.Second, func() { store(3, 20) })
		w.At(2010*ms, func() { w.Submit(newRequest(2)) })
		r := w.run()
		seen := func(i int) int64 { return r.Records[i].Choice.CandidateOf("e1").Overlap }
		if seen(0) != 0 {
			t.Errorf("events %t: the policy sees %d tokens before their events", events, seen(0))
		}
		if !events {
			if seen(1) != 0 {
				t.Errorf("without events the policy sees %d tokens", seen(1))
			}
			continue
		}
		if seen(1) == 0 || seen(2) != 0 {
			t.Errorf("the policy sees %d tokens after their events, and %d after their eviction", seen(1), seen(2))
		}
		if second := r.Records[1]; second.Worker != "e1" || second.Cached != 576 {
			t.Errorf("the second request went to %s, which had %d tokens", second.Worker, second.Cached)
		}
	}
}

func TestConfigsThatCannotBeIndexedAreRefused(t *testing.T) {
	for want, c := range map[string]Config{
		"at most 64 engines":     {Engines: make([]Engine, 65), Policy: leastLoad(), Events: true},
		"needs direct admission": {Engines: make([]Engine, 1), NewPolicy: Peers()[0].New},
	} {
		if _, err := Run(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestIdenticalPromptsArePrefilledOnce: of sixteen equal prompts that arrive within a millisecond at four
// idle engines, one is prefilled, and the others find its blocks.
func TestIdenticalPromptsArePrefilledOnce(t *testing.T) {
	for _, chunk := range []int64{0, 2048} {
		for _, events := range []bool{false, true} {
			chain := Extend(nil, 1, 8192)
			var requests at
			for i := range 16 {
				requests = append(requests, at{{time.Second + time.Duration(i)*60*time.Microsecond,
					Request{Chain: chain, Prefix: chain[0].Hash, PromptTokens: 8192, OutputTokens: 100}}}...)
			}
			r := play(t, Config{Engines: identical(4, Engine{Chunk: chunk}), Policy: routing.Config{Name: "kv_aware"},
				Events: events, Admission: Direct, Loads: []Load{requests}})
			cold := 0
			for _, rec := range r.Records {
				if rec.Cached == 0 {
					cold++
				}
			}
			if cold != 1 {
				t.Errorf("chunk %d, events %t: %d of 16 equal prompts were prefilled", chunk, events, cold)
			}
		}
	}
}
