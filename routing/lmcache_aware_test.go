package routing

import (
	"slices"
	"testing"
	"time"
)

// TestOccupancyWeighsKeysAgainstLoad: 0.7 · keys/most keys + 0.3 · (1 − load/most load).
func TestOccupancyWeighsKeysAgainstLoad(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		loads  []int
		keys   []int64
		want   int
	}{
		"most keys":                   {keys: []int64{10, 100, 50}, want: 1},
		"0.65 and 0.3 against 0.7":    {keys: []int64{100, 93, 0}, loads: []int{9, 0, 0}, want: 1},
		"0.35 and 0.3 against 0.7":    {keys: []int64{100, 50, 0}, loads: []int{9, 0, 0}, want: 0},
		"of equals, the least loaded": {config: Config{CacheWeight: new(1.0)}, keys: []int64{7, 7, 7}, loads: []int{2, 1, 3}, want: 1},
		"load alone":                  {config: Config{CacheWeight: new(0.0)}, keys: []int64{100, 0, 0}, loads: []int{2, 2, 1}, want: 2},
		"another weight":              {config: Config{CacheWeight: new(0.2)}, keys: []int64{100, 10, 0}, loads: []int{9, 1, 0}, want: 2},
		"no keys: abstains":           {keys: []int64{0, 0, 0}, want: -1},
		"below zero: abstains":        {keys: []int64{-1, -5, 0}, want: -1},
	} {
		ws := loadedViews(0, 0, 0)
		if c.loads != nil {
			ws = loadedViews(c.loads...)
		}
		for i := range c.keys {
			ws[i].StoredKeys = c.keys[i]
		}
		i, reason := newLMCacheAware(c.config).Pick(&Request{Now: start}, ws)
		if i != c.want || i >= 0 && reason != ReasonLMCacheOccupancy {
			t.Errorf("%s: %d (%s), want %d", name, i, reason, c.want)
		}
	}
}

// TestFallbackDecidesWithoutKeys (L2): power_of_two, if no other policy is named.
func TestFallbackDecidesWithoutKeys(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		want   []Reason
	}{
		"the default": {Config{Name: lmcacheAwareName}, []Reason{ReasonPowerOfTwo}},
		"another":     {Config{Name: lmcacheAwareName, Fallback: "round_robin"}, []Reason{ReasonRoundRobin}},
		"of a look-up": {Config{Name: lmcacheAwareName, Mode: ModePrefixLookup, Fallback: "round_robin"},
			[]Reason{ReasonLowestCost}},
	} {
		p, err := New(c.config)
		if err != nil {
			t.Fatal(err)
		}
		if i, reason := p.Pick(&Request{Now: start, Rand: 7, PromptTokens: 900}, loadedViews(1, 2, 3)); i < 0 ||
			!slices.Contains(c.want, reason) {
			t.Errorf("%s: %d (%s)", name, i, reason)
		}
	}
}

// TestPoolShowsTheKeysOfWorkers by their Ref, in any order.
func TestPoolShowsTheKeysOfWorkers(t *testing.T) {
	p := kvPool(make([]Member, 3)...)
	policy, _ := New(Config{Name: lmcacheAwareName})
	p.Configure(policy, []Member{{ID: "w0", Ref: 0, Weight: 1}, {ID: "w1", Ref: 1, Weight: 1},
		{ID: "w2", Ref: 2, Weight: 1}})
	for _, stored := range [][]StoredKeys{{{0, 5}, {1, 9}, {2, 1}}, {{2, 1}, {1, 9}}, {{1, 9}, {"other", 99}}} {
		r := Request{Now: start, PromptTokens: 100, Stored: stored, Record: &Choice{}}
		l := book(t, p, r)
		if l.Worker().ID() != "w1" || l.Reason() != ReasonLMCacheOccupancy {
			t.Errorf("%v: %s (%s)", stored, l.Worker().ID(), l.Reason())
		}
		if c := r.Record.CandidateOf("w1"); c.LMCacheKeys != 9 || c.Terms.Get(keysTerm) != 0.7 {
			t.Errorf("%v is recorded as %+v", stored, c)
		}
		l.Release(Result{Err: ErrExcluded})
	}
}

// lookupPool returns a pool of idle workers w0, w1 … that looks prompts up.
func lookupPool(n int) *Pool {
	members := make([]Member, n)
	p := kvPool(members...)
	policy, _ := New(Config{Name: lmcacheAwareName, Mode: ModePrefixLookup})
	p.Configure(policy, members)
	return p
}

