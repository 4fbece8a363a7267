package curve

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	_ "tierway/fixedseed"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 || math.IsNaN(a) && math.IsNaN(b) }

// outcome is the score and the gain of a request.
type outcome struct{ score, gain float64 }

// curveOf returns the curve of requests.
func curveOf(all []outcome, times []int) Curve {
	scores, gains := make([]float64, len(all)), make([]float64, len(all))
	for i, o := range all {
		scores[i], gains[i] = o.score, o.gain
	}
	return NewOrder(scores).Append(nil, gains, times)
}

func TestTheWorthOfAnOrderIsTheAreaUnderItsCurve(t *testing.T) {
	nan := math.NaN()
	for name, c := range map[string]struct {
		outcomes           []outcome
		apgr, cpt50, cpt80 float64
	}{
		// Half of the requests have all of the gap: up to 1 at 0.5, then flat.
		"perfect": {[]outcome{{4, 1}, {3, 1}, {2, 0}, {1, 0}}, 0.75, 0.25, 0.4},
		"inverse": {[]outcome{{1, 1}, {2, 1}, {3, 0}, {4, 0}}, 0.25, 0.75, 0.9},
		// A straight line from 0 to 1 has half of the area below it.
		"all tied":           {[]outcome{{0, 1}, {0, 0}, {0, 1}, {0, 0}}, 0.5, 0.5, 0.8},
		"as good everywhere": {[]outcome{{2, 1}, {1, 1}}, 0.5, 0.5, 0.8},
		// (0, 0), (0.5, 0.75), (1, 1).
		"tied in pairs": {[]outcome{{2, 1}, {2, 2}, {1, 1}, {1, 0}}, 0.625, 1.0 / 3, 0.6},
		// Over 1 on the way: (0, 0), (1/3, 1.5), (2/3, 1.5), (1, 1).
		"the large tier is worse last": {[]outcome{{3, 3}, {2, 0}, {1, -1}}, 0.25 + 0.5 + 1.25/3, 1.0 / 9, 1.6 / 9},
		// Below 0 on the way: (0, 0), (0.5, -1), (1, 1).
		"the large tier is worse first": {[]outcome{{2, -1}, {1, 2}}, -0.25, 0.875, 0.95},
		"no gap":                        {[]outcome{{2, 1}, {1, -1}}, nan, nan, nan},
		"nothing":                       {nil, nan, nan, nan},
	} {
		got := curveOf(c.outcomes, nil)
		if !near(got.APGR(), c.apgr) || !near(got.CPT(0.5), c.cpt50) || !near(got.CPT(0.8), c.cpt80) {
			t.Errorf("%s: %v, %v, %v, want %+v", name, got.APGR(), got.CPT(0.5), got.CPT(0.8), c)
		}
	}
}

func TestACountIsAsGoodAsACopy(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var once, copied []outcome
		times := rapid.SliceOfN(rapid.IntRange(0, 3), 1, 12).Draw(rt, "times")
		for i, n := range times {
			o := outcome{float64(len(times) - i), float64(rapid.IntRange(-2, 5).Draw(rt, "gain"))}
			once = append(once, o)
			for range n {
				copied = append(copied, o)
			}
		}
		// Copies are tied, so the curve is a straight line over them, as it is with counts.
		if got, want := curveOf(once, times), curveOf(copied, nil); !slices.Equal(got, want) {
			rt.Errorf("%v with counts, %v with copies", got, want)
		}
	})
}

func TestAnOrderAndItsInverseShareTheSquare(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var there, back []outcome
		for _, gain := range rapid.SliceOfN(rapid.IntRange(0, 4), 1, 20).Draw(rt, "gains") {
			o := outcome{float64(rapid.IntRange(0, 5).Draw(rt, "score")), float64(gain)}
			there, back = append(there, o), append(back, outcome{-o.score, o.gain})
		}
		a, b := curveOf(there, nil).APGR(), curveOf(back, nil).APGR()
		if !math.IsNaN(a) && !near(a+b, 1) {
			rt.Errorf("%v and %v", a, b)
		}
	})
}

// TestReachIsTheFirstShareWithTheGain: the gain at this share is the one that is reached, and smaller shares have less.
func TestReachIsTheFirstShareWithTheGain(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var all []outcome
		for range rapid.IntRange(1, 20).Draw(rt, "n") {
			all = append(all, outcome{float64(rapid.IntRange(0, 9).Draw(rt, "score")),
				float64(rapid.IntRange(-1, 1).Draw(rt, "gain"))})
		}
		c, gain := curveOf(all, nil), rapid.Float64Range(0.01, 1).Draw(rt, "gain")
		most := slices.MaxFunc(c, func(a, b Point) int {
			if a.Gain < b.Gain {
				return -1
			}
			return 1
		}).Gain
		share := c.Reach(gain)
		if math.IsNaN(share) {
			if gain <= most {
				rt.Errorf("%v is not reached by %v", gain, c)
			}
			return
		}
		if !near(c.GainAt(share), gain) {
			rt.Errorf("%v is reached at %v, where %v has %v", gain, share, c, c.GainAt(share))
		}
		for _, p := range c {
			if p.Share < share-1e-9 && p.Gain >= gain {
				rt.Errorf("%v is reached at %v, and earlier by %v", gain, share, p)
			}
		}
	})
	if got := (Curve{{}, {1, 1}}).Reach(-1); got != 0 {
		t.Errorf("a gain below 0 is reached at %v", got)
	}
}

func TestIntervalsHaveTheirFigure(t *testing.T) {
	source := rand.New(rand.NewPCG(1, 0))
	b := Bootstrap{Requests: 400, Resamples: 500, Pick: source.IntN}
	mean := func(times []int) []float64 {
		sum := 0.0
		for i := range 400 {
			n := 1
			if times != nil {
				n = times[i]
			}
			sum += float64(n * (i % 2))
		}
		return []float64{sum / 400, math.NaN()}
	}
	all, valid := b.Intervals(mean)
	// Half of 400 requests have a 1: the standard deviation of the mean is 0.025.
	if v := all[0]; v.Value != 0.5 || math.Abs(v.Low-0.45) > 0.008 || math.Abs(v.High-0.55) > 0.008 {
		t.Errorf("the mean is %+v", v)
	}
	if v := all[1]; !math.IsNaN(v.Value) || !math.IsNaN(v.Low) || !math.IsNaN(v.High) || valid != 0 {
		t.Errorf("%+v in %d valid resamples", v, valid)
	}
	// Two clusters of equal requests: a resample has 0, half or all of them with a 1.
	b.Clusters = make([][]int, 2)
	for i := range 400 {
		b.Clusters[i%2] = append(b.Clusters[i%2], i)
	}
	if all, _ = b.Intervals(mean); all[0] != (Interval{0.5, 0, 1}) {
		t.Errorf("two clusters have the mean %+v", all[0])
	}
}

func TestQuantileIsTheNearestValue(t *testing.T) {
	sorted := make([]float64, 101)
	for i := range sorted {
		sorted[i] = float64(i)
	}
	if low, high := quantile(sorted, 0.025), quantile(sorted, 0.975); low != 3 || high != 98 {
		t.Errorf("%v and %v", low, high)
	}
	if !math.IsNaN(quantile(nil, 0.5)) {
		t.Error("nothing has a quantile")
	}
}
