package routing

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// kvPool returns a pool of idle workers w0, w1 … with the policy kv_aware.
func kvPool(members ...Member) *Pool {
	for i := range members {
		members[i].ID, members[i].Ref = fmt.Sprint("w", i), i
		members[i].Weight = max(1, members[i].Weight)
	}
	p := poolOf(members...)
	p.Configure(newKVAware(), members)
	return p
}

// book sends a request that stays in flight.
func book(t *testing.T, p *Pool, r Request) *Lease {
	t.Helper()
	l, err := p.Acquire(&r)
	if err != nil {
		t.Fatal(err)
	}
	return &l
}

func TestColdPromptGoesToTheShortestBacklog(t *testing.T) {
	p := kvPool(make([]Member, 4)...)
	var used []string
	for i := range 4 {
		blocks := prompt(i, 0, 100)
		l := book(t, p, Request{Now: start, Prefix: blocks[0].Hash, Blocks: blocks, PromptTokens: 8000, OutputTokens: 100,
			Stream: true})
		if used = append(used, l.Worker().ID()); l.Reason() != ReasonLowestCost {
			t.Errorf("the reason is %s", l.Reason())
		}
	}
	if slices.Sort(used); len(slices.Compact(used)) != 4 {
		t.Errorf("four prompts are on %v", used)
	}
}

func TestConversationReturnsToItsCacheUntilTheBacklogCostsMore(t *testing.T) {
	p := kvPool(Member{}, Member{})
	blocks := prompt(1, 100, 30)
	home := answer(t, p, Request{Now: start, Blocks: blocks[:20], PromptTokens: 10_000, Stream: true}).Worker()
	next := Request{Now: start.Add(time.Second), Blocks: blocks, PromptTokens: 15_000, OutputTokens: 100, Stream: true}
	l := book(t, p, next)
	if l.Worker() != home || l.Reason() != ReasonKVHistory || l.Overlap() != 10_000 {
		t.Errorf("the next turn is on %s by %s with %d cached tokens", l.Worker().ID(), l.Reason(), l.Overlap())
	}
	l.Release(Result{Err: ErrExcluded})
	for i := range 3 { // three cold prompts of 5 s each
		book(t, p, Request{Now: start.Add(time.Second), Blocks: prompt(10+i, 0, 10), PromptTokens: 40_000, Stream: true,
			Only: home.ref})
	}
	if l := book(t, p, next); l.Worker() == home {
		t.Error("the next turn waits for 15 s of prefill to save one")
	}
}

func TestGatewaysAgreeOnAnIdleWorkerForAPrompt(t *testing.T) {
	chosen := map[string]int{}
	for prefix := range uint64(400) {
		first := ""
		for gateway := range 3 {
			p := kvPool(make([]Member, 4)...)
			l := book(t, p, Request{Now: start, Rand: uint64(gateway), Prefix: Mix(prefix + 1), PromptTokens: 500, Stream: true})
			if first == "" {
				first = l.Worker().ID()
			}
			if id := l.Worker().ID(); id != first {
				t.Fatalf("gateway %d sends prompt %d to %s, another one to %s", gateway, prefix, id, first)
			}
		}
		chosen[first]++
	}
	for i := range 4 {
		if n := chosen[fmt.Sprint("w", i)]; n < 60 || n > 140 {
			t.Errorf("w%d is the home of %d of 400 prompts", i, n)
		}
	}
}

func TestCacheEventsReplaceTheModel(t *testing.T) {
	p := kvPool(Member{}, Member{})
	blocks := prompt(1, 100, 20)
	r := Request{Now: start, Blocks: blocks, PromptTokens: 10_000, Stream: true}
	old := answer(t, p, r).Worker()
	other := 1 - old.index
	r.Cached = []CachedPrefix{{Ref: other, Tokens: 9600}, {Ref: old.ref, Tokens: 0}}
	if l := book(t, p, r); l.Worker().index != other || l.Reason() != ReasonKVEvents || l.Overlap() != 9600 {
		t.Errorf("%s by %s with %d cached tokens", l.Worker().ID(), l.Reason(), l.Overlap())
	}
	if n := p.Predictions(); n.Events != 1 || n.None != 1 {
		t.Errorf("%+v", n)
	}
	r.Cached[0].Load = 3 * time.Second // slower than computing it
	if l := book(t, p, r); l.Worker() != old {
		t.Error("the prompt is loaded for 3 s instead of computed in 1.2 s")
	}
}

