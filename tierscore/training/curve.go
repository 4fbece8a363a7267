package training

import (
	"cmp"
	"math"
	"slices"
)

// curve is the order of requests by a score: the gains by falling score, and the ends of blocks of equal scores.
type curve struct {
	index []int // of the requests
	ends  []int
}

func newCurve(scores []float64) curve {
	c := curve{index: make([]int, len(scores))}
	for i := range c.index {
		c.index[i] = i
	}
	slices.SortStableFunc(c.index, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	for k, i := range c.index {
		if k+1 == len(c.index) || scores[c.index[k+1]] != scores[i] {
			c.ends = append(c.ends, k+1)
		}
	}
	return c
}

// apgr returns the area under the recovered share of the gap, as the share of requests at the large tier rises from 0
// to 1. times says how often each request counts; nil: once. It is NaN if the large tier has no higher quality.
func (c curve) apgr(gains []float64, times []int) float64 {
	count := func(i int) float64 {
		if times == nil {
			return 1
		}
		return float64(times[i])
	}
	var n, gap float64
	for i, g := range gains {
		n, gap = n+count(i), gap+count(i)*g
	}
	if gap <= 0 {
		return math.NaN()
	}
	var area, recovered float64
	from := 0
	for _, end := range c.ends {
		var dx, dy float64
		for _, i := range c.index[from:end] {
			dx, dy = dx+count(i)/n, dy+count(i)*gains[i]/gap
		}
		area += dx * (recovered + dy/2)
		recovered, from = recovered+dy, end
	}
	return area
}

// Interval is a value with the bounds of its 95 % interval.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// resamples is the number of bootstrap samples of an interval.
const resamples = 1000

// compare returns the APGR of two scores and of their difference, with bootstrap intervals. A sample draws whole
// clusters, which are indexes of requests, because the requests of a cluster are not independent. pick(n) returns a
// random number from 0 to n − 1. ok is false if the gap is not positive in most samples.
func compare(learned, baseline, gains []float64, clusters [][]int, pick func(n int) int) (all [3]Interval, ok bool) {
	a, b := newCurve(learned), newCurve(baseline)
	measure := func(times []int) (v [3]float64) {
		v[0], v[1] = a.apgr(gains, times), b.apgr(gains, times)
		v[2] = v[0] - v[1]
		return v
	}
	var samples [3][]float64
	times := make([]int, len(gains))
	for range resamples {
		clear(times)
		for range clusters {
			for _, i := range clusters[pick(len(clusters))] {
				times[i]++
			}
		}
		v := measure(times)
		for k := range samples {
			if !math.IsNaN(v[k]) {
				samples[k] = append(samples[k], v[k])
			}
		}
	}
	values := measure(nil)
	if math.IsNaN(values[0]) || len(samples[0]) < resamples*95/100 {
		return all, false
	}
	for k := range all {
		slices.Sort(samples[k])
		last := float64(len(samples[k]) - 1)
		all[k] = Interval{values[k], samples[k][int(math.Round(0.025*last))], samples[k][int(math.Round(0.975*last))]}
	}
	return all, true
}
