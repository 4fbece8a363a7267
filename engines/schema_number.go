package engines

import (
	"encoding/json"
	"math"
	"strconv"
)

// numberOf returns the value of a JSON number; false for everything else and for numbers
// beyond the range of float64.
func numberOf(v any) (x float64, ok bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	x, err := n.Float64()
	return x, err == nil
}

// interval is what minimum, maximum and their exclusive forms leave. An end that the
// schema leaves open is infinite.
type interval struct {
	low, high           float64
	aboveLow, belowHigh bool // the end itself does not belong to the interval
}

func newInterval(s map[string]any) interval {
	i := interval{low: math.Inf(-1), high: math.Inf(1)}
	if x, ok := numberOf(s["minimum"]); ok {
		i.low = x
	}
	if x, ok := numberOf(s["maximum"]); ok {
		i.high = x
	}
	if x, ok := numberOf(s["exclusiveMinimum"]); ok && x >= i.low {
		i.low, i.aboveLow = x, true
	}
	if x, ok := numberOf(s["exclusiveMaximum"]); ok && x <= i.high {
		i.high, i.belowHigh = x, true
	}
	return i
}

func (i interval) holds(x float64) bool {
	return x >= i.low && x <= i.high && !(i.aboveLow && x == i.low) && !(i.belowHigh && x == i.high)
}

// bounded gives the interval the ends that it lacks, a hundred steps away.
func (i interval) bounded(step float64) interval {
	switch low, high := math.IsInf(i.low, -1), math.IsInf(i.high, 1); {
	case low && high:
		i.low, i.high = 0, 100*step
	case low:
		i.low = i.high - 100*step
	case high:
		i.high = i.low + 100*step
	}
	return i
}

// number makes a number within its bounds and on its grid; without a grid one with as
// few digits as it takes.
func (g *generator) number(s map[string]any, whole bool) (any, bool) {
	step, given := numberOf(s["multipleOf"])
	if !given || step <= 0 {
		step, given = 1, whole
	}
	i := newInterval(s).bounded(step)
	if given {
		return g.onGrid(i, step, whole)
	}
	const mostDigits = 324 // of the smallest float64
	for digits := 2; digits <= mostDigits; digits++ {
		if v, ok := g.onGrid(i, math.Pow10(-digits), false); ok {
			return v, true
		}
	}
	return nil, false
}

// onGrid makes a multiple of step inside an interval. Many validators divide in
// float64, where 0.07 is no multiple of 0.01: such multiples are a last resort.
func (g *generator) onGrid(i interval, step float64, whole bool) (any, bool) {
	first, last := math.Floor(i.low/step), math.Ceil(i.high/step)
	if math.IsInf(first, 0) || math.IsInf(last, 0) || last < first {
		return nil, false
	}
	const mostMultiples = 1000
	n := int(min(last-first, mostMultiples)) + 1
	var resort any
	for start, at := g.dice.roll(n), 0; at < n; at++ {
		v := (first + float64((start+at)%n)) * step
		if step != math.Trunc(step) { // 3 × 0.1 is 0.3
			v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 15, 64), 64)
		}
		if !i.holds(v) || whole && v != math.Trunc(v) {
			continue
		}
		if resort = v; math.Trunc(v/step) == v/step {
			break
		}
	}
	return resort, resort != nil
}
