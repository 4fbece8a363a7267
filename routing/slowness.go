package routing

import (
	"errors"
	"time"
)

// ErrSlow is the outcome that a gate receives for a good answer of a worker that is too slow.
var ErrSlow = errors.New("the worker is too slow")

// Slowness defines when a worker is too slow. The zero value turns the rule off.
//
// A worker's streams are compared with its peers' streams of the same moment. A moment lasts at
// least two seconds, and until the worker and one peer have three streams that were booked and
// began within it. The ratio of a stream is its observed time to first token divided by the
// predicted one. The result of a moment is the worker's median ratio divided by the median of
// its peers' medians. A worker with MinSamples streams in five minutes is slow if the result
// exceeds Factor in all but one of its last six to eight moments. Without peers it is not slow.
type Slowness struct {
	Factor     float64       // 0 turns it off
	MinSamples int           // streams within five minutes before the rule applies; at most 64
	P95Above   time.Duration // also slow if more than 5 of 100 of its last 64 streams took longer; 0 turns it off
}

// SetSlowness sets the rule of slowness, from the next stream on.
func (p *Pool) SetSlowness(s Slowness) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.MinSamples = min(s.MinSamples, maxSamples)
	p.slowness = s
}

// slowLocked records a stream's time to first token and reports whether its worker is slow. It
// records streams while the rule is off too, so that a reload that turns it on has samples. A
// probe of a worker that was ejected for slowness is compared with the peers' latest streams.
func (p *Pool) slowLocked(w *Worker, s sample) bool {
	limit := p.slowness
	switch {
	case w.ejected && !w.ejection.Until.IsZero():
		return false // it shows the time before the ejection
	case w.ejected:
		return w.ejection.Slow && (p.slowProbeLocked(w, s) || limit.P95Above > 0 && s.observed > limit.P95Above)
	case s.began.Before(w.restoredAt):
		return false // it shows the time before the ejection
	}
	w.pace.add(s)
	if w.pace.streams >= momentStreams && s.at.Sub(w.pace.began) >= momentSpan {
		if peers, ok := p.peersLocked(w, w.pace.began); ok {
			w.pace.endMoment(s.at, peers)
		}
	}
	return len(w.pace.samples) >= limit.MinSamples &&
		(limit.Factor > 0 && w.pace.slow(limit.Factor) || limit.P95Above > 0 && w.pace.p95() > limit.P95Above)
}

// slowProbeLocked reports whether a probe is slower than the peers' latest streams. A probe is
// alone on its worker, so it belongs to no burst.
func (p *Pool) slowProbeLocked(w *Worker, s sample) bool {
	if p.slowness.Factor <= 0 || s.ratio <= 0 {
		return false
	}
	peers, ok := p.peersLocked(w, s.at.Add(-paceWindow))
	return ok && s.ratio > p.slowness.Factor*peers
}

// peersLocked returns the median of the medians of all other workers with enough streams booked
// at from or later; ok is false if there is no such worker.
func (p *Pool) peersLocked(w *Worker, from time.Time) (m float64, ok bool) {
	var scratch [32]float64 // avoids an allocation in pools of usual size
	medians := scratch[:0]
	for _, o := range p.workers {
		if o == w {
			continue
		}
		if m, ok := o.pace.median(from, from, momentStreams); ok {
			medians = append(medians, m)
		}
	}
	if len(medians) == 0 {
		return 0, false
	}
	return median(medians), true
}
