package routing

// roundRobin gives each worker its turn. It remembers the member that it took last: a
// worker that stays eligible is passed over at most once by each other member.
type roundRobin struct {
	last int // View.Index of the last pick, -1 before the first
}

func (*roundRobin) Name() string { return "round_robin" }

// Pick returns the next worker after the last one picked, in the order of members.
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
	if r.Record != nil {
		r.Record.Memory = float64(last)
		for i := range ws {
			r.assess(i, float64((i-next+len(ws))%len(ws)), "") // turns to come before its own
		}
	}
	p.last = ws[next].Index
	return next, ReasonRoundRobin
}

func (p *roundRobin) clone(*Request) Policy { return &roundRobin{last: p.last} }
