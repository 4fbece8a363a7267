package training

import (
	"math"

	"tierway/tierscore/curve"
)

// resamples is the number of bootstrap resamples of an interval.
const resamples = 1000

// compare returns the APGR of two scores and of their difference, with bootstrap intervals. A resample draws whole
// clusters, which are indexes of requests, because the requests of a cluster are not independent. pick(n) returns a
// random number from 0 to n − 1. ok is false if the gap is not positive in 95 % of the resamples.
func compare(learned, baseline, gains []float64, clusters [][]int, pick func(int) int) (all []curve.Interval, ok bool) {
	a, b, points := curve.NewOrder(learned), curve.NewOrder(baseline), curve.Curve(nil)
	bootstrap := curve.Bootstrap{Requests: len(gains), Clusters: clusters, Resamples: resamples, Pick: pick}
	all, valid := bootstrap.Intervals(func(times []int) []float64 {
		points = a.Append(points[:0], gains, times)
		first := points.APGR()
		points = b.Append(points[:0], gains, times)
		second := points.APGR()
		return []float64{first, second, first - second}
	})
	return all, !math.IsNaN(all[0].Value) && mostly(valid)
}

// mostly reports whether enough bootstrap samples are valid for an interval of the area. The area has no meaning
// without a gap between the tiers. Its interval has none if more than 5 % of the samples have no gap.
func mostly(valid int) bool { return valid >= resamples*95/100 }
