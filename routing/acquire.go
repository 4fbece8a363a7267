package routing

import "time"

// Acquire picks a worker that is not in tried and books the request on it in one step. It
// calls the worker's gate afterwards, outside the lock. If the gate refuses, the booking is
// undone and the next best worker is picked.
//
// The uncached prompt tokens stay booked until Answered, or for an answer that is not
// streamed until their predicted end. The request, its blocks and its output tokens stay
// booked until Release.
//
// Acquire does not block and keeps nothing of r. If a Planner lets r wait, Acquire marks r, so
// that the policy does not learn from it again at the next offer. The errors are ErrNoWorker,
// ErrFull, ErrBestWorkerFull, a *BackoffError or an *OpenError.
func (p *Pool) Acquire(r *Request, tried ...*Worker) (l Lease, err error) {
	var scratch [16]*Worker // avoids an allocation in pools of usual size
	tried = append(scratch[:0], tried...)
	for {
		if err = p.book(&l, r, tried); err != nil || l.Admit() == nil {
			return l, err
		}
		tried = append(tried, l.Refused())
		l = Lease{}
	}
}

// Admit calls the gate for a lease that a DispatchRound made. The owner of such a lease owes
// it, outside the round and before the request is sent, or a Release with ErrExcluded. If the
// gate returns an error, the booking is undone and nothing more is owed. A worker that the
// ejection cap keeps in rotation takes the request in spite of its gate, which then gets no
// outcome. The prefill lease of a hand-over is admitted first; if its gate refuses, both bookings are undone.
// Leases from Acquire are already admitted.
func (l *Lease) Admit() error {
	if l.admitted {
		return nil
	}
	if prefill := l.Prefill(); prefill != nil {
		if err := prefill.Admit(); err != nil {
			l.decode.refused = true
			l.undo()
			return err
		}
	}
	if l.gate == nil {
		return nil
	}
	ticket, err := l.gate.Allow(l.expected)
	if err == nil {
		l.admitted, l.ticketed, l.ticket = true, true, ticket
		return nil
	}
	p := l.pool
	p.mu.Lock()
	if l.worker.ejectionDenied {
		p.mu.Unlock()
		l.admitted = true
		return nil
	}
	p.mu.Unlock()
	if prefill := l.Prefill(); prefill != nil {
		prefill.reportOutcome(ErrExcluded)
		prefill.undo()
	}
	l.undo()
	return err
}

// undo gives back a booking that was not sent, as if it had not been made.
func (l *Lease) undo() {
	p := l.pool
	p.mu.Lock()
	l.reported, l.released = true, true
	p.uncountLocked(l)
	l.unbookLocked()
	p.unlockChanged()
}

// Refused returns the worker whose gate refused the lease, after an error of Admit.
func (l *Lease) Refused() *Worker {
	if l.decode != nil && l.decode.refused {
		return l.decode.prefill.worker
	}
	return l.worker
}

// expectedLocked predicts the time from the booking to the request's outcome.
func (l *Lease) expectedLocked(output int64) time.Duration {
	d := l.firstTokenLocked()
	if !l.stream {
		d += seconds(float64(output) * l.worker.value[tokenTime])
	}
	return min(d, maxPrefill)
}

// firstTokenLocked predicts the time from the booking to the first token.
func (l *Lease) firstTokenLocked() time.Duration {
	return min(firstStep+seconds(float64(l.ahead)/l.worker.value[prefillRate]), maxPrefill)
}

// book picks and books under the lock. On an error it leaves the zero lease l unchanged.
func (p *Pool) book(l *Lease, r *Request, tried []*Worker) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bookLocked(l, r, tried)
}

func (p *Pool) bookLocked(l *Lease, r *Request, tried []*Worker) error {
	ws, err := p.showLocked(r, tried)
	if err != nil {
		return err
	}
	i, reason := p.pickLocked(r, ws)
	if p.handover != nil && !ws[i].Full {
		return p.bookStagesLocked(l, r, tried, ws, i, reason)
	}
	return p.bookPickLocked(l, r, ws, i, reason)
}

