package routing

import "time"

// Acquire picks a worker that is not in tried and books the request on it in one step: the
// prompt's uncached tokens until Answered (if the answer is not streamed: until they should
// be prefilled), and the request, its blocks and the output's tokens until Release. The
// worker's gate is asked afterwards, outside the lock; if it refuses, the booking is undone
// and the next best worker is picked.
//
// Acquire does not wait and keeps nothing of r. It marks r if a Planner lets it wait, so
// that the next offer teaches the policy nothing again. Its errors are ErrNoWorker, ErrFull,
// ErrBestWorkerFull, a *BackoffError or an *OpenError.
func (p *Pool) Acquire(r *Request, tried ...*Worker) (l Lease, err error) {
	var room [16]*Worker // refusals are rare, and those of a usual pool need no allocation
	tried = append(room[:0], tried...)
	for {
		if err = p.book(&l, r, tried); err != nil || l.Admit() == nil {
			return l, err
		}
		tried = append(tried, l.worker)
		l = Lease{}
	}
}

// Admit asks the gate of a lease that a round made, outside the round. Its owner owes that
// before the request is sent, or a Release with ErrExcluded. On the gate's error the booking
// is undone, and nothing is owed any more. A worker that the ejection cap keeps in rotation
// takes the request all the same; its gate then gets no outcome. Acquire's leases are
// admitted.
func (l *Lease) Admit() error {
	if l.admitted || l.gate == nil {
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
	l.reported, l.released = true, true
	l.unbookLocked()
	p.unlockChanged()
	return err
}

// expectedLocked is when the booked request's outcome is due.
func (l *Lease) expectedLocked(output int64) time.Duration {
	d := firstStep + seconds(float64(l.ahead)/l.worker.value[prefillRate])
	if !l.stream {
		d += seconds(float64(output) * l.worker.value[tokenTime])
	}
	return min(d, maxPrefill)
}

// book picks and books under the lock. On an error the zero lease l stays as it is.
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
	w := p.workers[ws[i].Index]
	if ws[i].Full {
		r.learned = true
		p.round.addBacklogLocked(r, w, &ws[i])
		return waitError(ws)
	}
	l.pool, l.worker, l.gate, l.reason = p, w, w.gate, reason
	l.stream, l.bookedAt, l.prompt = r.Stream, r.Now, booked(r.PromptTokens)
	l.estimate = float64(l.prompt) / p.scaleLocked()
	l.overlap = min(l.prompt, ws[i].Overlap)
	l.booking = p.bookRequestLocked(r, w, &ws[i])
	l.prefill, l.ahead, l.assumedCached, l.level = l.booking.prefill, w.pending, w.assumedCached, w.inflight
	l.expected, l.queueTime = l.expectedLocked(l.booking.output), p.queueTimeLocked(w)
	return nil
}

// waitError is the error of a request that waits for a full worker.
func waitError(ws []View) error {
	if anyOf(ws, false) {
		return ErrBestWorkerFull
	}
	return ErrFull
}

// showLocked returns the workers as the policy is shown them.
func (p *Pool) showLocked(r *Request, tried []*Worker) ([]View, error) {
	ws, err := p.eligibleLocked(r, tried)
	if err != nil {
		return nil, err
	}
	p.inflightPrefixes.setOverlaps(r.Blocks, booked(r.PromptTokens), ws, p.workers)
	p.history.setOverlaps(r, booked(r.PromptTokens), ws, p.workers)
	return ws, nil
}

// pickLocked asks the policy, or takes the least loaded worker if it abstains, and fills
// the request's record.
func (p *Pool) pickLocked(r *Request, ws []View) (int, Reason) {
	if r.Record != nil {
		r.assessments, r.runnerUp = p.assessments[:len(ws)], -1
		for i := range ws { // for policies that say nothing
			r.assessments[i] = assessment{score: ws[i].score(), excluded: exclusionIfFull(&ws[i])}
		}
		r.Record.begin(p.policy.Name(), r)
	}
	i, reason := p.policy.Pick(r, ws)
	if i < 0 || i >= len(ws) {
		i, reason = leastLoad{}.Pick(r, ws)
	}
	if r.Record != nil {
		r.Record.finish(ws, r.assessments, i, r.runnerUp)
		r.assessments = nil
	}
	return i, reason
}
