package routing

import (
	"math"
	"time"
)

// Slow start of a worker that returns after an ejection.
const (
	// slowStartTime is long enough for an engine to compile, fill its caches or fail again.
	slowStartTime = 10 * time.Second
	// slowStartShare is the share at the start: enough requests to detect a failure.
	slowStartShare = 0.1
)

// shareLocked returns the share of its usual load that the worker should get.
func (w *Worker) shareLocked(now time.Time) float64 {
	switch {
	case w.ejectionDenied:
		return slowStartShare
	case w.slowStartFrom.IsZero():
		return 1
	}
	past := float64(now.Sub(w.slowStartFrom)) / float64(slowStartTime)
	return min(max(slowStartShare, slowStartShare+(1-slowStartShare)*past), 1)
}

// applySlowStartLocked hides workers in slow start from requests beyond their share. Two rules
// apply: a worker is drawn with the probability of its share, and its requests in flight stay
// within that share of what the group's other workers have.
//
// If no other worker is open, only the second rule applies. A request beyond it waits if it can
// (ErrFull for a policy that does not plan), otherwise it takes one of these workers. If no
// other worker can serve the request, none is hidden.
func (p *Pool) applySlowStartLocked(r *Request, f *eligibleSet) ([]View, error) {
	drawn := true
	shown := func(v *View) bool {
		w := p.workers[v.Index]
		share := w.shareLocked(r.Now)
		if share == 1 {
			return true
		}
		if f.weight > 0 {
			usual := float64(v.Weight) * float64(f.inflight) / float64(f.weight)
			if float64(w.inflight+1) > max(1, math.Ceil(share*usual)) {
				return false
			}
		}
		return !drawn || chance(r.Rand, v.Index) < share
	}
	left, open := countShown(f.views, shown)
	if open == 0 {
		drawn = false
		left, open = countShown(f.views, shown)
	}
	switch {
	case left == len(f.views) || open == 0 && !r.Wait:
		return f.views, nil
	case left == 0:
		return nil, ErrFull
	}
	kept := f.views[:0]
	for i := range f.views {
		if v := f.views[i]; shown(&v) {
			kept = append(kept, v)
		}
	}
	return kept, nil
}

// countShown returns how many of ws are shown, and how many of those are open.
func countShown(ws []View, shown func(*View) bool) (left, open int) {
	for i := range ws {
		if shown(&ws[i]) {
			left++
			if !ws[i].Full {
				open++
			}
		}
	}
	return left, open
}

// chance returns a number in [0, 1) from the request's random number for the worker at that
// index. It is independent of the other workers' numbers and of the policy's.
func chance(rand uint64, index int) float64 { return Unit(Mix(rand + uint64(index+1)*golden)) }

// beginStreamLocked counts a stream whose answer has begun. An engine answers as many streams at
// once as it has slots; other streams wait inside it. The largest number of this gateway's
// streams that it has answered at once is the estimate of this gateway's slots.
func (w *Worker) beginStreamLocked(b *booking) {
	if b.stream && !b.answering {
		b.answering = true
		w.answering++
		w.slots = max(w.slots, w.answering)
	}
}

// queueTimeLocked predicts how long a stream that is booked now waits for a slot, if answers have
// the usual length and the peers' speed.
func (p *Pool) queueTimeLocked(w *Worker) time.Duration {
	waiting := w.streams - w.slots
	if waiting <= 0 || w.slots == 0 {
		return 0
	}
	answer := p.learned.output.value(outputLimits.prior) * w.prior[tokenTime]
	return min(maxPrefill, seconds(answer*float64(waiting)/float64(w.slots)))
}
