package queue

import (
	"errors"
	"time"

	"tierway/routing"
)

// Claim returns the lease of a ticket whose wait is over, or its error. If the worker's
// breaker refuses it, the ticket waits on at its old place: Claim returns ErrWaiting, and
// woken will be called again.
func (q *Queue) Claim(t *Ticket, now time.Time) (lease routing.Lease, err error) {
	for {
		var st state
		q.locked(func() {
			if st = t.state; st == stateGranted {
				t.state = stateNew
			}
		})
		switch st {
		case stateWaiting:
			return lease, ErrWaiting
		case stateEvicted:
			return lease, t.err
		case stateNew:
			return lease, errNotGranted
		}
		worker := t.lease.Worker()
		if t.lease.Admit() == nil {
			lease, t.lease = t.lease, routing.Lease{}
			return lease, nil
		}
		if !q.requeue(t, worker, now) {
			return lease, ErrWaiting
		}
	}
}

var errNotGranted = errors.New("a ticket was claimed that neither waits nor was granted")

// back makes a ticket wait again that its worker's breaker refused, and reports whether it
// was granted another worker at once.
func (q *Queue) requeue(t *Ticket, refusedBy *routing.Worker, now time.Time) (granted bool) {
	q.locked(func() {
		counts := &q.classes[t.Class].counts
		t.refusedBy, t.refusedAt = append(t.refusedBy, refusedBy), now
		t.lease = routing.Lease{}
		if t.counted {
			counts.Dispatched--
			if t.promoted {
				counts.Promoted--
			}
		} else {
			counts.Entered++
			t.counted = true
		}
		q.settleChargeLocked(t, 0)
		t.startWait(now)
		q.insertLocked(t)
		q.markUnroutableLocked(t, isUnroutable(t, q.dispatchLocked(now, t), q.waitLimitLocked(t)), now)
		granted = t.state == stateGranted
	})
	return granted
}

// Left says why a ticket leaves.
type LeaveReason uint8

// The two ways to leave.
const (
	Cancelled LeaveReason = iota // the client is gone
	Late                         // WaitUntil is over
)

// Leave takes a waiting ticket out at once. If it was granted meanwhile, and not claimed,
// Cancelled gives the lease back; Late returns nil: claim it. Late returns the error to
// answer with, or ErrWaiting if the time has become longer meanwhile: see WaitUntil.
func (q *Queue) Leave(t *Ticket, why LeaveReason, now time.Time) (err error) {
	var unclaimed routing.Lease
	q.locked(func() {
		counts := &q.classes[t.Class].counts
		switch {
		case t.state == stateWaiting && why == Cancelled:
			q.removeLocked(t, now)
			if t.counted {
				counts.Abandoned++
			}
		case t.state == stateWaiting && now.Before(q.waitLimitLocked(t)):
			err = ErrWaiting
		case t.state == stateWaiting:
			err = q.shedLocked(t, q.lateReasonLocked(t), now)
			q.removeLocked(t, now)
			counts.Expired++
		case t.state == stateGranted && why == Cancelled:
			unclaimed, t.lease, t.state = t.lease, routing.Lease{}, stateNew
			q.settleChargeLocked(t, 0)
			if t.counted {
				counts.Dispatched--
				counts.Abandoned++
			}
		case t.state == stateEvicted:
			err = t.err
		}
	})
	if unclaimed.Worker() != nil {
		unclaimed.Release(routing.Result{At: now, Err: routing.ErrExcluded})
	}
	return err
}

// WaitUntil returns when the ticket's time is over: then Leave is due, with Late.
func (q *Queue) WaitUntil(t *Ticket) (until time.Time) {
	q.locked(func() { until = q.waitLimitLocked(t) })
	return until
}

// Settle corrects a ticket's charge by the tokens that were really used. It is owed after
// the last attempt of a claimed ticket, and does nothing for one that did not wait.
func (q *Queue) Settle(t *Ticket, tokens int64) {
	if t.charged != 0 { // its owner's, once it is claimed
		q.locked(func() { q.settleChargeLocked(t, max(1, tokens)) })
	}
}
