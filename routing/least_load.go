package routing

import "math"

// leastLoad picks the worker with the fewest booked tokens, then the fewest requests, both per unit
// of weight. Full workers rank after all open ones. It has no memory.
type leastLoad struct{}

func (leastLoad) Name() string { return "least_load" }

// Pick breaks ties by the request's random number, with probabilities by weight, so that several
// gateways do not all choose the first member of an idle pool.
func (leastLoad) Pick(r *Request, ws []View) (int, Reason) {
	best := least(r.Rand, ws, -1)
	if r.assessments != nil {
		r.runnerUp = least(r.Rand, ws, best)
	}
	return best, ReasonLeastLoad
}

// least returns the least loaded of ws without the one at that index (-1: of all), or -1 if none is
// left.
func least(rand uint64, ws []View, without int) int {
	best, tied := -1, 0.0
	for i := range ws {
		if i == without {
			continue
		}
		order := -1
		if best >= 0 {
			order = compareLoad(&ws[i], &ws[best])
		}
		switch order {
		case -1:
			best, tied = i, ws[i].weight()
		case 0:
			tied += ws[i].weight()
		}
	}
	if best < 0 {
		return -1
	}
	whole := uint64(math.Ceil(tied))
	left := (float64(rand%whole) + Unit(Mix(rand))) / float64(whole) * tied
	for i := best + 1; i < len(ws); i++ {
		if i == without || compareLoad(&ws[i], &ws[best]) != 0 {
			continue
		}
		if w := ws[i].weight(); left >= w {
			left -= w
			continue
		}
		return i
	}
	return best
}

// compareLoad returns -1 if a is less loaded than b, 0 if they are equal, and 1 otherwise. A full
// worker is more loaded than any free worker.
func compareLoad(a, b *View) int {
	switch {
	case a.Full && !b.Full:
		return 1
	case b.Full && !a.Full:
		return -1
	}
	x, y := a.score(), b.score()
	if x == y {
		x, y = float64(a.Inflight)/a.weight(), float64(b.Inflight)/b.weight()
	}
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}
