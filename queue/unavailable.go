package queue

import (
	"slices"
	"time"

	"tierway/routing"
)

// wakeMovableEvery is the interval at which movable tickets are woken while no worker is up, because
// another pool may have one by then. It is below the 100 ms between two calls of Dispatch, so that each
// of these calls wakes them.
const wakeMovableEvery = 50 * time.Millisecond

// expireWhileDownLocked evicts tickets that have waited for their limit while no worker is up, and wakes
// the movable ones of the others.
func (q *Queue) expireWhileDownLocked(now time.Time) {
	if q.pool.Up(now) {
		q.downSince = time.Time{}
		return
	}
	if q.downSince.IsZero() {
		q.downSince, q.nextMove, q.nextExpiry = now, now, now
	}
	if !now.Before(q.nextExpiry) {
		q.nextExpiry = q.expireWaitsLocked(now)
	}
	if !now.Before(q.nextMove) {
		q.nextMove = now.Add(wakeMovableEvery)
		q.wakeMovableLocked()
	}
}

// expireWaitsLocked evicts the tickets whose wait for a worker is over, and returns when the next one may be. A retry
// waits less than the tickets before it, so all tickets are checked.
func (q *Queue) expireWaitsLocked(now time.Time) (next time.Time) {
	next = now.Add(minWorkerWait) // no later ticket waits less
	for i := range q.classes {
		for t, newer := q.classes[i].all.first, (*Ticket)(nil); t != nil; t = newer {
			newer = t.links[inClass].after
			if end := later(q.downSince, t.waitingSince).Add(q.workerWait(t)); now.Before(end) {
				next = earlier(next, end)
				continue
			}
			q.evictLocked(t, q.shedLocked(t, ShedEngine, now), now)
		}
	}
	return next
}

// wakeMovableLocked calls onWake for the waiting tickets that may leave for another queue, in the order of
// arrival.
func (q *Queue) wakeMovableLocked() {
	for i := range q.classes {
		for t := q.classes[i].all.first; t != nil; t = t.links[inClass].after {
			if t.Movable {
				q.wakeups = append(q.wakeups, t)
			}
		}
	}
}

// workerWait returns how long a ticket waits until a worker that could take it is up.
func (q *Queue) workerWait(t *Ticket) time.Duration {
	if len(t.Tried) > 0 {
		return minWorkerWait
	}
	return max(q.config.Load().EngineWait, minWorkerWait)
}

// markUnroutableLocked records since when no worker that is up could take a waiting ticket.
func (q *Queue) markUnroutableLocked(t *Ticket, unroutable bool, now time.Time) {
	switch {
	case unroutable && t.unroutableSince.IsZero() && t.state == stateWaiting:
		t.unroutableSince, t.unroutableIndex = now, len(q.unroutable)
		q.unroutable = append(q.unroutable, t)
	case !unroutable && !t.unroutableSince.IsZero():
		t.unroutableSince = time.Time{}
		last := q.unroutable[len(q.unroutable)-1]
		q.unroutable[t.unroutableIndex], last.unroutableIndex = last, t.unroutableIndex
		q.unroutable[len(q.unroutable)-1] = nil
		q.unroutable = q.unroutable[:len(q.unroutable)-1]
	}
}

// offerUnroutableLocked offers tickets once more at the end of their worker wait, because a worker
// may be up by now. Tickets that are still unroutable are evicted.
func (q *Queue) offerUnroutableLocked(round *routing.DispatchRound, now time.Time) {
	var scratch [maxUnroutable]*Ticket
	due := scratch[:0]
	for _, t := range q.unroutable {
		if len(due) < maxUnroutable && now.Sub(t.unroutableSince) >= q.workerWait(t) {
			due = append(due, t)
		}
	}
	slices.SortFunc(due, func(a, b *Ticket) int { return int(int64(a.seq) - int64(b.seq)) })
	for _, t := range due {
		switch err := q.offerLocked(round, t, [Classes - 1]step{}, now); {
		case isUnroutable(t, err, q.waitLimitLocked(t)):
			q.evictions = append(q.evictions, t)
		case err != nil:
			q.markUnroutableLocked(t, false, now)
		}
	}
}

// waitLimitLocked returns the end of a ticket's wait: its class's limit or its wait for a
// worker to come up, and no later than its deadline.
func (q *Queue) waitLimitLocked(t *Ticket) time.Time {
	return q.waitLimitUnderLocked(q.config.Load(), t)
}

// waitLimitUnderLocked is waitLimitLocked under the bounds of c.
func (q *Queue) waitLimitUnderLocked(c *Config, t *Ticket) time.Time {
	until := t.entered.Add(c.MaxWait[t.Class])
	if since := later(q.downSince, t.unroutableSince); !since.IsZero() && len(t.Tried) == 0 {
		until = later(until, later(since, t.waitingSince).Add(c.EngineWait))
	}
	if !t.Deadline.IsZero() && t.Deadline.Before(until) {
		return t.Deadline
	}
	return until
}

// lateReasonLocked returns the shed reason of a ticket that reached its wait limit.
func (q *Queue) lateReasonLocked(t *Ticket) string {
	if !q.downSince.IsZero() || !t.unroutableSince.IsZero() {
		return ShedEngine
	}
	return ShedWait
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