// TestEventsOfAPromptsBeginningDoNotHideTheRest: the history knows more of a prompt whose tokens are
// known only up to its system message.
func TestEventsOfAPromptsBeginningDoNotHideTheRest(t *testing.T) {
	p := kvPool(Member{}, Member{})
	r := Request{Now: start, Blocks: prompt(1, 100, 20), PromptTokens: 10_000, Stream: true}
	old := answer(t, p, r).Worker()
	other := 1 - old.index
	for _, c := range []struct {
		own, others CachedPrefix
		home        bool
		reason      Reason
	}{
		{CachedPrefix{Tokens: 512, More: true}, CachedPrefix{Tokens: 512, More: true}, true, ReasonKVHistory},
		{CachedPrefix{Tokens: 0}, CachedPrefix{Tokens: 512, More: true}, false, ReasonKVEvents},
		{CachedPrefix{Tokens: 512}, CachedPrefix{Tokens: 9600, More: true}, false, ReasonKVEvents},
	} {
		c.own.Ref, c.others.Ref = old.ref, other
		r.Cached = []CachedPrefix{c.own, c.others}
		l := book(t, p, r)
		if (l.Worker() == old) != c.home || l.Reason() != c.reason {
			t.Errorf("%+v and %+v: %s by %s", c.own, c.others, l.Worker().ID(), l.Reason())
		}
		l.Release(Result{At: r.Now, Err: errors.New("cancelled")})
	}
}

func TestWrongPredictionsLoseTheirInfluence(t *testing.T) {
	p := kvPool(Member{}, Member{})
	blocks := prompt(1, 100, 20)
	r := Request{Now: start, Blocks: blocks, PromptTokens: 10_000, Stream: true}
	turn := func(cached int64, events ...CachedPrefix) *Lease {
		r.Cached = events
		l := book(t, p, r)
		l.Answered(r.Now.Add(time.Second), nil)
		r.Now = r.Now.Add(time.Minute)
		l.Release(Result{At: r.Now, PromptTokens: 10_000, CachedTokens: cached, OutputTokens: 10})
		return l
	}
	w := turn(16).Worker() // the engine reports cached tokens
	events := CachedPrefix{Ref: w.ref, Tokens: 9000}
	first := turn(0, events).Overlap()
	for range 30 {
		turn(0, events)
	}
	if l := turn(0, events); first != 9000 || l.exact || w.credit[fromEvents].trust() >= leastTrust {
		t.Errorf("at first %d tokens counted; the credit of the events is now %v", first, w.credit[fromEvents].trust())
	}
	for range 60 {
		turn(9000, events)
	}
	if l := turn(9000, events); !l.exact || w.credit[fromEvents].trust() < 0.9 {
		t.Errorf("after sixty good predictions the credit of the events is %v", w.credit[fromEvents].trust())
	}
	for range 60 {
		turn(0)
	}
	if n := w.credit[fromHistory].trust(); n > 0.15 {
		t.Errorf("the credit of the model is %v after sixty wrong predictions", n)
	}
	for range 200 {
		turn(9990)
	}
	if n := w.credit[fromHistory].trust(); n < 0.9 {
		t.Errorf("the credit of the model is %v after two hundred good predictions", n)
	}
	n := p.Predictions()
	if n.WrongTokens < 300_000 || n.CachedTokens < 2_400_000 || n.PromptTokens != 354*10_000 {
		t.Errorf("%+v", n)
	}
}

func TestOldEventsDoNotCount(t *testing.T) {
	p := kvPool(Member{})
	blocks := prompt(1, 100, 20)
	r := Request{Now: start.Add(time.Minute), CachedAt: start, Blocks: blocks, PromptTokens: 10_000, Stream: true,
		Cached: []CachedPrefix{{Ref: 0, Tokens: 9000}}}
	if l := book(t, p, r); l.Overlap() != 0 {
		t.Errorf("%d tokens count a minute after the look-up", l.Overlap())
	}
}

// TestRepeatedPromptGoesToItsCheapestHolder: a quarter of the cost may be lost for the whole prompt, but not among
// the workers that have it.
func TestRepeatedPromptGoesToItsCheapestHolder(t *testing.T) {
	for _, c := range []struct {
		name    string
		tokens  int64
		backlog []int64 // tokens on each worker
		want    int
	}{
		{"a holder costs less than an idle worker", 20_000, []int64{23_000, 21_000, 0}, 1},
		{"both cost clearly more", 20_000, []int64{50_000, 60_000, 0}, 2},
		{"without a prompt the load decides", 0, []int64{200, 2000, 100}, 2},
	} {
		p := kvPool(Member{}, Member{}, Member{})
		answer(t, p, Request{Now: start, PromptTokens: 50_000, Stream: true, Only: 1}) // more recent tokens
		for i, tokens := range c.backlog {
			book(t, p, Request{Now: start, PromptTokens: tokens, OutputTokens: 1, Stream: true, Only: i})
		}
		l := book(t, p, Request{Now: start, CachedAt: start, PromptTokens: c.tokens, OutputTokens: 1, Stream: true,
			Cached: []CachedPrefix{{Ref: 0, Tokens: c.tokens}, {Ref: 1, Tokens: c.tokens}, {Ref: 2}}})
		if got := l.Worker().index; got != c.want {
			t.Errorf("%s: worker %d, want %d", c.name, got, c.want)
		}
	}
}

