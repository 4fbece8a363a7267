// Package queue holds the requests of one pool that cannot go yet. Who goes next
// and where is one decision: a pass offers the waiting requests, in their order,
// to the pool's policy, under the pool's lock. The order is by class of
// priority, inside a class by weighted fair queueing over tokens among tenants,
// and inside a tenant by the order of coming.
//
// The package knows no clock, starts no goroutine and blocks nobody: a waiting
// request is a Ticket, and its owner is told when its wait is over.
package queue

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"tierway/routing"
)

// Queue is the queue of one pool. It is safe for concurrent use. Its lock is
// taken before the pool's; woken is called under neither.
type Queue struct {
	pool    *routing.Pool
	woken   func(*Ticket)
	waiting atomic.Int64 // the tickets that wait
	lastSeq atomic.Uint64

	mu        sync.Mutex // guards the rest
	config    Config
	classes   [Classes]class
	bytes     int64
	downSince time.Time // when the pool was first seen with nobody up; zero while somebody is
	lost      int       // waiting tickets that nobody who is up could take

	// Of one pass.
	output int64 // what the pool expects of an answer
	walk   order
	grants []grant
	wakes  []*Ticket // granted or put out: to be told when the lock is free
}

// New makes an empty queue before a pool. woken is called once each time that a
// ticket's wait is over: it was granted, and is to be claimed, or it was put out,
// which Claim says too. The caller sees to it that Pass is called when something
// may let a waiting request go (see routing.Pool.Watch), and every few hundred
// milliseconds while somebody waits.
func New(pool *routing.Pool, c Config, woken func(*Ticket)) *Queue {
	q := &Queue{pool: pool, config: c, woken: woken}
	for i := range q.classes {
		q.classes[i].flows = map[string]*flow{}
	}
	return q
}

// Configure puts other bounds in force. Who waits stays, however many they are,
// until the time that was right when they came.
func (q *Queue) Configure(c Config, now time.Time) {
	q.mu.Lock()
	q.config = c
	q.mu.Unlock()
	q.Pass(now)
}

// Waiting returns how many requests wait. It takes no lock.
func (q *Queue) Waiting() int { return int(q.waiting.Load()) }

// Enter returns a lease when the request can go at once. ErrWaiting means that
// it waits: woken will be called, unless Leave is first. A *ShedError means that
// it may not wait, and the pool's own errors that waiting would be in vain. A
// ticket that enters again, after an attempt that failed, keeps the place in the
// order that it had, and is not kept out by the bounds.
func (q *Queue) Enter(t *Ticket, now time.Time) (routing.Lease, error) {
	first := t.seq == 0
	if first {
		t.seq, t.entered = q.lastSeq.Add(1), now
	}
	t.Request.Now, t.Request.Waited = now, now.Sub(t.entered)
	if q.waiting.Load() == 0 {
		q.mu.Lock()
		t.Request.Wait = q.config.waits(t.Class)
		q.mu.Unlock()
		lease, err := q.pool.Acquire(t.Request, t.Tried...)
		if err == nil || !q.waitable(t, err, now) {
			return lease, err
		}
	}
	return q.enter(t, first, now)
}

// waitable tells whether it makes sense to wait after the pool's answer.
func (q *Queue) waitable(t *Ticket, err error, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	var cooled *routing.CooledError
	switch {
	case errors.Is(err, routing.ErrFull), errors.Is(err, routing.ErrHeld):
		return true
	case errors.As(err, &cooled):
		return q.config.waits(t.Class) && cooled.Until.Before(now.Add(q.config.MaxWait[t.Class]))
	}
	return q.config.EngineWait > 0 && q.config.waits(t.Class)
}

// enter makes the ticket wait, offers all that wait, and returns its lease if it
// was granted by that.
func (q *Queue) enter(t *Ticket, first bool, now time.Time) (routing.Lease, error) {
	q.mu.Lock()
	if first {
		if err := q.admitLocked(t, now); err != nil {
			wakes := q.takeWakesLocked()
			q.mu.Unlock()
			q.wake(wakes)
			return routing.Lease{}, err
		}
	}
	t.until = q.untilLocked(t, now)
	q.insertLocked(t)
	q.classes[t.Class].counts.Entered++
	err := q.passLocked(now, t)
	if err != nil { // nobody who is up could ever take it
		q.removeLocked(t)
		q.classes[t.Class].counts.Entered--
	}
	granted := t.state == stateGranted
	wakes := q.takeWakesLocked()
	q.mu.Unlock()
	q.wake(wakes)
	switch {
	case err != nil:
		return routing.Lease{}, err
	case granted:
		return q.Claim(t, now)
	}
	return routing.Lease{}, ErrWaiting
}

