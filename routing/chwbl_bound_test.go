package routing

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestLoadBoundHoldsUnderConcurrency(t *testing.T) {
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
			d := rng(g + 1)
			var held []Lease
			for i := range rounds {
				if d := a.Policy.(Adaptive).Depth(); d.Splits > 128 {
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

// with returns ws with one changed view.
func with(ws []View, i int, change func(v *View)) []View {
	change(&ws[i])
	return ws
}

func TestLoadBoundIsTheFormula(t *testing.T) {
	zero := 0.0
	classic, tenth := Config{Epsilon: &zero, Slack: &zero}, 0.1
	for name, c := range map[string]struct {
		config Config
		ws     []View
		r      Request
		want   string // by worker, + admits
	}{
		"an idle pool admits all":                     {ws: equals(0, 0, 0, 0), want: "++++"},
		"1.25·1 + 2·1 = 3.25":                         {ws: equals(3, 0, 0, 0), want: "++++"},
		"1.25·1.25 + 2·√1.25 = 3.80 rounds up to 4":   {ws: equals(4, 0, 0, 0), want: "-+++"},
		"1.25·4 + 2·2 = 9":                            {ws: equals(8, 9, 7, 7, 7, 0, 0, 0, 1, 0), want: "+-++++++++"},
		"ε 0, slack 0: one each":                      {config: classic, ws: equals(0, 1, 1, 0), want: "+--+"},
		"ε 0, slack 0: the mean of 2 is the bound":    {config: classic, ws: equals(2, 1, 2, 2), want: "-+--"},
		"ε 0, slack 0: a mean of 1.25 rounds up to 2": {config: classic, ws: equals(1, 1, 1, 1), want: "++++"},
		"ε 0, slack 0: whole products are not rounded": {config: classic,
			ws: with(weighted(1, 1, 1), 0, func(v *View) { v.Inflight = 2 }), want: "-++"},
		"1.1·50 is 55, whatever its last bit": {config: Config{Epsilon: &tenth, Slack: &zero}, ws: equals(55, 44),
			want: "-+"},
		"twice the mean weight, twice the bound": {
			config: classic, ws: with(with(weighted(4, 1, 1, 2), 0, func(v *View) { v.Inflight = 1 }), 3,
				func(v *View) { v.Inflight = 2 }), want: "+++-"},
		"and no more than twice": {
			config: classic, ws: with(weighted(4, 1, 1, 2), 0, func(v *View) { v.Inflight = 3 }), want: "-+++"},
		"weights 3 and 1, mean 2: 3 and 1": {
			config: classic, ws: with(with(weighted(3, 1), 0, func(v *View) { v.Inflight = 2 }), 1,
				func(v *View) { v.Inflight = 1 }), want: "+-"},
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
		"tokens: negative ones are none": {ws: equals(0, 0), r: Request{PromptTokens: -1 << 62, OutputTokens: -1 << 62},
			want: "++"},
	} {
		b, got := mustCHWBL(t, c.config).bound(&c.r, c.ws, 0, -1), ""
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

// TestTokenBoundHasRoomForTypicalSizes: two standard deviations of the traffic, at least 16,000
// tokens, and no request counts for more than the longest context.
func TestTokenBoundHasRoomForTypicalSizes(t *testing.T) {
	p := mustCHWBL(t, Config{Depth: "fixed"})
	for range 1000 {
		p.Pick(&Request{Prefix: 1, PromptTokens: 11_000, OutputTokens: 1_000}, equals(0, 0, 0, 0))
	}
	if got, want := p.tokenRoom(4, p.squares), 2*2*12_000.0; math.Abs(got-want) > want/100 {
		t.Errorf("at a mean of 4 requests of 12,000 tokens there is room for %.0f, want %.0f", got, want)
	}
	if got := p.tokenRoom(0.25, p.squares); got != 16_000 {
		t.Errorf("at a mean of a quarter there is room for %.0f", got)
	}
	p.Pick(&Request{Prefix: 1, PromptTokens: 1 << 40}, equals(0, 0, 0, 0))
	if got := p.tokenRoom(4, p.squares); got > 2*2*(12_000+131_072.0/8) {
		t.Errorf("one giant makes room for %.0f", got)
	}
}
