package curve

import (
	"math"
	"slices"
)

// Interval is a value with the bounds of its 95 % interval.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Bootstrap draws resamples of requests, with replacement.
type Bootstrap struct {
	Requests  int
	Clusters  [][]int         // indexes of dependent requests, which are drawn together; nil: one request each
	Resamples int             // number of resamples
	Pick      func(n int) int // returns a random number from 0 to n − 1
}

// Intervals returns the figures of measure, each with the interval of its values in the resamples (the percentile
// method; Efron, 1979). measure gets how often each request counts; nil means once each. It returns the same number of
// figures each time. A figure that is NaN in a resample is left out; valid is the number of resamples without a NaN.
func (b Bootstrap) Intervals(measure func(times []int) []float64) (all []Interval, valid int) {
	for _, value := range measure(nil) {
		all = append(all, Interval{Value: value})
	}
	values := make([][]float64, len(all))
	times := make([]int, b.Requests)
	for range b.Resamples {
		b.draw(times)
		whole := 1
		for k, figure := range measure(times) {
			if math.IsNaN(figure) {
				whole = 0
				continue
			}
			values[k] = append(values[k], figure)
		}
		valid += whole
	}
	for k := range all {
		slices.Sort(values[k])
		all[k].Low, all[k].High = quantile(values[k], 0.025), quantile(values[k], 0.975)
	}
	return all, valid
}

// draw sets how often each request is in a resample.
func (b Bootstrap) draw(times []int) {
	clear(times)
	if b.Clusters == nil {
		for range times {
			times[b.Pick(len(times))]++
		}
		return
	}
	for range b.Clusters {
		for _, i := range b.Clusters[b.Pick(len(b.Clusters))] {
			times[i]++
		}
	}
}

// quantile returns the value below which a share of sorted values lies; NaN without values.
func quantile(sorted []float64, share float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[int(math.Round(share*float64(len(sorted)-1)))]
}