// TestLookupIsAnOverlapInsideTheCost (L3): the worker that has the prompt gets it, until its backlog costs more than
// the prefill elsewhere. The cost is that of kv_aware with the same cached tokens by events.
func TestLookupIsAnOverlapInsideTheCost(t *testing.T) {
	found := []CachedPrefix{{Ref: 1, Tokens: 10_000, Lookup: true}}
	known := []CachedPrefix{{Ref: 0}, {Ref: 1, Tokens: 10_000}, {Ref: 2}}
	ask := func(p *Pool, cached []CachedPrefix) (string, Reason, Choice) {
		blocks := prompt(1, 0, 30)
		r := Request{Now: start, Blocks: blocks, Prefix: blocks[0].Hash, PromptTokens: 12_000, OutputTokens: 100,
			Stream: true, Cached: cached, Record: &Choice{}}
		l := book(t, p, r)
		defer l.Release(Result{Err: ErrExcluded})
		return l.Worker().ID(), l.Reason(), *r.Record
	}
	p, events := lookupPool(3), kvPool(make([]Member, 3)...)
	for load := range 4 {
		id, reason, record := ask(p, found)
		wantID, wantReason, want := ask(events, known)
		if id != wantID || (reason == ReasonLMCacheLookup) != (wantReason == ReasonKVEvents) {
			t.Errorf("%d prompts: on %s (%s), and by events on %s (%s)", load, id, reason, wantID, wantReason)
		}
		for i, c := range record.Candidates {
			if c.Score != want.Candidates[i].Score || c.Overlap != want.Candidates[i].Overlap {
				t.Errorf("%d prompts: %s costs %v with %d tokens, by events %v with %d", load, c.Worker, c.Score, c.Overlap,
					want.Candidates[i].Score, want.Candidates[i].Overlap)
			}
		}
		if first := load == 0; first != (id == "w1") && load != 1 && load != 2 {
			t.Errorf("%d prompts: on %s", load, id)
		}
		if c := record.CandidateOf("w1"); c.LMCacheTokens != 10_000 || c.Events {
			t.Errorf("recorded as %+v", c)
		}
		for _, pool := range []*Pool{p, events} { // a cold prompt of 5 s
			book(t, pool, Request{Now: start, Blocks: prompt(10+load, 0, 10), PromptTokens: 40_000, Stream: true, Only: 1})
		}
	}
	if id, _, _ := ask(p, found); id == "w1" {
		t.Error("the prompt waits for 20 s of prefill to save one")
	}
}

// TestInstancesWithoutAnAnswerAreUnknown: the history counts for them, and for a shorter match.
func TestInstancesWithoutAnAnswerAreUnknown(t *testing.T) {
	p := lookupPool(2)
	blocks := prompt(1, 0, 30)
	home := answer(t, p, Request{Now: start, Blocks: blocks[:20], PromptTokens: 10_000, Stream: true}).Worker()
	other := 1 - home.ref.(int)
	for name, c := range map[string]struct {
		cached []CachedPrefix
		want   int64
		reason Reason
	}{
		"no answer":             {want: 10_000, reason: ReasonKVHistory},
		"another has less":      {cached: []CachedPrefix{{Ref: other, Tokens: 512, Lookup: true}}, want: 10_000, reason: ReasonKVHistory},
		"it has less":           {cached: []CachedPrefix{{Ref: home.ref, Tokens: 256, Lookup: true}}, want: 10_000, reason: ReasonKVHistory},
		"it has more":           {cached: []CachedPrefix{{Ref: home.ref, Tokens: 14_848, Lookup: true}}, want: 14_848, reason: ReasonLMCacheLookup},
		"more than the prompt":  {cached: []CachedPrefix{{Ref: home.ref, Tokens: 1 << 50, Lookup: true}}, want: 15_000, reason: ReasonLMCacheLookup},
		"below zero":            {cached: []CachedPrefix{{Ref: home.ref, Tokens: -5, Lookup: true}}, want: 10_000, reason: ReasonKVHistory},
		"looked up long before": {cached: []CachedPrefix{{Ref: home.ref, Tokens: 14_848, Lookup: true}}, want: 10_000, reason: ReasonKVHistory},
	} {
		r := Request{Now: start.Add(time.Second), Blocks: blocks, PromptTokens: 15_000, Stream: true, Cached: c.cached}
		if name == "looked up long before" {
			r.CachedAt = r.Now.Add(-time.Minute)
		}
		l := book(t, p, r)
		if l.Worker() != home || l.Overlap() != c.want || l.Reason() != c.reason {
			t.Errorf("%s: on %s with %d tokens (%s)", name, l.Worker().ID(), l.Overlap(), l.Reason())
		}
		l.Release(Result{Err: ErrExcluded})
	}
}

// TestOnlyTokensBeyondTheHistoryAreLoaded from a slower medium.
func TestOnlyTokensBeyondTheHistoryAreLoaded(t *testing.T) {
	p := lookupPool(1)
	blocks := prompt(1, 0, 30)
	answer(t, p, Request{Now: start, Blocks: blocks[:20], PromptTokens: 10_000, Stream: true})
	r := Request{Now: start.Add(time.Second), Blocks: blocks, PromptTokens: 15_000, Stream: true, Record: &Choice{},
		Cached: []CachedPrefix{{Ref: 0, Tokens: 12_500, Load: 500 * time.Millisecond, Lookup: true}}}
	book(t, p, r)
	if got := r.Record.Candidates[0].Cost.Load; got < 0.0999 || got > 0.1001 {
		t.Errorf("%v s, want those of 2,500 tokens", got)
	}
}

// TestWrongLookupsLoseTheirInfluence: the engines report fewer cached tokens.
func TestWrongLookupsLoseTheirInfluence(t *testing.T) {
	p := lookupPool(2)
	now, reasons := start, []Reason{}
	for i := range 40 {
		now = now.Add(time.Minute)
		l := book(t, p, Request{Now: now, Blocks: prompt(100+i, 0, 10), PromptTokens: 8000, Stream: true,
			Cached: []CachedPrefix{{Ref: 1, Tokens: 7936, Lookup: true}}})
		reasons = append(reasons, l.Reason())
		l.Answered(now.Add(time.Second), nil)
		l.Release(Result{At: now.Add(2 * time.Second), PromptTokens: 8000, CachedTokens: 16, OutputTokens: 2})
	}
	if reasons[0] != ReasonLMCacheLookup || reasons[39] != ReasonLowestCost {
		t.Errorf("%v", reasons)
	}
	for _, w := range p.Snapshot(now) {
		if w.ID == "w1" && (w.LookupCredit >= leastTrust || w.EventsCredit != 1) {
			t.Errorf("%+v", w)
		}
	}
	if n := p.Predictions(); n.Lookups == 0 || n.Lookups > 20 || n.Events != 0 {
		t.Errorf("%+v", n)
	}
}
