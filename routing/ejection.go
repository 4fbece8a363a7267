package routing

import "time"

// Ejection is the state of a worker's circuit breaker that is not closed.
type Ejection struct {
	At          time.Time // time of the transition
	Until       time.Time // end of the open state; zero while half-open
	Unreachable bool      // its server accepts no connection
	Slow        bool      // it was opened because the worker is slow
}

// Eject keeps new requests from the worker with that ID and Ref while its breaker is open, unless
// the ejection cap keeps it in rotation. While it is half-open, its gate limits the requests.
func (p *Pool) Eject(id string, ref any, e Ejection) {
	p.mu.Lock()
	defer p.unlockChanged()
	w := p.findLocked(id, ref)
	if w == nil {
		return
	}
	if !w.ejected {
		w.ejectedAt = e.At
	}
	w.ejected, w.ejection = true, e
	if !e.Until.IsZero() {
		w.pace = pace{}
	}
	p.extendPauseLocked(e.Until)
	p.capEjectionsLocked()
}

// Restore ends the ejection of the worker with that ID and Ref and begins its slow start: its
// share grows linearly from a tenth to the whole within ten seconds. If it is the only worker in
// its group, it takes all requests at once.
func (p *Pool) Restore(id string, ref any, at time.Time) {
	p.mu.Lock()
	defer p.unlockChanged()
	w := p.findLocked(id, ref)
	if w == nil {
		return
	}
	if !w.ejection.Slow {
		w.latency = latency{} // it shows the time before the ejection, and how long its probes waited
	}
	w.ejected, w.ejection = false, Ejection{}
	w.slowStartFrom, w.restoredAt = at, at
	p.capEjectionsLocked()
}

// capEjectionsLocked applies the ejection cap after a change of a breaker, a status or the
// members.
func (p *Pool) capEjectionsLocked() {
	capEjections(p.workers)
	p.publishUpLocked()
}

// capEjections applies the ejection cap to the workers of a pool: at most half of them are
// ejected, and never the last worker that is up and has weight. The cap keeps the workers that
// were ejected last in rotation, with a tenth of their share. It does not apply to a worker
// whose server accepts no connection.
func capEjections(workers []*Worker) {
	inRotation := false
	var last *Worker // the last ejected worker that can stay in rotation
	for _, w := range workers {
		usable := w.status.Up && w.weight > 0
		w.ejectionDenied = w.cappedLocked() && ejectedBefore(workers, w) >= len(workers)/2
		inRotation = inRotation || usable && (w.ejectionDenied || !w.ejected)
		if usable && w.cappedLocked() && (last == nil || last.ejectedBefore(w)) {
			last = w
		}
	}
	if !inRotation && last != nil {
		last.ejectionDenied = true
	}
}

// ejectedBefore counts the workers under the cap that were ejected before w.
func ejectedBefore(workers []*Worker, w *Worker) (n int) {
	for _, o := range workers {
		if o.cappedLocked() && o.ejectedBefore(w) {
			n++
		}
	}
	return n
}

// ejectedBefore orders two ejected workers by time, then by index.
func (w *Worker) ejectedBefore(o *Worker) bool {
	if w.ejectedAt.Equal(o.ejectedAt) {
		return w.index < o.index
	}
	return w.ejectedAt.Before(o.ejectedAt)
}

// cappedLocked reports whether the worker is ejected and the cap applies to it.
func (w *Worker) cappedLocked() bool { return w.ejected && !w.ejection.Unreachable }

// openUntilLocked returns the end of the worker's open state, or of the pause set by SetOpen.
func (w *Worker) openUntilLocked() time.Time {
	if w.ejectionDenied || w.ejection.Until.Before(w.openUntil) {
		return w.openUntil
	}
	return w.ejection.Until
}