// TestOverloadedEnginesThatStallAnswersShareByRequests: a longer backlog with fewer requests is better only if every
// worker has a backlog and its prefills stall answers.
func TestOverloadedEnginesThatStallAnswersShareByRequests(t *testing.T) {
	for _, c := range []struct{ shorter, stall, want float64 }{{2, 0.8, 1}, {2, 0.1, 0}, {0, 0.8, 0}} {
		facts := CostFacts{PerToken: 1e-4, Step: 0.02, Stall: c.stall}
		ws := []View{{ID: "a", Weight: 1, Inflight: 20, Cost: facts}, {ID: "b", Weight: 1, Inflight: 5, Cost: facts}}
		ws[0].Cost.Backlog, ws[1].Cost.Backlog = c.shorter, 2.5
		r := Request{PromptTokens: 1000, OutputTokens: 10}
		if got, _ := newKVAware().Pick(&r, ws); float64(got) != c.want {
			t.Errorf("backlogs %v and 2.5 s, stall %v: worker %d, want %v", c.shorter, c.stall, got, c.want)
		}
	}
}

func TestTimesAreLearnedBehindManyRequests(t *testing.T) {
	p := kvPool(Member{MaxInflight: 1000})
	state, now := uint64(3), start
	var flying []*Lease
	for range 2000 {
		state++
		tokens := 500 + int64(6000*Unit(Draw(state)))
		l := book(t, p, Request{Now: now, PromptTokens: tokens, OutputTokens: 50, Stream: true})
		now = now.Add(seconds(0.01 + float64(tokens)/20_000))
		l.Answered(now, nil)
		if flying = append(flying, l); len(flying) > 256 {
			flying[0].Release(Result{At: now, PromptTokens: flying[0].prompt, OutputTokens: 50, Text: true})
			flying = flying[1:]
		}
	}
	if got := p.prefillSecondsLocked(p.workers[0], oneByOne, prefillRegressors(5000, 256, true)); got < 0.2 || got > 0.35 {
		t.Errorf("with 256 requests in flight a prefill of 0.26 s should take %.2f s", got)
	}
}

func TestRefusalByTheGateLeavesNoTrace(t *testing.T) {
	p := kvPool(Member{Gate: shutGate{}})
	before := p.Predictions()
	for range 50 {
		r := Request{Now: start, PromptTokens: 1000, Stream: true}
		if _, err := p.Acquire(&r); err == nil {
			t.Fatal("the gate is shut")
		}
	}
	if n := p.trafficLocked(); p.Predictions() != before || n.Arrivals != 0 || p.workers[0].costs.recent != 0 {
		t.Errorf("%+v, %+v, %v recent tokens", p.Predictions(), n, p.workers[0].costs.recent)
	}
}

// shutGate refuses all requests.
type shutGate struct{}

func (shutGate) Allow(time.Duration) (uint64, error) { return 0, errors.New("shut") }
func (shutGate) Report(uint64, error)                {}
func (shutGate) ReportCut(time.Time, error)          {}

func TestFullWorkerIsWorthItsWaitByCost(t *testing.T) {
	p := kvPool(Member{MaxInflight: 1}, Member{MaxInflight: 1})
	blocks := prompt(1, 100, 20)
	long := Request{Now: start, Blocks: blocks, PromptTokens: 40_000, OutputTokens: 10, Stream: true, Wait: true}
	w := answer(t, p, long).Worker()
	book(t, p, Request{Now: start, PromptTokens: 10, OutputTokens: 10, Stream: true, Only: w.ref})
	if _, err := p.Acquire(&long); !errors.Is(err, ErrBestWorkerFull) {
		t.Errorf("a slot would be free within 1 s, and the cache saves 5 s: %v", err)
	}
	short := long
	short.Blocks, short.PromptTokens = prompt(2, 0, 1), 100
	if l, err := p.Acquire(&short); err != nil || l.Worker() == w {
		t.Errorf("a short prompt is not on the free worker: %v", err)
	}
}

