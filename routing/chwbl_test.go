package routing

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"
)

// 200 prefixes by Zipf's law on 8 workers, with arrivals and holding times of
// pure chance: the bound leaves room for chance, so that nearly all stay home.
// How many can depends on where the hottest prefixes lie: two of them on one
// worker are more than its bound, the more surely the more are in flight. So
// each cell is the median of nine sets of prefixes, and up to 32 in flight the
// luckiest set has 97 % without the bound on tokens and 95 % with it.
func TestNearlyAllRequestsReachHome(t *testing.T) {
	const sets = 9
	for _, c := range []struct {
		inflight        float64
		requests, whole float64 // least share at home without and with the bound on tokens
	}{
		{2, 0.97, 0.95}, {8, 0.97, 0.95}, {32, 0.955, 0.93}, {128, 0.92, 0.89}, {512, 0.89, 0.87},
	} {
		for _, tokens := range []bool{false, true} {
			var home, spread, copies []float64
			for set := range uint64(sets) {
				p := mustCHWBL(t, Config{Depth: "fixed"})
				if !tokens {
					p.tokens = 0
				}
				h, s, c := homeRate(p, c.inflight, set)
				home, spread, copies = append(home, h), append(spread, s), append(copies, c)
			}
			slices.Sort(home)
			slices.Sort(spread)
			slices.Sort(copies)
			t.Logf("%3.0f in flight, token bound %5v: %.1f %% home (%.1f to %.1f), p99 of max/mean in flight %.2f, %.2f workers a hot prefix",
				c.inflight, tokens, 100*home[sets/2], 100*home[0], 100*home[sets-1], spread[sets/2], copies[sets/2])
			want := c.requests
			if tokens {
				want = c.whole
			}
			if home[sets/2] < want {
				t.Errorf("%.0f in flight, token bound %v: %.1f %% at home, want %.1f", c.inflight, tokens, 100*home[sets/2], 100*want)
			}
			if lucky := home[sets-1]; c.inflight <= 32 && (lucky < 0.95 || !tokens && lucky < 0.97) {
				t.Errorf("%.0f in flight, token bound %v: %.1f %% at home for the luckiest set", c.inflight, tokens, 100*lucky)
			}
			if copies[sets/2] > 2 {
				t.Errorf("%.0f in flight, token bound %v: a hot prefix is on %.2f workers", c.inflight, tokens, copies[sets/2])
			}
		}
	}
}

func homeRate(p Policy, inflight float64, set uint64) (home, p99, copies float64) {
	const requests, prefixes, hot = 5_000, 200, 20
	w, sums := newWorld(p, 8), zipf(prefixes, 0.9)
	var spread []float64
	var holders [hot]map[int]bool
	for i := range holders {
		holders[i] = map[int]bool{}
	}
	reached := 0
	for i := range requests {
		w.now = w.now.Add(w.dice.exp(time.Duration(float64(time.Second) / inflight)))
		prefix, tokens := w.dice.draw(sums), int64(400)
		if w.dice.below(10) == 0 {
			tokens = 12_000
		}
		hold := w.dice.exp(time.Second)
		worker, reason := w.send(&Request{Prefix: mix(set<<32 + uint64(prefix) + 1), PromptTokens: tokens}, hold, hold)
		if reason == ReasonPrefixHome {
			reached++
		}
		if i > 2000 {
			spread = append(spread, w.imbalance())
		}
		if prefix < hot && i >= requests-2000 {
			holders[prefix][worker] = true
		}
	}
	slices.Sort(spread)
	for i := range holders {
		copies += float64(len(holders[i])) / hot
	}
	return float64(reached) / requests, spread[len(spread)*99/100], copies
}

// auditor checks each choice of a chwbl of default settings with arithmetic of
// its own, under the pool's lock.
type auditor struct {
	Policy
	t       *testing.T
	reasons map[Reason]int
}

