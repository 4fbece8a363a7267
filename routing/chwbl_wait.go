package routing

import "time"

const (
	// worthWaiting is how many times longer than its cache saves a request waits for a full
	// worker at most. Simulated with chats at 80 % load, 6 keeps less than nine tenths of
	// the hits on slow engines, and 8 costs more time on fast ones than it saves.
	worthWaiting = 7
	// worthMoving is how many tokens more of a prompt a cache must hold to decide between
	// two workers: fewer are computed in a fraction of a second.
	worthMoving = 500
)

// Plans returns true: a full worker's cache may be worth the wait.
func (*chwbl) Plans() bool { return true }

// besideFull returns the worker for a request that the ring gave chosen; if no worker is
// full, that one. An open worker that holds worthMoving tokens more of the prompt takes
// the request, so that a chat that overflowed goes on there. For a full worker the request
// waits no longer than worthWaiting times what computing the prompt elsewhere costs more,
// and not at all for less than worthMoving tokens. s and at are the home on the ring.
func (p *chwbl) besideFull(r *Request, ws []View, b *loadBound, chosen int, s *slot, at int) int {
	if !anyOf(ws, true) {
		return chosen
	}
	most := int64(-1)
	for i := range ws {
		if v := &ws[i]; takes(v, b) {
			most = max(most, v.Overlap)
		}
	}
	c := &ws[chosen]
	if most < 0 { // an open worker over its bound is better than none
		if !c.Full || worthTheWait(r, c, 0) || !p.markFit(ws, isOpen) {
			return chosen
		}
		return int(p.clockwise(s, at))
	}
	if c.Full && worthTheWait(r, c, most) || !c.Full && most-c.Overlap <= worthMoving {
		return chosen
	}
	if !p.markFit(ws, func(v *View) bool { return takes(v, b) && most-v.Overlap <= worthMoving }) {
		return chosen // those that fit are beyond what a ring can hold
	}
	return int(p.clockwise(s, at))
}

func isOpen(v *View) bool { return !v.Full }

// takes reports whether a worker is open and within its bound, or idle.
func takes(v *View, b *loadBound) bool { return !v.Full && (v.Inflight == 0 || b.admits(v)) }

// worthTheWait reports whether the request should wait for a full worker if an open one
// holds that many tokens of its prompt.
func worthTheWait(r *Request, full *View, elsewhere int64) bool {
	saves := full.Overlap - elsewhere
	return saves > worthMoving && float64(r.Waited)*full.Rate <= worthWaiting*float64(saves)*float64(time.Second)
}