func TestSpeedsOfUnequalWorkersAreLearned(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		speeds := []float64{rapid.Float64Range(3000, 20_000).Draw(rt, "rate"), 0}
		speeds[1] = speeds[0] * rapid.Float64Range(0.3, 0.8).Draw(rt, "ratio")
		p := kvPool(Member{}, Member{})
		now, state := start, rapid.Uint64().Draw(rt, "seed")
		for i := range 600 {
			state++
			tokens := 1000 + int64(8000*Unit(Draw(state)))
			l, err := p.Acquire(&Request{Now: now, Only: i % 2, PromptTokens: tokens, OutputTokens: 50, Stream: true})
			if err != nil {
				rt.Fatal(err)
			}
			took := (0.01 + float64(tokens)/speeds[l.Worker().index]) * noisy(&state, 0.1)
			now = now.Add(seconds(took))
			l.Answered(now, nil)
			now = now.Add(time.Second)
			l.Release(Result{At: now, PromptTokens: tokens, OutputTokens: 51, Text: true})
			now = now.Add(100 * time.Millisecond)
		}
		for i, w := range p.workers {
			want := 0.01 + 5000/speeds[i]
			if got := p.prefillSecondsLocked(w, oneByOne, prefillRegressors(5000, 0, false)); math.Abs(got/want-1) > 0.15 {
				rt.Errorf("a prefill of 5,000 tokens on %s takes %.3f s, and %.3f s are predicted", w.id, want, got)
			}
		}
	})
}

func TestOrderOfPrefillsIsLearned(t *testing.T) {
	for _, parallel := range []bool{false, true} {
		p := kvPool(Member{MaxInflight: 100}, Member{MaxInflight: 100})
		state, now := uint64(5), start
		busy := [2]time.Time{start, start}
		type flight struct {
			lease Lease
			first time.Time
			r     Result
		}
		var flying []flight
		for range 1500 {
			state++
			tokens := 500 + int64(6000*Unit(Draw(state)))
			now = now.Add(time.Duration(600*Unit(Draw(state+1<<40))) * time.Millisecond)
			flying = slices.DeleteFunc(flying, func(f flight) bool {
				if done := !now.Before(f.first); !done {
					return false
				}
				f.lease.Answered(f.first, nil)
				f.r.At = f.first.Add(time.Second)
				f.lease.Release(f.r)
				return true
			})
			l, err := p.Acquire(&Request{Now: now, Rand: Draw(state), PromptTokens: tokens, OutputTokens: 50, Stream: true})
			if err != nil {
				t.Fatal(err)
			}
			began, w := now, l.Worker().index
			if !parallel && busy[w].After(now) {
				began = busy[w]
			}
			busy[w] = began.Add(seconds(0.01 + float64(tokens)/10_000))
			flying = append(flying, flight{l, busy[w], Result{PromptTokens: tokens, OutputTokens: 51, Text: true}})
			slices.SortStableFunc(flying, func(a, b flight) int { return a.first.Compare(b.first) })
		}
		want := oneByOne
		if parallel {
			want = allAtOnce
		}
		if got := p.times.order(); got != want {
			t.Errorf("parallel engines %v: order %d (errors %v and %v)", parallel, got, p.times.prefill[oneByOne].wrong,
				p.times.prefill[allAtOnce].wrong)
		}
		if got := p.prefillSecondsLocked(p.workers[0], want, prefillRegressors(5000, 1, false)); got < 0.4 || got > 0.65 {
			t.Errorf("parallel engines %v: a prefill of 0.51 s should take %.2f s", parallel, got)
		}
	}
}

func TestBacklogEndsAtZero(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := kvPool(Member{}, Member{})
		var leases []*Lease
		now := start
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 500).Draw(rt, "ms")) * time.Millisecond)
			if len(leases) == 0 || rapid.Bool().Draw(rt, "book") {
				l, err := p.Acquire(&Request{Now: now, PromptTokens: rapid.Int64Range(0, 9000).Draw(rt, "tokens"),
					Stream: rapid.Bool().Draw(rt, "stream")})
				if err != nil {
					rt.Fatal(err)
				}
				leases = append(leases, &l)
				continue
			}
			l := rapid.SampledFrom(leases).Draw(rt, "lease")
			switch rapid.IntRange(0, 2).Draw(rt, "end") {
			case 0:
				l.Answered(now, nil)
			case 1:
				l.Unbook()
			default:
				l.Release(Result{At: now, Err: rapid.SampledFrom([]error{nil, ErrExcluded}).Draw(rt, "error")})
			}
			for _, w := range p.workers {
				if b := w.backlogLocked(now); b < 0 || math.IsNaN(b) || w.costs.first == nil && w.costs.seconds != 0 {
					rt.Fatalf("the backlog of %s is %v s", w.id, b)
				}
			}
		}
		for _, l := range leases {
			l.Release(Result{At: now})
		}
		for _, w := range p.workers {
			if w.costs.first != nil || w.costs.last != nil || w.costs.seconds != 0 {
				rt.Fatalf("%s has a backlog of %v s without requests", w.id, w.costs.seconds)
			}
		}
	})
}