// bookPickLocked books the request on the picked worker, or counts it as waiting for a full one.
func (p *Pool) bookPickLocked(l *Lease, r *Request, ws []View, i int, reason Reason) error {
	w := p.workers[ws[i].Index]
	if ws[i].Full {
		r.learned = true
		p.round.addBacklogLocked(r, w, &ws[i])
		return waitError(ws)
	}
	l.pool, l.worker, l.gate, l.reason, l.model, l.only = p, w, w.gate, reason, r.Model, r.Only
	l.stream, l.bookedAt, l.prompt = r.Stream, r.Now, booked(r.PromptTokens)
	l.estimate = float64(l.prompt) / p.scaleLocked()
	l.overlap, l.predicted = min(l.prompt, ws[i].Overlap), ws[i].predicted
	l.exact, l.byEvents, l.published, l.computing = ws[i].exact, ws[i].byEvents, ws[i].published, ws[i].computing
	l.byLookup = ws[i].byLookup()
	l.unplaced, l.stages, l.handedOver, l.isPrefill = r.Unplaced, r.stages(), r.decode, r.prefill
	if !r.decode && p.facts&usesCosts != 0 {
		l.elsewhere = soonestElsewhere(r, ws, i)
	}
	if !r.decode {
		p.countSourceLocked(&ws[i])
	}
	p.keepPinLocked(r, w, ws)
	if p.reuse >= 0 {
		p.traffic.reuse.learn(p.reuse.Seconds())
	}
	l.booking = p.bookRequestLocked(r, w, &ws[i])
	l.prefill, l.ahead, l.assumedCached, l.level = l.booking.prefill, w.pending, w.assumedCached, w.inflight
	l.expected, l.queueTime = l.expectedLocked(l.booking.output), p.queueTimeLocked(w)
	if r.Timed && !r.decode {
		w.addSilentLocked(l.booking, p.silenceOf(r, w, l.firstTokenLocked()))
	}
	return nil
}

// waitError returns the error of a request that waits for a full worker.
func waitError(ws []View) error {
	if anyOf(ws, false) {
		return ErrBestWorkerFull
	}
	return ErrFull
}

// showLocked returns the workers that the policy is shown.
func (p *Pool) showLocked(r *Request, tried []*Worker) ([]View, error) {
	ws, err := p.eligibleLocked(r, tried)
	if err != nil {
		return nil, err
	}
	p.setPromptFactsLocked(r, ws)
	return ws, nil
}

// setPromptFactsLocked sets what the pool knows of the request's prompt and session, and the costs.
func (p *Pool) setPromptFactsLocked(r *Request, ws []View) {
	p.setOverlapsLocked(r, ws)
	p.setPinLocked(r, ws)
	if p.facts&usesStoredKeys != 0 {
		p.setStoredKeysLocked(r, ws)
	}
	if p.facts&usesCosts != 0 || r.Record != nil {
		p.setCostsLocked(r, ws)
	}
}

// pickLocked calls the policy and fills the request's record. If the policy abstains, the
// least loaded worker is chosen.
func (p *Pool) pickLocked(r *Request, ws []View) (int, Reason) {
	if r.Record != nil {
		r.assessments, r.runnerUp = p.assessments[:len(ws)], -1
		r.assessByLoad(ws) // for policies that assess nothing
		r.Record.begin(p.policy.Name(), r)
		if r.pinned > 0 {
			r.Record.Pinned = ws[r.pinned-1].ID
		}
	}
	i, reason := p.policy.Pick(r, ws)
	if i < 0 || i >= len(ws) {
		r.assessByLoad(ws)
		i, reason = leastLoad{}.Pick(r, ws)
	}
	if r.Record != nil {
		r.Record.finish(ws, r.assessments, i, r.runnerUp)
		r.assessments = nil
	}
	return i, reason
}
