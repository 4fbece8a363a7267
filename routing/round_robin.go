package routing

// roundRobin picks the workers in turn. It remembers the last picked member: each other member is
// picked at most once before a worker that stays eligible. A worker with a lower effective weight takes
// the same share of its turns.
type roundRobin struct {
	last int // View.Index of the last pick; -1 before the first
}

func (*roundRobin) Name() string { return "round_robin" }

// Pick returns the worker after the last picked one, in the order of the members.
func (p *roundRobin) Pick(r *Request, ws []View) (int, Reason) {
	last := p.last
	if c := r.recalled(p); c != nil {
		last = int(c.Memory)
	}
	next := 0
	for i := range ws {
		if ws[i].Index > last {
			next = i
			break
		}
	}
	for skipped := 0; skipped < len(ws) && chance(r.Rand, ws[next].Index) >= ws[next].weightShare(); skipped++ {
		next = (next + 1) % len(ws)
	}
	if r.Record != nil {
		r.Record.Memory = float64(last)
		for i := range ws {
			r.assess(i, float64((i-next+len(ws))%len(ws)), "") // turns before its own
		}
	}
	p.last = ws[next].Index
	return next, ReasonRoundRobin
}

func (p *roundRobin) clone(*Request) Policy { return &roundRobin{last: p.last} }
