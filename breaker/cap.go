package breaker

import "time"

// outing says why a worker is kept out, from its opening until it is closed:
// a half-open breaker lets so little through that its worker is out as well.
type outing int

const (
	in   outing = iota // closed
	soft               // out for what it answered or how fast
	hard               // out because nobody was there
)

// seat is what a group knows of one breaker, guarded by the group's lock.
type seat struct {
	out    outing
	since  time.Time // when it went out
	usable bool      // as Options.Usable said last
	pace   pace
}

// look asks for every member whether it is usable. The answers are stored
// first and judged later, because nothing is called out to under a lock.
func (g *Group) look() {
	for _, b := range g.all() {
		usable := g.options.Usable(b.id, b.ref)
		g.mu.Lock()
		b.seat.usable = usable
		g.mu.Unlock()
	}
}

// leave asks for a worker to be kept out and notes it in the same step, so that
// two that ask at the same moment cannot both get the last place. Hard failures
// are never refused. For soft ones at most half of the members may be out and
// another usable one must be in, also for who is out already and asks to stay.
func (g *Group) leave(b *Breaker, how outing, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if how == soft && !g.mayLeaveLocked(b) {
		return false
	}
	if b.seat.out == in {
		b.seat.since = now
	}
	b.seat.out = how
	b.seat.pace = pace{}
	return true
}

func (g *Group) mayLeaveLocked(b *Breaker) bool {
	out, other := 1, false
	for _, m := range g.members {
		if m == b {
			continue
		}
		if m.seat.out == soft {
			out++
		}
		other = other || m.seat.out == in && m.seat.usable
	}
	return other && out <= len(g.members)/2
}

// enter notes that a worker is in again.
func (g *Group) enter(b *Breaker) {
	g.mu.Lock()
	b.seat.out = in
	g.mu.Unlock()
}

// relieve closes breakers that were opened for soft reasons until the rule of
// leave holds again: workers that were in may have died or been removed since.
func (g *Group) relieve() {
	g.look()
	for {
		b, _ := g.surplus()
		if b == nil || !b.readmit() {
			return
		}
	}
}

// surplus returns the breaker that is longest out of those that may not be
// kept out, and why; nil when all may.
func (g *Group) surplus() (b *Breaker, cause string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	out, anyone := 0, false
	var first, usable *Breaker // the longest out of all, and of the usable ones
	for _, m := range g.members {
		switch m.seat.out {
		case in:
			anyone = anyone || m.seat.usable
		case soft:
			out++
			if first == nil || m.seat.since.Before(first.seat.since) {
				first = m
			}
			if m.seat.usable && (usable == nil || m.seat.since.Before(usable.seat.since)) {
				usable = m
			}
		}
	}
	switch {
	case !anyone && usable != nil:
		return usable, CauseLastUsable
	case out > len(g.members)/2:
		return first, CauseHalfPool
	}
	return nil, ""
}