func (a *auditor) Pick(r *Request, ws []View) (int, Reason) {
	inflight, weight, tokens, n := 1, 0, int64(0), float64(len(ws))
	for _, v := range ws {
		inflight, weight, tokens = inflight+v.Inflight, weight+v.Weight, tokens+v.PendingTokens+v.OutputTokens
	}
	squares := a.Policy.(*chwbl).squares // before it learns from this one
	admits := func(v View) bool {
		mean := float64(inflight) / n
		slack := max(16_000, 2*math.Sqrt(mean*squares))
		fair := float64(v.Weight) * n / float64(weight)
		adds := r.PromptTokens - min(v.Overlap, r.PromptTokens) + r.OutputTokens
		// A whole number is at most a ceiling exactly when one less is below what is rounded up.
		return float64(v.Inflight) < (1.25*mean+2*math.Sqrt(mean))*fair &&
			float64(v.PendingTokens+v.OutputTokens+adds) <= 1.25*float64(tokens+adds)/n*fair+slack
	}
	i, reason := a.Policy.Pick(r, ws)
	a.reasons[reason]++
	switch reason {
	case ReasonPrefixHome, ReasonPrefixOverflow:
		if idle := reason == ReasonPrefixHome && ws[i].Inflight == 0; !idle && !admits(ws[i]) {
			a.t.Errorf("%s broke the bound: %+v", reason, ws[i])
		}
	case ReasonPrefixSaturated:
		if slices.ContainsFunc(ws, admits) {
			a.t.Errorf("%s although somebody has room", reason)
		}
	default:
		a.t.Errorf("reason %q", reason)
	}
	return i, reason
}

func TestTheBoundHoldsUnderConcurrency(t *testing.T) {
	const goroutines, rounds = 64, 60
	a := &auditor{Policy: mustCHWBL(t, Config{}), t: t, reasons: map[Reason]int{}}
	members := make([]Member, 8)
	for i := range members {
		members[i] = Member{ID: fmt.Sprint("w", i), Weight: 1 + i%3, MaxInflight: 40}
	}
	p := poolOf(members...)
	p.Configure(a, members)
	var group sync.WaitGroup
	for g := range goroutines {
		group.Go(func() {
			d := dice(g + 1)
			var held []Lease
			for i := range rounds {
				if d := a.Policy.(Adaptive).Depth(); d.Splits > maxBranches {
					t.Errorf("the depth is %+v", d)
				}
				now := start.Add(time.Duration(i) * time.Millisecond)
				blocks := prompt(d.below(5)*d.below(5), 4+d.below(3), 12)
				r := &Request{
					Now: now, Rand: d.next(), Blocks: blocks, Prefix: blocks[0].Hash, Stream: true,
					PromptTokens: int64(1 + d.below(20_000)), OutputTokens: int64(d.below(600)),
				}
				if l, err := p.Acquire(r); err == nil {
					held = append(held, l)
				}
				if len(held) > 3 || d.below(3) == 0 && len(held) > 0 {
					held[0].Answered(now, nil)
					held[0].Release(Result{})
					held = slices.Delete(held, 0, 1)
				}
			}
			for i := range held {
				held[i].Release(Result{})
			}
		})
	}
	group.Wait()
	noChains(t, p)
	t.Logf("reasons: %v", a.reasons)
	if a.reasons[ReasonPrefixHome] == 0 || a.reasons[ReasonPrefixOverflow] == 0 {
		t.Errorf("the test does not reach the bound: %v", a.reasons)
	}
}

