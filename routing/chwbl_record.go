package routing

// keysOf names what a request is placed by, as Choice.KeyOf has it.
var keysOf = [...]string{byNothing: "", byPrefix: "prefix", byModel: "model"}

// bounded are the terms of a candidate: its place clockwise from the home, and
// what it would have of the requests and tokens that it may have, 1 being all.
var bounded = [maxTerms]string{"step", "requests", "tokens"}

// note writes down by what a recorded request is placed, and of every candidate how
// far it is from the home and from its bounds. The score is the place clockwise.
// s and at are the home on the ring.
func (p *chwbl) note(r *Request, ws []View, b *bound, squares float64, by int, key uint64, s *slot, at int) {
	if r.marks == nil {
		return
	}
	r.Record.Key, r.Record.KeyOf, r.Record.Memory = Hash(key), keysOf[by], squares
	left := len(ws)
	p.mark(ws, func(*View) bool { return true })
	for points := 0; left > 0 && points < recordedPoints*len(ws); points++ {
		if s.ok {
			s.ok = false
			p.measure(&r.marks[s.view], &ws[s.view], b, len(ws)-left)
			left--
		}
		s, at = p.ring.next(at)
	}
	for i := range ws {
		if r.marks[i].terms.IsZero() { // its points are few, or it is not on the ring
			p.measure(&r.marks[i], &ws[i], b, len(ws))
		}
	}
}

// recordedPoints bounds the walk around the ring for each worker: of sixteen equal
// ones all are met within four points for each, and one of little weight may stand
// thousands away.
const recordedPoints = 8

// measure fills the mark of one candidate.
func (p *chwbl) measure(m *mark, v *View, b *bound, step int) {
	requests := float64(v.Inflight+1) / b.most(v)
	tokens := 0.0
	if b.slack > 0 {
		tokens = b.brings(v) / b.mostTokens(v)
	}
	m.score, m.passed = float64(step), passedFull(v)
	switch {
	case m.passed != "" || v.Inflight == 0:
	case requests > 1:
		m.passed = PassedRequests
	case tokens > 1:
		m.passed = PassedTokens
	}
	m.terms = Terms{names: &bounded, values: [maxTerms]float64{float64(step), requests, tokens}}
}
