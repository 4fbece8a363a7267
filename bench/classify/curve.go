package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// outcome is one prompt: how high a rule scores it, and how much better the
// strong model's answer is than the weak one's, in the set's own points.
type outcome struct {
	score float64
	gain  float64
}

// worth is what a rule's order of prompts is worth. PGR is the share of the gap
// between the two models that is recovered when a share of the prompts, those
// with the highest scores, goes to the strong one.
type worth struct {
	apgr  float64 // the area under PGR by that share; random order has 0.5
	cpt50 float64 // the least share with a PGR of 0.5; NaN when there is none
	cpt80 float64 // the least share with a PGR of 0.8
	// mean score at each of strongShares, less that of a random order
	over [len(strongShares)]float64
}

// strongShares are the shares of strong calls at which orders are compared.
var strongShares = [...]float64{0.1, 0.2, 0.3}

// ranking is outcomes by falling score, those of equal score as one block: what
// is in a block is taken in no order, so PGR runs straight through it.
type ranking struct {
	gains []float64
	ends  []int // where each block ends in gains
}

func rank(all []outcome) ranking {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b outcome) int { return cmp.Compare(b.score, a.score) })
	var r ranking
	for i, o := range sorted {
		r.gains = append(r.gains, o.gain)
		if i+1 == len(sorted) || sorted[i+1].score != o.score {
			r.ends = append(r.ends, i+1)
		}
	}
	return r
}

// worth measures the order when each prompt counts as often as times says; nil
// is once each. Without a gap between the models all of it is NaN.
func (r ranking) worth(times []int) worth {
	count := func(i int) float64 {
		if times == nil {
			return 1
		}
		return float64(times[i])
	}
	var n, gap float64
	for i, gain := range r.gains {
		n, gap = n+count(i), gap+count(i)*gain
	}
	w := worth{apgr: math.NaN(), cpt50: math.NaN(), cpt80: math.NaN()}
	if gap <= 0 {
		for i := range w.over {
			w.over[i] = math.NaN()
		}
		return w
	}
	w.apgr = 0
	var x, y float64
	from := 0
	for _, end := range r.ends {
		var dx, dy float64
		for i := from; i < end; i++ {
			dx, dy = dx+count(i)/n, dy+count(i)*r.gains[i]/gap
		}
		w.apgr += dx * (y + dy/2)
		w.cpt50 = reached(w.cpt50, 0.5, x, y, dx, dy)
		w.cpt80 = reached(w.cpt80, 0.8, x, y, dx, dy)
		for i, share := range strongShares {
			if x < share && share <= x+dx {
				w.over[i] = (y + dy*(share-x)/dx - share) * gap / n
			}
		}
		x, y, from = x+dx, y+dy, end
	}
	return w
}

// reached returns where PGR comes to a level on its way from (x, y) by (dx, dy),
// unless it did before.
func reached(before, level, x, y, dx, dy float64) float64 {
	// The shares are sums of quotients; the last one ends at 1 but for rounding.
	if !math.IsNaN(before) || y+dy < level-1e-12 || dy <= 0 {
		return before
	}
	return min(x+dx*(level-y)/dy, 1)
}

// interval is bounds with a middle.
type interval struct{ value, low, high float64 }

// measured is a worth with the 95 % intervals.
type measured struct {
	worth
	area, half, most interval // of apgr, cpt50 and cpt80
	overs            [len(strongShares)]interval
}

// bootstrap measures the order and draws resamples of the prompts with
// replacement for the intervals. The same seed draws the same resamples.
func bootstrap(all []outcome, resamples int, seed uint64) measured {
	r := rank(all)
	m := measured{worth: r.worth(nil)}
	source := rand.New(rand.NewPCG(seed, 0))
	times := make([]int, len(r.gains))
	var drawn []worth
	for range resamples {
		clear(times)
		for range times {
			times[source.IntN(len(times))]++
		}
		if w := r.worth(times); !math.IsNaN(w.apgr) {
			drawn = append(drawn, w)
		}
	}
	of := func(figure func(w *worth) float64) interval {
		all := make([]float64, len(drawn))
		for i := range drawn {
			all[i] = figure(&drawn[i])
		}
		slices.Sort(all)
		return interval{value: figure(&m.worth), low: quantile(all, 0.025), high: quantile(all, 0.975)}
	}
	m.area = of(func(w *worth) float64 { return w.apgr })
	m.half = of(func(w *worth) float64 { return w.cpt50 })
	m.most = of(func(w *worth) float64 { return w.cpt80 })
	for i := range m.overs {
		m.overs[i] = of(func(w *worth) float64 { return w.over[i] })
	}
	return m
}

// quantile returns the value below which a share of sorted values lies.
func quantile(sorted []float64, share float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[int(math.Round(share*float64(len(sorted)-1)))]
}
