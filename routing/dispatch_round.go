package routing

import (
	"slices"
	"time"
)

// DispatchRound is one pass of a queue over its pool: waiting requests are offered in their
// order, so that order and worker are one decision. It holds the pool's lock from BeginRound
// to End. One goroutine uses it, and calls no other method of the pool or of its leases
// meanwhile, Admit and Release included.
type DispatchRound struct {
	pool      *Pool
	now       time.Time
	active    bool // between BeginRound and End
	openKnown bool // open is up to date
	open      bool
	reserved  bool // some worker has a backlog or is reserved
}

// backlog is the load of a round's requests that wait for one worker.
type backlog struct {
	requests        int
	prefill, output int64
}

// BeginRound locks the pool for a round at now.
func (p *Pool) BeginRound(now time.Time) *DispatchRound {
	p.mu.Lock()
	p.round.active, p.round.now, p.round.openKnown = true, now, false
	return &p.round
}

// Open reports whether some worker can take a request now: it is up, has weight, and is
// neither in backoff, open, saturated nor full. If metrics alone saturate all workers, one
// without requests in flight counts. If Open is false, no offer of the round returns a lease.
func (r *DispatchRound) Open() bool {
	if !r.openKnown {
		r.openKnown, r.open = true, r.openLocked()
	}
	return r.open
}

func (r *DispatchRound) openLocked() bool {
	var f eligibleSet
	request := Request{Now: r.now}
	r.pool.markOverdueLocked(&request, nil)
	for _, w := range r.pool.workers {
		if !r.pool.usableLocked(w, &request, nil) {
			continue
		}
		saturated, _ := r.pool.metricsLocked(w, r.now)
		if !saturated && !w.fullLocked(0) {
			return true
		}
		f.skip(w, saturated)
	}
	return f.saturatedByMetricsAlone()
}

// Sized reports whether some worker has a bound on tokens, so that it may be full for large
// requests only.
func (r *DispatchRound) Sized() bool {
	return slices.ContainsFunc(r.pool.workers, func(w *Worker) bool { return w.maxTokens > 0 })
}

// Changes returns the number of calls of the pool's watcher. A request that was not dispatched
// at one count cannot be dispatched at the same count later, unless sure is false: then some
// worker is in backoff, open or late, which ends without a change.
func (r *DispatchRound) Changes() (count uint64, sure bool) {
	return r.pool.changes, !r.now.Before(r.pool.pausedUntil) && !r.pool.anyLateLocked(r.now)
}

// Offer picks a worker for the request and books it, like Acquire, but calls no gate: the
// lease owes Admit after the round. Offer sets q.Now to the round's time and keeps nothing of
// q. A request that a Planner lets wait counts as load on its worker in later offers of the
// round, but not against bounds such as MaxInflight.
func (r *DispatchRound) Offer(q *Request, tried []*Worker) (l Lease, err error) {
	q.Now = r.now
	if err = r.pool.bookLocked(&l, q, tried); err == nil {
		r.openKnown = false
	}
	return l, err
}

// Reserve keeps one worker from later offers of the round, for a request that exceeds the
// bound on tokens of every worker that could take it. It selects the worker with the fewest
// tokens in flight. Without Reserve, short requests would take the room as it becomes free.
// Reserve returns false if some worker has room, or if none lacks room because of its tokens.
func (r *DispatchRound) Reserve(q *Request, tried []*Worker) (reserved bool) {
	q.Now = r.now
	tokens := booked(q.PromptTokens) + booked(q.OutputTokens)
	r.pool.markOverdueLocked(q, tried)
	group := r.pool.groupLocked(q, tried)
	var least *Worker
	for _, w := range r.pool.workers {
		if w.group != group || !r.pool.usableLocked(w, q, tried) {
			continue
		}
		if saturated, _ := r.pool.metricsLocked(w, r.now); saturated {
			continue
		}
		if !w.fullLocked(tokens) {
			return false
		}
		if !w.reserved && w.overTokensLocked(tokens) && (least == nil || w.tokens < least.tokens) {
			least = w
		}
	}
	if least != nil {
		least.reserved, r.reserved, r.openKnown = true, true, false
	}
	return least != nil
}

// addBacklogLocked counts a request that waits for the view's worker until the round ends.
func (r *DispatchRound) addBacklogLocked(q *Request, w *Worker, v *View) {
	if !r.active {
		return
	}
	r.reserved = true
	w.backlog.requests++
	w.backlog.prefill += uncached(booked(q.PromptTokens), v)
	w.backlog.output += booked(q.OutputTokens)
}

// End ends the round and unlocks the pool.
func (r *DispatchRound) End() {
	if r.reserved {
		for _, w := range r.pool.workers {
			w.backlog, w.reserved = backlog{}, false
		}
	}
	r.active, r.reserved = false, false
	r.pool.mu.Unlock()
}
