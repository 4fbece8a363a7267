package engines

import (
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// rational returns the exact value of a JSON number, nil for everything else and for
// numbers beyond the range of float64.
func rational(v any) *big.Rat {
	n, ok := v.(json.Number)
	if !ok {
		return nil
	}
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil {
		return nil
	}
	const exactDigits = 64 // of longer ones float64 keeps what a client would read
	if f != 0 && len(n) <= exactDigits {
		if r, ok := new(big.Rat).SetString(string(n)); ok {
			return r
		}
	}
	return new(big.Rat).SetFloat64(f)
}

// decimal writes a number out; the fractions of schemas are decimal ones.
func decimal(r *big.Rat) json.Number {
	if r.IsInt() {
		return json.Number(r.Num().String())
	}
	digits, exact := r.FloatPrec()
	if !exact {
		digits = 20
	}
	return trimmed(r.FloatString(digits))
}

// trimmed is a decimal fraction without zeros at its end.
func trimmed(s string) json.Number {
	s = strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
	if s == "" || s == "-" || s == "-0" {
		s = "0"
	}
	return json.Number(s)
}

// edge is one end of an interval; at is nil where it has no end.
type edge struct {
	at   *big.Rat
	open bool // at itself does not belong to the interval
}

// interval is what minimum, maximum and their exclusive forms leave.
type interval struct{ low, high edge }

func newInterval(s map[string]any) interval {
	i := interval{low: edge{at: rational(s["minimum"])}, high: edge{at: rational(s["maximum"])}}
	if x := rational(s["exclusiveMinimum"]); x != nil && (i.low.at == nil || x.Cmp(i.low.at) >= 0) {
		i.low = edge{x, true}
	}
	if x := rational(s["exclusiveMaximum"]); x != nil && (i.high.at == nil || x.Cmp(i.high.at) <= 0) {
		i.high = edge{x, true}
	}
	return i
}

func (i interval) holds(r *big.Rat) bool {
	if at := i.low.at; at != nil && (r.Cmp(at) < 0 || i.low.open && r.Cmp(at) == 0) {
		return false
	}
	at := i.high.at
	return at == nil || r.Cmp(at) < 0 || !i.high.open && r.Cmp(at) == 0
}

// bounded gives the interval the ends that it lacks, a hundred steps away.
func (i interval) bounded(step *big.Rat) interval {
	reach := new(big.Rat).Mul(step, big.NewRat(100, 1))
	switch {
	case i.low.at == nil && i.high.at == nil:
		i.low.at, i.high.at = new(big.Rat), reach
	case i.low.at == nil:
		i.low.at = new(big.Rat).Sub(i.high.at, reach)
	case i.high.at == nil:
		i.high.at = new(big.Rat).Add(i.low.at, reach)
	}
	return i
}

// number makes a number within its bounds and on its grid.
func (g *generator) number(s map[string]any, whole bool) any {
	step := rational(s["multipleOf"])
	if step != nil && step.Sign() <= 0 {
		step = nil
	}
	switch {
	case whole && step == nil:
		step = big.NewRat(1, 1)
	case whole:
		step = new(big.Rat).SetInt(step.Num()) // the smallest whole multiple of a fraction
	case step == nil:
		return g.between(newInterval(s).bounded(big.NewRat(1, 1)))
	}
	return g.onGrid(newInterval(s).bounded(step), step)
}

// between makes a number inside an interval, with as few digits as it takes.
func (g *generator) between(i interval) any {
	width := new(big.Rat).Sub(i.high.at, i.low.at)
	if width.Sign() <= 0 {
		return decimal(i.low.at)
	}
	part := big.NewRat(int64(1+g.dice.roll(99)), 100)
	inside := part.Add(part.Mul(part, width), i.low.at)
	i.low.open, i.high.open = true, true
	const mostDigits = 330 // the smallest float64 has 324
	for digits := 2; digits < mostDigits; digits++ {
		n := trimmed(inside.FloatString(digits))
		if r, ok := new(big.Rat).SetString(string(n)); ok && i.holds(r) {
			return n
		}
	}
	return decimal(i.low.at)
}

// onGrid makes a multiple of step inside an interval. Many validators divide in
// float64, where 0.07 is no multiple of 0.01: those multiples are passed over.
func (g *generator) onGrid(i interval, step *big.Rat) any {
	first, last := ceil(new(big.Rat).Quo(i.low.at, step)), floor(new(big.Rat).Quo(i.high.at, step))
	multiple := func(k *big.Int) *big.Rat { return new(big.Rat).Mul(new(big.Rat).SetInt(k), step) }
	one := big.NewInt(1)
	if !i.holds(multiple(first)) {
		first.Add(first, one)
	}
	if !i.holds(multiple(last)) {
		last.Sub(last, one)
	}
	span := 0
	if d := new(big.Int).Sub(last, first); d.Sign() > 0 {
		span = 100
		if d.IsInt64() {
			span = int(min(d.Int64(), 100))
		}
	}
	start := g.dice.roll(span + 1)
	at := func(n int) *big.Rat {
		return multiple(new(big.Int).Add(first, big.NewInt(int64((start+n)%(span+1)))))
	}
	for n := range span + 1 {
		if v := at(n); dividesAsFloat(v, step) {
			return decimal(v)
		}
	}
	return decimal(at(0))
}

func dividesAsFloat(v, step *big.Rat) bool {
	x, _ := v.Float64()
	y, _ := step.Float64()
	return math.Trunc(x/y) == x/y
}

func floor(r *big.Rat) *big.Int { return new(big.Int).Div(r.Num(), r.Denom()) }

func ceil(r *big.Rat) *big.Int {
	down := floor(new(big.Rat).Neg(r))
	return down.Neg(down)
}
