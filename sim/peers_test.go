package sim

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tierway/routing"
)

// TestCostsFollowTheirFormulas has the terms of each cost as literals. The engine has 4 requests in
// flight and 3,200 tokens pending; 30 of the prompt's 40 blocks are cached.
func TestCostsFollowTheirFormulas(t *testing.T) {
	w := &Simulation{config: Config{BlockTokens: 64}, now: 200 * ms}
	w.current = &inflight{record: &Record{Request: Request{Chain: make([]routing.Block, 40), PromptTokens: 2560,
		numbers: make([]int32, 40)}}}
	for i := range w.current.record.Request.numbers {
		w.current.record.Request.numbers[i] = int32(i)
	}
	e := &engineState{Engine: Engine{}.withDefaults(), simulation: w, inside: 4}
	e.pending = 3200
	e.addActive([]int32{0, 1, 2, 50, 51}, 60) // 37 of the prompt's blocks are not active
	e.current = load{queue: 2, tokens: 75_000}
	c := &candidate{simulation: w, engine: e, matched: 30, blocks: 40, uncached: 640,
		all: &fleet{engines: 2, inflight: 6, unanswered: 3, leastQueue: 1, mostQueue: 5}}
	for name, x := range map[string]struct{ got, want float64 }{
		"least_inflight": {peerCost("least_inflight", c), 4},
		"loadaware":      {peerCost("loadaware", c), (4-3)/3.0 - 0.75},
		"lmetric":        {peerCost("lmetric", c), 3840 * 5},
		"dynamo":         {peerCost("dynamo", c), 8*60 + 5 + 37},
		"llm_d":          {peerCost("llm_d", c), -(3*0.75 + 2*0.75 + 2*0.75)},
		"e":              {peerCost("e", c), 3840/(10_000*0.984) + 4*0.064 + 4*0.08},
	} {
		if math.Abs(x.got-x.want) > 1e-9 {
			t.Errorf("%s: the cost is %v, want %v", name, x.got, x.want)
		}
	}
}

// peerCost returns the cost of a candidate under the peer of that name.
func peerCost(name string, c *candidate) float64 {
	for _, p := range Peers() {
		if p.Name == name {
			policy, err := p.New(&Simulation{})
			if err != nil {
				return math.NaN()
			}
			return policy.(*scoredPeer).cost(c)
		}
	}
	return math.NaN()
}

// TestEventsAreSeenTenMillisecondsLate: a prompt of ten blocks is cached at 72 ms. A peer counts it as
// cached for two seconds from its dispatch on.
func TestEventsAreSeenTenMillisecondsLate(t *testing.T) {
	prompt := Request{Chain: Extend(nil, 1, 640), PromptTokens: 640, OutputTokens: 1}
	for _, p := range Peers() {
		if p.Name != "lmetric" {
			continue
		}
		w, err := newSimulation(Config{Engines: make([]Engine, 2), NewPolicy: p.New, Admission: Direct,
			Loads: []Load{at{{0, prompt}}}})
		if err != nil {
			t.Fatal(err)
		}
		see := func(when time.Duration, routed bool, want int) {
			w.At(when, func() {
				chosen, other := w.byID[w.requests[0].Worker], 1-w.byID[w.requests[0].Worker].at
				hits := w.index.lookUp(w.requests[0].Request.promptNumbers(), routed)
				if hits[chosen.at] != want || hits[other] != 0 {
					t.Errorf("at %s the index has %v blocks, want %d on engine %d", when, hits, want, chosen.at)
				}
			})
		}
		see(81*ms, false, 0)
		see(81*ms, true, 10)
		see(82*ms, false, 10)
		see(1999*ms, true, 10)
		w.run()
		if routed := w.index.routed[0]; routed != 0 {
			t.Errorf("after two seconds the engines %b still count as those of the prompt", routed)
		}
	}
}

// TestRoutedPromptsAreForgotten: after all requests have ended, only the caches' content is left in the
// index, and all counts are zero.
func TestRoutedPromptsAreForgotten(t *testing.T) {
	for _, p := range Peers() {
		c := Config{Seed: 3, Engines: identical(4, Engine{CacheTokens: 20_000}), NewPolicy: p.New, Admission: Direct,
			Loads: []Load{Sessions{Rate: 2, Until: 20 * time.Second}}}
		w, err := newSimulation(c)
		if err != nil {
			t.Fatal(err)
		}
		allIsGivenBack(t, w, w.run())
		for i, e := range w.engines {
			if e.unanswered != 0 || e.pending != 0 || e.activeBlocks != 0 || e.current != (load{}) {
				t.Errorf("%s: engine %d is left with %+v", p.Name, i, e.engineCounts)
			}
			for number := range e.ahead {
				if e.ahead[number] != 0 {
					t.Fatalf("%s: block %d is left ahead of engine %d", p.Name, number, i)
				}
			}
		}
		if w.index == nil {
			continue
		}
		w.now += eventDelay
		w.index.advance()
		for number := range w.numbers.count() {
			for i, e := range w.engines {
				if got := w.index.cached[number]>>i&1 == 1; got != e.cache.has(number) || w.index.routed[number] != 0 {
					t.Fatalf("%s: block %d on engine %d: the index has %t, routed %b", p.Name, number, i, got,
						w.index.routed[number])
				}
			}
		}
	}
}

// TestPerfectPeerPredictsTheFirstToken: without later arrivals and evictions, the prediction is exact.
func TestPerfectPeerPredictsTheFirstToken(t *testing.T) {
	perfect := Peers()[len(Peers())-1]
	rapid.Check(t, func(t *rapid.T) {
		e := Engine{Chunk: rapid.SampledFrom([]int64{0, 256}).Draw(t, "chunk"), MaxSeqs: rapid.IntRange(0, 4).Draw(t, "seqs")}
		texts := rapid.Uint64Range(2, 4) // prompts with a common prefix, also equal ones
		var requests at
		when := time.Duration(0)
		for i := range rapid.Uint64Range(1, 12).Draw(t, "requests") {
			when += time.Duration(rapid.IntRange(0, 300).Draw(t, "pause"))*ms + 1
			if e.Chunk > 0 { // no common prefix: a step may have the end of a prompt and the start of the next
				texts = rapid.Just(i)
			}
			tokens := rapid.Int64Range(64, 900).Draw(t, "prompt")
			chain := Extend(Extend(nil, texts.Draw(t, "system"), 320), texts.Draw(t, "text"), tokens)
			requests = append(requests, struct {
				when    time.Duration
				request Request
			}{when, Request{Chain: chain, PromptTokens: int64(len(chain)) * BlockTokens,
				OutputTokens: rapid.Int64Range(1, 30).Draw(t, "output")}})
		}
		predicted := time.Duration(0)
		r, err := Run(Config{Engines: []Engine{e}, Admission: Direct, Loads: []Load{requests}, NewPolicy: perfect.New,
			Observer: func(w *Simulation, granted *Record) {
				if granted.Number == len(requests)-1 {
					predicted = w.engines[0].scheduler.timeToFirst(&granted.Request)
				}
			}})
		if err != nil {
			t.Fatal(err)
		}
		if last := r.Records[len(requests)-1]; last.TTFT() != predicted {
			t.Fatalf("the first token came after %s, and %s were predicted", last.TTFT(), predicted)
		}
	})
}
