package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"tierway/tierscore/curve"
)

// outcome is one prompt: how high a rule scores it, and how much better the
// strong model's answer is than the weak one's, in the set's own points.
type outcome struct {
	score float64
	gain  float64
}

// strongShares are the shares of strong calls at which orders are compared.
var strongShares = [...]float64{0.1, 0.2, 0.3}

// worth is what an order of prompts is worth, with the 95 % intervals. Without a gap
// between the models all of it is NaN.
type worth struct {
	apgr  curve.Interval // a random order has 0.5
	cpt50 curve.Interval
	cpt80 curve.Interval
	// mean score at each of strongShares, less that of a random order
	over [len(strongShares)]curve.Interval
}

// worthOf measures the order of prompts by their scores. It draws resamples of the prompts
// with replacement for the intervals. The same seed draws the same resamples.
func worthOf(all []outcome, resamples int, seed uint64) worth {
	// A resample draws ranks, so that orders with blocks of the same sizes are drawn alike.
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b outcome) int { return cmp.Compare(b.score, a.score) })
	scores, gains := make([]float64, len(sorted)), make([]float64, len(sorted))
	for i, o := range sorted {
		scores[i], gains[i] = o.score, o.gain
	}
	order, points := curve.NewOrder(scores), curve.Curve(nil)
	intervals := bootstrap(len(all), resamples, seed, func(times []int) []float64 {
		points = order.Append(points[:0], gains, times)
		return figures(points)
	})
	w := worth{apgr: intervals[0], cpt50: intervals[1], cpt80: intervals[2]}
	copy(w.over[:], intervals[3:])
	return w
}

// figures returns APGR, CPT50, CPT80, and the gains over a random order.
func figures(c curve.Curve) []float64 {
	all := []float64{c.APGR(), c.CPT(0.5), c.CPT(0.8)}
	for _, share := range strongShares {
		over := c.GainAt(share) - share*c.GainAt(1)
		if math.IsNaN(all[0]) {
			over = math.NaN()
		}
		all = append(all, over)
	}
	return all
}

// bootstrap draws resamples of n prompts.
func bootstrap(n, resamples int, seed uint64, measure func(times []int) []float64) []curve.Interval {
	samples := curve.Bootstrap{Requests: n, Resamples: resamples, Pick: rand.New(rand.NewPCG(seed, 0)).IntN}
	all, _ := samples.Intervals(measure)
	return all
}
