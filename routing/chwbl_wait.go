package routing

import "time"

const (
	// worthWaiting is the longest wait for a full worker, in multiples of the time that its cache
	// saves. In simulations of chats at 80 % load, 6 keeps less than nine tenths of the hits on
	// slow engines, and 8 costs more time than it saves on fast ones.
	worthWaiting = 7
	// worthMoving is the number of additional cached tokens that decides between two workers:
	// fewer tokens are computed in a fraction of a second.
	worthMoving = 500
)

// Plans returns true: the cache of a full worker may be worth a wait.
func (*chwbl) Plans(*Request) bool { return true }

// besideFull returns the worker for a request whose ring position gave chosen. If no worker is full,
// that is chosen. A free worker that holds at least worthMoving more tokens of the prompt takes the
// request, so that a chat that overflowed continues there.
//
// The request waits for a full worker at most worthWaiting times the additional compute time on
// another worker, and not at all for less than worthMoving tokens. s and at are the home's place
// on the ring.
func (p *chwbl) besideFull(r *Request, ws []View, b *loadBound, chosen int, s *slot, at int) int {
	if !anyOf(ws, true) {
		return chosen // the fitting workers are beyond the ring's capacity
	}
	maxTokens := int64(-1)
	for i := range ws {
		if v := &ws[i]; hasRoom(v, b) {
			maxTokens = max(maxTokens, v.Overlap)
		}
	}
	c := &ws[chosen]
	if maxTokens < 0 { // a free worker over its bound is better than no worker
		if !c.Full || worthTheWait(r, c, 0) || !p.markFit(ws, isOpen) {
			return chosen
		}
		return p.clockwise(s, at)
	}
	if c.Full && worthTheWait(r, c, maxTokens) || !c.Full && maxTokens-c.Overlap <= worthMoving {
		return chosen
	}
	if !p.markFit(ws, func(v *View) bool { return hasRoom(v, b) && maxTokens-v.Overlap <= worthMoving }) {
		return chosen // the fitting workers are beyond the ring's capacity
	}
	return p.clockwise(s, at)
}

func isOpen(v *View) bool { return !v.Full }

// hasRoom reports whether a worker is open and within its bounds, or open and idle.
func hasRoom(v *View, b *loadBound) bool { return !v.Full && (v.Inflight == 0 || b.admits(v)) }

// worthTheWait reports whether the request should wait for a full worker if a free worker holds
// elsewhere tokens of its prompt.
func worthTheWait(r *Request, full *View, elsewhere int64) bool {
	saves := full.Overlap - elsewhere
	return saves > worthMoving && float64(r.Waited)*full.Rate <= worthWaiting*float64(saves)*float64(time.Second)
}
