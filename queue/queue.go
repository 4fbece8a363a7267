package queue

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"tierway/routing"
)

// Queue is the queue of one pool. It is safe for concurrent use. Its lock is taken before the
// pool's; onWake is called under neither.
type Queue struct {
	pool        *routing.Pool
	onWake      func(*Ticket)
	config      atomic.Pointer[Config]
	waiting     atomic.Int64 // number of waiting tickets
	lastSeq     atomic.Uint64
	dispatching atomic.Bool // a goroutine runs Dispatch
	changed     atomic.Bool // something has changed since a pass began

	mu          sync.Mutex // guards the rest
	classes     [Classes]class
	bytes       int64
	downSince   time.Time // since when no worker of the pool is up; zero while one is
	nextMove    time.Time // when the movable tickets are woken again while no worker is up
	nextExpiry  time.Time // before which no ticket's wait for a worker is over while no worker is up
	unroutable  []*Ticket // no worker that is up could take them when they were last offered
	seenChanges uint64    // the pool's change counter at the last whole pass

	// State of one pass.
	output     int64 // the pool's expected output tokens of an answer
	walk       order
	booked     []bookedTicket
	rejections []rejectionMemo
	evictions  []*Ticket // tickets to evict
	wakeups    []*Ticket // dispatched or evicted tickets: onWake is called after the lock is released

	onWaiting func() // set by OnWaiting; may be nil
}

// New returns an empty queue before a pool. onWake is called once each time a ticket's wait is
// over; then Claim returns its lease or its error. It is also called for a Movable ticket that may
// leave; then Claim returns ErrWaiting. The caller must call Dispatch when a waiting
// request may be dispatched (see routing.Pool.Watch), and every few hundred milliseconds while
// one waits.
func New(pool *routing.Pool, c Config, onWake func(*Ticket)) *Queue {
	q := &Queue{pool: pool, onWake: onWake}
	q.config.Store(&c)
	for i := range q.classes {
		q.classes[i].flows, q.classes[i].all.of = map[string]*flow{}, inClass
	}
	return q
}

// OnWaiting sets a function that is called when a request enters the empty queue, even if it does not wait. f must not
// call the queue, because it runs under the lock of the queue. Call OnWaiting before the first Enter.
func (q *Queue) OnWaiting(f func()) { q.onWaiting = f }

// Configure applies new bounds. All waiting requests stay.
func (q *Queue) Configure(c Config, now time.Time) {
	q.config.Store(&c)
	q.Dispatch(now)
}

// Waiting returns the number of waiting requests. It takes no lock.
func (q *Queue) Waiting() int { return int(q.waiting.Load()) }

// locked runs f under the lock and then calls onWake for the tickets in wakeups, even after a
// panic.
func (q *Queue) locked(f func()) {
	q.mu.Lock()
	defer func() {
		wakes := q.wakeups
		q.wakeups = nil
		q.mu.Unlock()
		for _, t := range wakes {
			q.onWake(t)
		}
	}()
	f()
}

// Enter returns a lease if the request can be dispatched at once. ErrWaiting means that it
// waits: onWake will be called unless Leave comes first. A *ShedError means that it may not
// wait; the pool's own errors mean that no worker that is up could take it. A ticket that
// enters again after a failed attempt keeps its place, waits for the rest of its time, and is
// exempt from the bounds.
func (q *Queue) Enter(t *Ticket, now time.Time) (routing.Lease, error) {
	first := t.seq == 0
	if first {
		t.seq = q.lastSeq.Add(1)
	}
	t.startWait(now)
	if q.waiting.Load() == 0 {
		t.Request.Now, t.Request.Waited = now, now.Sub(t.entered)
		t.Request.Wait = q.config.Load().Waits(t.Class)
		lease, err := q.pool.Acquire(t.Request, t.Tried...)
		if err == nil || q.config.Load().endsWait(t, err) {
			return lease, err
		}
	}
	return q.enter(t, first, now)
}

// endsWait reports whether that error of the pool ends the wait: no worker that is up could
// take the request. Only a first attempt waits for a worker to come up.
func (c *Config) endsWait(t *Ticket, err error) bool {
	return isUnroutable(t, err, t.entered.Add(c.MaxWait[t.Class])) && (c.EngineWait <= 0 || len(t.Tried) > 0)
}

// isUnroutable reports whether an error of the pool means that no worker that is up could take
// the request before the end of its wait.
func isUnroutable(t *Ticket, err error, until time.Time) bool {
	if err == nil || errors.Is(err, routing.ErrFull) || errors.Is(err, routing.ErrBestWorkerFull) {
		return false
	}
	if !t.Deadline.IsZero() && t.Deadline.Before(until) {
		until = t.Deadline
	}
	var backoff *routing.BackoffError
	return !errors.As(err, &backoff) || !backoff.Until.Before(until)
}

// enter adds the ticket to the queue, offers it, and returns its lease if it is dispatched. The
// bounds apply only to a ticket that is not dispatched.
func (q *Queue) enter(t *Ticket, first bool, now time.Time) (lease routing.Lease, err error) {
	dispatched, panics := false, true
	defer func() {
		if panics { // no caller would remove the ticket
			_ = q.Leave(t, Cancelled, now)
		}
	}()
	q.locked(func() {
		q.settleChargeLocked(t, 0) // cancels the charge of the failed attempt
		t.counted = false
		q.insertLocked(t)
		poolErr := q.dispatchLocked(now, t)
		if dispatched = t.state == stateDispatched; dispatched {
			return
		}
		switch unroutable := isUnroutable(t, poolErr, q.waitLimitLocked(t)); {
		case unroutable && q.config.Load().endsWait(t, poolErr):
			err = poolErr
		case first:
			q.markUnroutableLocked(t, unroutable, now)
			err = q.admitLocked(t, now)
		}
		if err != nil {
			q.removeLocked(t, now)
			return
		}
		q.classes[t.Class].counts.Entered++
		t.counted = true
	})
	panics = false
	switch {
	case dispatched:
		return q.Claim(t, now)
	case err != nil:
		return lease, err
	}
	return lease, ErrWaiting
}

// Dispatch offers the waiting requests to the pool and dispatches those that a worker takes. If
// another goroutine runs Dispatch, that one does it.
func (q *Queue) Dispatch(now time.Time) {
	if q.waiting.Load() == 0 {
		return
	}
	q.changed.Store(true)
	for q.changed.Load() && q.dispatching.CompareAndSwap(false, true) {
		q.changed.Store(false)
		q.dispatchOnce(now)
	}
}

func (q *Queue) dispatchOnce(now time.Time) {
	defer q.dispatching.Store(false)
	q.locked(func() { q.dispatchLocked(now, nil) }) // it is the newcomer's, and there is none
}

func (q *Queue) insertLocked(t *Ticket) {
	t.state, t.err = stateWaiting, nil
	q.classes[t.Class].insert(t)
	q.bytes += t.Bytes
	if q.waiting.Add(1) == 1 && q.onWaiting != nil {
		q.onWaiting()
	}
}

func (q *Queue) removeLocked(t *Ticket, now time.Time) {
	t.state = stateNew
	t.waited = now.Sub(t.entered)
	q.markUnroutableLocked(t, false, now)
	q.classes[t.Class].remove(t)
	q.bytes -= t.Bytes
	q.waiting.Add(-1)
}
