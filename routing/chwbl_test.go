package routing

import (
	"fmt"
	"math"
	"slices"
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
			t.Logf("%3.0f in flight, token bound %5v: %.1f %% home (%.1f to %.1f), p99 of max/mean in flight %.2f, %.2f "+
				"workers a hot prefix",
				c.inflight, tokens, 100*home[sets/2], 100*home[0], 100*home[sets-1], spread[sets/2], copies[sets/2])
			want := c.requests
			if tokens {
				want = c.whole
			}
			if home[sets/2] < want {
				t.Errorf("%.0f in flight, token bound %v: %.1f %% at home, want %.1f", c.inflight, tokens, 100*home[sets/2],
					100*want)
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
	w, sums := newPolicySim(p, 8), zipf(prefixes, 0.9)
	var spread []float64
	var holders [hot]map[int]bool
	for i := range holders {
		holders[i] = map[int]bool{}
	}
	reached := 0
	for i := range requests {
		w.now = w.now.Add(w.rng.exp(time.Duration(float64(time.Second) / inflight)))
		prefix, tokens := w.rng.draw(sums), int64(400)
		if w.rng.below(10) == 0 {
			tokens = 12_000
		}
		hold := w.rng.exp(time.Second)
		worker, reason := w.send(&Request{Prefix: Mix(set<<32 + uint64(prefix) + 1), PromptTokens: tokens}, hold, hold)
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

// auditor checks each pick of a chwbl of default settings with its own arithmetic, under the pool's
// lock.
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
		// An integer n is at most ceil(x) exactly if n-1 is less than x.
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
			a.t.Errorf("%s although a worker has room", reason)
		}
	default:
		a.t.Errorf("reason %q", reason)
	}
	return i, reason
}

// Of identical prompts that arrive at once the first is prefilled and the others wait for it. Spread
// over the pool, each worker would compute the prompt.
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

// homeOf returns the worker of a request while nothing is booked.
func homeOf(t *testing.T, c Config, r Request, n int) int {
	t.Helper()
	i, reason := mustCHWBL(t, c).Pick(&r, equals(make([]int, n)...))
	if reason != ReasonPrefixHome && reason != ReasonModelHome {
		t.Fatalf("the request went to %d for %q", i, reason)
	}
	return i
}

func TestOverflowGoesToTheNextWorkerWithRoom(t *testing.T) {
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
	// The next worker on the ring takes the requests of a worker that is not eligible.
	left := slices.Delete(slices.Clone(ws), home, home+1)
	for i := range left {
		left[i].Inflight = 0
	}
	if i, reason := p.Pick(&r, left); left[i].ID != ws[next].ID || reason != ReasonPrefixHome {
		t.Errorf("without its home it went to %s (%s), want %s", left[i].ID, reason, ws[next].ID)
	}
	// If all are over their bounds, the home takes it, because only the home has its cache.
	r.PromptTokens = 100_000
	if i, reason := p.Pick(&r, equals(1, 1, 1, 1)); i != home || reason != ReasonPrefixSaturated {
		t.Errorf("too much for all it went to %d (%s), want home %d", i, reason, home)
	}
	// An idle home has no bound. Otherwise workers with more weight would take the request.
	for _, ws := range [][]View{equals(0, 0, 0, 0), weighted(1, 50, 50, 50)} {
		home, _ := p.Pick(&Request{Prefix: r.Prefix, PromptTokens: 1}, ws)
		if i, reason := p.Pick(&r, ws); i != home || reason != ReasonPrefixHome {
			t.Errorf("its idle home is %d, and it went to %d (%s)", home, i, reason)
		}
	}
}

// A full home is not eligible. If all workers are over their bounds, the prompt goes to the next
// worker on the ring.
func TestSaturatedWithAFullHomeGoesToTheNextWorker(t *testing.T) {
	r := Request{Prefix: 42, PromptTokens: 1 << 30}
	p, ws := mustCHWBL(t, Config{Depth: "fixed"}), equals(1, 1, 1, 1)
	home, _ := p.Pick(&r, ws)
	i, reason := p.Pick(&r, slices.Delete(slices.Clone(ws), home, home+1))
	if reason != ReasonPrefixSaturated {
		t.Errorf("it went to %d (%s)", i, reason)
	}
}