// Of identical prompts that come at once the first is prefilled and the others
// wait for it: spread over the pool, each worker would compute it.
func TestIdenticalPromptsStayTogether(t *testing.T) {
	members := make([]Member, 4)
	for i := range members {
		members[i] = Member{ID: fmt.Sprint("w", i), Weight: 1}
	}
	p := poolOf(members...)
	p.Configure(mustCHWBL(t, Config{}), members)
	used := map[string]int{}
	blocks := prompt(3, 0, 64)
	for i := range 16 {
		l, err := p.Acquire(&Request{
			Now: start, Rand: uint64(i) * golden, Blocks: blocks, Prefix: blocks[0].Hash,
			PromptTokens: 8192, OutputTokens: 256, Stream: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		used[l.Worker().ID()]++
	}
	t.Logf("16 prompts of 8k tokens went %v", used)
	if len(used) > 2 {
		t.Errorf("16 identical prompts went to %d workers: %v", len(used), used)
	}
}

// equals returns workers of weight 1 with those requests in flight.
func equals(inflight ...int) []View {
	ws := make([]View, len(inflight))
	for i, n := range inflight {
		ws[i] = View{ID: fmt.Sprint("w", i), Index: i, Weight: 1, Inflight: n}
	}
	return ws
}

func TestTheBoundIsWhatTheFormulaSays(t *testing.T) {
	weighted := func(weights ...int) []View {
		ws := equals(make([]int, len(weights))...)
		for i, w := range weights {
			ws[i].Weight = w
		}
		return ws
	}
	with := func(ws []View, i int, change func(v *View)) []View {
		change(&ws[i])
		return ws
	}
	zero := 0.0
	classic, tenth := Config{Epsilon: &zero, Slack: &zero}, 0.1
	for name, c := range map[string]struct {
		config Config
		ws     []View
		r      Request
		want   string // by worker, + admits
	}{
		"an idle pool admits all":                      {ws: equals(0, 0, 0, 0), want: "++++"},
		"1.25·1 + 2·1 = 3.25":                          {ws: equals(3, 0, 0, 0), want: "++++"},
		"1.25·1.25 + 2·√1.25 = 3.80 rounds up to 4":    {ws: equals(4, 0, 0, 0), want: "-+++"},
		"1.25·4 + 2·2 = 9":                             {ws: equals(8, 9, 7, 7, 7, 0, 0, 0, 1, 0), want: "+-++++++++"},
		"ε 0, slack 0: one each":                       {config: classic, ws: equals(0, 1, 1, 0), want: "+--+"},
		"ε 0, slack 0: the mean of 2 is the bound":     {config: classic, ws: equals(2, 1, 2, 2), want: "-+--"},
		"ε 0, slack 0: a mean of 1.25 rounds up to 2":  {config: classic, ws: equals(1, 1, 1, 1), want: "++++"},
		"ε 0, slack 0: whole products are not rounded": {config: classic, ws: with(weighted(1, 1, 1), 0, func(v *View) { v.Inflight = 2 }), want: "-++"},
		"1.1·50 is 55, whatever its last bit":          {config: Config{Epsilon: &tenth, Slack: &zero}, ws: equals(55, 44), want: "-+"},
		"twice the mean weight, twice the bound": {
			config: classic, ws: with(with(weighted(4, 1, 1, 2), 0, func(v *View) { v.Inflight = 1 }), 3, func(v *View) { v.Inflight = 2 }), want: "+++-"},
		"and no more than twice": {
			config: classic, ws: with(weighted(4, 1, 1, 2), 0, func(v *View) { v.Inflight = 3 }), want: "-+++"},
		"weights 3 and 1, mean 2: 3 and 1": {
			config: classic, ws: with(with(weighted(3, 1), 0, func(v *View) { v.Inflight = 2 }), 1, func(v *View) { v.Inflight = 1 }), want: "+-"},
		"tokens: 16,000 are free": {
			ws: equals(0, 0), r: Request{PromptTokens: 40_000}, want: "++"}, // 40,000 ≤ 1.25·40,000/2 + 16,000 = 41,000
		"tokens: a prompt over it is too much for all": {
			ws: equals(0, 0), r: Request{PromptTokens: 42_667}, want: "--"}, // 42,667 > 26,666.9 + 16,000
		"tokens: both accounts and the answer count": {
			ws: with(equals(0, 0), 0, func(v *View) { v.PendingTokens, v.OutputTokens = 20_000, 20_000 }),
			r:  Request{PromptTokens: 1000, OutputTokens: 1667}, want: "-+"}, // 42,667 as before
		"tokens: up to the bound": {
			ws: with(equals(0, 0), 0, func(v *View) { v.PendingTokens, v.OutputTokens = 20_000, 20_000 }),
			r:  Request{PromptTokens: 1000, OutputTokens: 1666}, want: "++"},
		"tokens: a prompt adds to what is pending": {
			ws: with(equals(0, 0), 0, func(v *View) { v.PendingTokens = 42_000 }),
			r:  Request{PromptTokens: 30_000}, want: "-+"}, // 72,000 > 1.25·72,000/2 + 16,000 = 61,000
		"tokens: but not what is prefilled there anyway": {
			ws: with(equals(0, 0), 0, func(v *View) { v.PendingTokens, v.Overlap = 42_000, 30_000 }),
			r:  Request{PromptTokens: 30_000}, want: "++"}, // 42,000 ≤ 1.25·42,000/2 + 16,000 = 42,250
		"tokens: by weight": {
			ws: with(weighted(3, 1), 1, func(v *View) { v.PendingTokens = 30_000 }),
			r:  Request{PromptTokens: 10_000}, want: "+-"}, // share of weight 1: 1.25·40,000/2·0.5 = 12,500; 40,000 > 28,500
		"tokens: negative ones are none": {ws: equals(0, 0), r: Request{PromptTokens: -1 << 62, OutputTokens: -1 << 62}, want: "++"},
	} {
		b, got := mustCHWBL(t, c.config).bound(&c.r, c.ws), ""
		for i := range c.ws {
			if b.admits(&c.ws[i]) {
				got += "+"
			} else {
				got += "-"
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s (%+v)", name, got, c.want, b)
		}
	}
}

// homeOf returns the worker that a request goes to when nothing is booked.
func homeOf(t *testing.T, c Config, r Request, n int) int {
	t.Helper()
	i, reason := mustCHWBL(t, c).Pick(&r, equals(make([]int, n)...))
	if reason != ReasonPrefixHome && reason != ReasonModelHome {
		t.Fatalf("the request went to %d for %q", i, reason)
	}
	return i
}

func TestARefusedRequestGoesToTheNextWithRoom(t *testing.T) {
	r := Request{Prefix: 42}
	fixed := Config{Depth: "fixed"}
	home := homeOf(t, fixed, r, 4)
	ws := equals(0, 0, 0, 0)
	p := mustCHWBL(t, fixed)
	ws[home].Inflight = 9
	next, reason := p.Pick(&r, ws)
	if next == home || reason != ReasonPrefixOverflow {
		t.Errorf("over its bound the home %d was passed for %d (%s)", home, next, reason)
	}
	// The second home is the same for as long as the first has no room, however
	// little the others have.
	ws[next].Inflight = 1
	if again, reason := p.Pick(&r, ws); again != next || reason != ReasonPrefixOverflow {
		t.Errorf("the second home was %d and is %d (%s)", next, again, reason)
	}
	// Who is not eligible has its place taken by the one to whom it overflows.
	left := slices.Delete(slices.Clone(ws), home, home+1)
	for i := range left {
		left[i].Inflight = 0
	}
	if i, reason := p.Pick(&r, left); left[i].ID != ws[next].ID || reason != ReasonPrefixHome {
		t.Errorf("without its home it went to %s (%s), want %s", left[i].ID, reason, ws[next].ID)
	}
	// When all refuse, the home has it: nobody would find its cache elsewhere.
	r.PromptTokens = 100_000
	if i, reason := p.Pick(&r, equals(1, 1, 1, 1)); i != home || reason != ReasonPrefixSaturated {
		t.Errorf("too much for all it went to %d (%s), want home %d", i, reason, home)
	}
	// An idle home has no bound: others with more weight would take it else.
	for _, ws := range [][]View{equals(0, 0, 0, 0), weighted(1, 50, 50, 50)} {
		home, _ := p.Pick(&Request{Prefix: r.Prefix, PromptTokens: 1}, ws)
		if i, reason := p.Pick(&r, ws); i != home || reason != ReasonPrefixHome {
			t.Errorf("its idle home is %d, and it went to %d (%s)", home, i, reason)
		}
	}
}

// A full home is not eligible: saturated by its bound, the prompt goes to who
// stands in for it.
func TestAllRefusedAndTheHomeFullGoesToItsNext(t *testing.T) {
	r := Request{Prefix: 42, PromptTokens: 1 << 30}
	p, ws := mustCHWBL(t, Config{Depth: "fixed"}), equals(1, 1, 1, 1)
	home, _ := p.Pick(&r, ws)
	i, reason := p.Pick(&r, slices.Delete(slices.Clone(ws), home, home+1))
	if reason != ReasonPrefixSaturated {
		t.Errorf("it went to %d (%s)", i, reason)
	}
}

func TestNoPromptGoesByLoadOrByModel(t *testing.T) {
	busy := equals(9, 9, 9, 9)
	busy[2].Inflight = 0
	for name, c := range map[string]struct {
		config Config
		r      Request
		want   Reason
	}{
		"least load is the default":    {Config{}, Request{Model: 7}, ReasonLeastLoad},
		"and may be named":             {Config{NoKey: "least_load"}, Request{Model: 7}, ReasonLeastLoad},
		"by model":                     {Config{NoKey: "model_hash"}, Request{Model: 7}, ReasonModelHome},
		"no model either":              {Config{NoKey: "model_hash"}, Request{}, ReasonLeastLoad},
		"a prompt comes before":        {Config{NoKey: "model_hash"}, Request{Model: 7, Prefix: 3}, ReasonPrefixHome},
		"a chain alone is a prompt":    {Config{NoKey: "model_hash"}, Request{Model: 7, Blocks: prompt(1, 0, 3)}, ReasonPrefixHome},
		"but for fixed the first turn": {Config{Depth: "fixed"}, Request{Blocks: prompt(1, 0, 3)}, ReasonLeastLoad},
	} {
		i, reason := mustCHWBL(t, c.config).Pick(&c.r, equals(0, 0, 0, 0))
		if reason != c.want {
			t.Errorf("%s: %d for %q, want %q", name, i, reason, c.want)
		}
		if i, reason := mustCHWBL(t, c.config).Pick(&c.r, busy); reason == ReasonLeastLoad && i != 2 {
			t.Errorf("%s: %d is not the least loaded", name, i)
		}
	}
	byModel := Config{NoKey: "model_hash"}
	home := homeOf(t, byModel, Request{Model: 7}, 4)
	ws := equals(0, 0, 0, 0)
	ws[home].Inflight = 9
	if i, reason := mustCHWBL(t, byModel).Pick(&Request{Model: 7}, ws); i == home || reason != ReasonModelOverflow {
		t.Errorf("over its bound the model's home has %d (%s)", i, reason)
	}
	if i, reason := mustCHWBL(t, byModel).Pick(&Request{Model: 7, OutputTokens: 1 << 40}, ws); i != home || reason != ReasonModelSaturated {
		t.Errorf("too much for all it went to %d (%s), want %d", i, reason, home)
	}
}

func TestMaxPrefixLengthBoundsTheKey(t *testing.T) {
	// Blocks of 100 characters; the first turn ends with the fourth.
	blocks := make([]Block, 8)
	for i := range blocks {
		blocks[i] = Block{Hash: uint64(i + 1), End: int64(i+1) * 100}
	}
	for _, c := range []struct {
		max    int
		blocks []Block
		first  uint64
		want   uint64
	}{
		{0, blocks, 4, 4},
		{0, nil, 4, 4},
		{1, nil, 4, 4}, // without a chain nothing is known about its length
		{400, blocks, 4, 4},
		{401, blocks, 4, 4},
		{800, blocks, 4, 4},
		{399, blocks, 4, 3},
		{200, blocks, 4, 2},
		{100, blocks, 4, 1},
		{1, blocks, 4, 1}, // the first one whatever its length
		{250, blocks[:1], 1, 1},
	} {
		p := mustCHWBL(t, Config{Depth: "fixed", MaxPrefixLength: c.max})
		if _, got := p.key(&Request{Blocks: c.blocks, Prefix: c.first}, 4); got != c.want {
			t.Errorf("max_prefix_length %d of %d blocks: key %d, want %d", c.max, len(c.blocks), got, c.want)
		}
	}
	// Adaptive: however deep the prompts are the same, the key lies within.
	p := mustCHWBL(t, Config{MaxPrefixLength: 250})
	for range 1000 {
		if _, key := p.key(&Request{Now: start, Blocks: blocks, Prefix: 4}, 4); key > 2 {
			t.Fatalf("key %d is beyond 250 characters", key)
		}
	}
}

// TestTheTokenBoundHasRoomForUsualSizes: two standard deviations of what comes,
// 16,000 tokens at least, and no giant among them counts for more than a context.
func TestTheTokenBoundHasRoomForUsualSizes(t *testing.T) {
	p := mustCHWBL(t, Config{Depth: "fixed"})
	for range 1000 {
		p.Pick(&Request{Prefix: 1, PromptTokens: 11_000, OutputTokens: 1_000}, equals(0, 0, 0, 0))
	}
	if got, want := p.room(4), 2*2*12_000.0; math.Abs(got-want) > want/100 {
		t.Errorf("at a mean of 4 requests of 12,000 tokens there is room for %.0f, want %.0f", got, want)
	}
	if got := p.room(0.25); got != 16_000 {
		t.Errorf("at a mean of a quarter there is room for %.0f", got)
	}
	p.Pick(&Request{Prefix: 1, PromptTokens: 1 << 40}, equals(0, 0, 0, 0))
	if got := p.room(4); got > 2*2*(12_000+131_072.0/8) {
		t.Errorf("one giant makes room for %.0f", got)
	}
}