// Claim returns the lease of a ticket whose wait is over, or the error that it
// was put out with. When the worker's breaker refuses it, the ticket waits on,
// at its old place: ErrWaiting, and woken will be called again.
func (q *Queue) Claim(t *Ticket, now time.Time) (routing.Lease, error) {
	for {
		q.mu.Lock()
		st, err := t.state, t.err
		if st == stateGranted {
			t.state = stateNew
		}
		q.mu.Unlock()
		switch st {
		case stateWaiting:
			return routing.Lease{}, ErrWaiting
		case stateOut:
			return routing.Lease{}, err
		case stateNew:
			panic("queue: a ticket was claimed that was not granted")
		}
		worker := t.lease.Worker()
		if t.lease.Admit() == nil {
			lease := t.lease
			t.lease = routing.Lease{}
			return lease, nil
		}
		if !q.back(t, worker, now) {
			return routing.Lease{}, ErrWaiting
		}
	}
}

// back makes a ticket wait again whose worker's breaker has refused it. True
// means that another worker was granted to it at once.
func (q *Queue) back(t *Ticket, refusedBy *routing.Worker, now time.Time) bool {
	q.mu.Lock()
	t.refused, t.refusedAt = append(t.refused, refusedBy), now
	t.lease = routing.Lease{}
	q.unchargeLocked(t)
	q.insertLocked(t)
	if t.promoted {
		q.classes[t.Class].counts.Promoted--
	}
	q.classes[t.Class].counts.Granted--
	if err := q.passLocked(now, t); err != nil {
		q.noteLostLocked(t, true, now) // it waits on for as long as others do when nobody is up
	}
	granted := t.state == stateGranted
	wakes := q.takeWakesLocked()
	q.mu.Unlock()
	q.wake(wakes)
	return granted
}

// Left says why a ticket leaves.
type Left uint8

// The two ways to leave.
const (
	Cancelled Left = iota // nobody listens any more
	Late                  // WaitUntil is over
)

// Leave takes back a ticket that waits: its place is given up at once, and it is
// never granted later. Of a ticket that was granted meanwhile, and not claimed,
// Cancelled gives the lease back; Late returns nil: claim it. Late returns the
// error to answer with.
func (q *Queue) Leave(t *Ticket, why Left, now time.Time) error {
	q.mu.Lock()
	var err error
	var unclaimed routing.Lease
	switch t.state {
	case stateWaiting:
		q.removeLocked(t)
		if why == Cancelled {
			q.classes[t.Class].counts.Left++
			break
		}
		reason := ShedWait
		if !q.downSince.IsZero() {
			reason = ShedEngine
		}
		err = q.shedLocked(t, reason, now)
		q.classes[t.Class].counts.PutOut++
	case stateGranted:
		if why == Cancelled {
			unclaimed, t.lease, t.state = t.lease, routing.Lease{}, stateNew
			q.unchargeLocked(t)
			q.classes[t.Class].counts.Granted--
			q.classes[t.Class].counts.Left++
		}
	case stateOut:
		err = t.err
	}
	q.mu.Unlock()
	if unclaimed.Worker() != nil {
		unclaimed.Release(routing.Result{At: now, Err: routing.ErrExcluded})
	}
	return err
}

// WaitUntil returns when the ticket's time is over: then Leave is due, with Late.
func (q *Queue) WaitUntil(t *Ticket) time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return t.until
}

// untilLocked is until when a newcomer may wait: for as long as its class may, or
// for an engine where none is up, and no longer than somebody listens.
func (q *Queue) untilLocked(t *Ticket, now time.Time) time.Time {
	wait := q.config.MaxWait[t.Class]
	if !q.pool.Up(now) {
		wait = max(wait, q.config.EngineWait)
	}
	until := now.Add(wait)
	if !t.Deadline.IsZero() && t.Deadline.Before(until) {
		return t.Deadline
	}
	return until
}

// Settle corrects what a ticket that waited was charged for by the tokens that
// were really used, so that nobody gains by estimates that are wrong. It is for
// after the last attempt, and does nothing for a ticket that never waited.
func (q *Queue) Settle(t *Ticket, tokens int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.charged == 0 {
		return
	}
	diff := float64(max(1, tokens) - t.charged)
	q.classes[t.Class].charge(t.flow, diff)
	t.flow.unsettled -= float64(t.charged)
	q.creditLocked(t, diff)
	t.charged = 0
}

// Pass offers the waiting requests to the pool and grants what can go.
func (q *Queue) Pass(now time.Time) {
	if q.waiting.Load() == 0 {
		return
	}
	q.mu.Lock()
	q.passLocked(now, nil) //nolint:errcheck // it is the newcomer's, and there is none
	wakes := q.takeWakesLocked()
	q.mu.Unlock()
	q.wake(wakes)
}

func (q *Queue) takeWakesLocked() []*Ticket {
	if len(q.wakes) == 0 {
		return nil
	}
	wakes := q.wakes
	q.wakes = nil
	return wakes
}

func (q *Queue) wake(wakes []*Ticket) {
	for _, t := range wakes {
		q.woken(t)
	}
}

func (q *Queue) insertLocked(t *Ticket) {
	t.state, t.err = stateWaiting, nil
	q.classes[t.Class].insert(t)
	q.bytes += t.Bytes
	q.waiting.Add(1)
}

func (q *Queue) removeLocked(t *Ticket) {
	t.state = stateNew
	q.noteLostLocked(t, false, time.Time{})
	q.classes[t.Class].remove(t)
	q.bytes -= t.Bytes
	q.waiting.Add(-1)
}
