package routing

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
	best, tied := -1, uint64(0)
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
			best, tied = i, uint64(ws[i].Weight)
		case 0:
			tied += uint64(ws[i].Weight)
		}
	}
	if best < 0 {
		return -1
	}
	left := rand % tied
	for i := best + 1; i < len(ws); i++ {
		if i == without || compareLoad(&ws[i], &ws[best]) != 0 {
			continue
		}
		if w := uint64(ws[i].Weight); left >= w {
			left -= w
			continue
		}
		return i
	}
	return best
}

// compareLoad returns -1 if a is less loaded than b, 0 if they are equal, and 1 otherwise. A full
// worker is more loaded than any open worker.
func compareLoad(a, b *View) int {
	switch {
	case a.Full && !b.Full:
		return 1
	case b.Full && !a.Full:
		return -1
	}
	x, y := a.score(), b.score()
	if x == y {
		x, y = float64(a.Inflight)/float64(a.Weight), float64(b.Inflight)/float64(b.Weight)
	}
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}
