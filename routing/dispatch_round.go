package routing

import (
	"slices"
	"time"
)

// DispatchRound is one pass of a queue over its pool: waiting requests are offered in their order,
// so that order and worker are one decision. It holds the pool's lock from Begin to End and
// is used by one goroutine; nothing else of the pool may be called meanwhile, Admit and
// Release of a lease included.
type DispatchRound struct {
	pool      *Pool
	now       time.Time
	active    bool // between Begin and End
	openKnown bool // open is what Open has found
	open      bool
	reserved  bool // a request waits for a worker, or has reserved one
}

// backlog is the requests of a round that wait for a worker.
type backlog struct {
	requests        int
	prefill, output int64
}

// Begin locks the pool for a round at that time.
func (p *Pool) BeginRound(now time.Time) *DispatchRound {
	p.mu.Lock()
	p.round.active, p.round.now, p.round.openKnown = true, now, false
	return &p.round
}

// Open reports whether some worker can take a request now: it is up, has weight, and is
// neither in backoff, open, saturated nor full; or metrics alone saturate all workers, and
// one has no request in flight. If none can, no offer of the round returns a lease.
func (r *DispatchRound) Open() bool {
	if !r.openKnown {
		r.openKnown, r.open = true, r.openLocked()
	}
	return r.open
}

func (r *DispatchRound) openLocked() bool {
	var f eligibleSet
	for _, w := range r.pool.workers {
		if !r.pool.usableLocked(w, &Request{Now: r.now}, nil) {
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

// Sized reports whether a worker may be full for some requests only, because of their tokens.
func (r *DispatchRound) Sized() bool {
	return slices.ContainsFunc(r.pool.workers, func(w *Worker) bool { return w.maxTokens > 0 })
}

// Changes counts the calls of the pool's watcher. A request that was not dispatched at one
// count cannot be at the same count later, unless sure is false: some worker rests.
func (r *DispatchRound) Changes() (count uint64, sure bool) {
	return r.pool.changes, !r.now.Before(r.pool.pausedUntil)
}

// Offer picks a worker for the request and books it there, like Acquire, but asks no gate:
// its lease owes Admit after the round. It sets the round's time in q, and keeps nothing of
// q. A request that a Planner lets wait counts as load on its worker in later offers of the
// round, but not against bounds such as MaxInflight.
func (r *DispatchRound) Offer(q *Request, tried []*Worker) (l Lease, err error) {
	q.Now = r.now
	if err = r.pool.bookLocked(&l, q, tried); err == nil {
		r.openKnown = false
	}
	return l, err
}

// Reserve keeps one worker from later offers of the round for a request that is too long
// for every worker that it could go to: the one with the fewest tokens in flight. Without
// that short requests would take the room as it comes free. It reports whether it reserved
// one: not if some worker has room, nor if none lacks room because of its tokens.
func (r *DispatchRound) Reserve(q *Request, tried []*Worker) (reserved bool) {
	q.Now = r.now
	tokens := booked(q.PromptTokens) + booked(q.OutputTokens)
	group, _ := r.pool.groupLocked(q, tried)
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

// addBacklogLocked notes, to the end of a round, that the request waits for the view's worker.
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
