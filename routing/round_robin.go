package routing

// roundRobin gives each worker its turn. It remembers the member that it took
// last, not a count: a worker that stays eligible is passed over at most once
// by each other member, whoever comes and goes meanwhile.
type roundRobin struct {
	last int // View.Index of the last pick, -1 before the first
}

// Name returns "round_robin".
func (*roundRobin) Name() string { return "round_robin" }

// Pick returns the first worker after the last one picked, in the order of
// members, and begins again at the end.
func (p *roundRobin) Pick(_ *Request, ws []View) (int, Reason) {
	next := 0
	for i := range ws {
		if ws[i].Index > p.last {
			next = i
			break
		}
	}
	p.last = ws[next].Index
	return next, ReasonRoundRobin
}
