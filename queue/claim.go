package queue

import (
	"errors"
	"time"

	"tierway/routing"
)

// Claim returns the lease or the error of a ticket after onWake. If the worker's breaker refuses
// the request, the ticket waits again at its old place: Claim returns ErrWaiting, and onWake
// will be called again.
func (q *Queue) Claim(t *Ticket, now time.Time) (lease routing.Lease, err error) {
	for {
		var st state
		q.locked(func() {
			if st = t.state; st == stateDispatched {
				t.state = stateNew
			}
		})
		switch st {
		case stateWaiting:
			return lease, ErrWaiting
		case stateEvicted:
			return lease, t.err
		case stateNew:
			return lease, errNotDispatched
		}
		if t.lease.Admit() == nil {
			lease, t.lease = t.lease, routing.Lease{}
			return lease, nil
		}
		if !q.requeue(t, t.lease.Refused(), now) {
			return lease, ErrWaiting
		}
	}
}

var errNotDispatched = errors.New("the claimed ticket neither waits nor is dispatched: call Enter first")

// requeue makes a ticket wait again after its worker's breaker refused it. It reports whether
// another worker was dispatched at once.
func (q *Queue) requeue(t *Ticket, refusedBy *routing.Worker, now time.Time) (dispatched bool) {
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
		dispatched = t.state == stateDispatched
	})
	return dispatched
}

// LeaveReason is why a ticket leaves the queue.
type LeaveReason uint8

// The reasons to leave.
const (
	Cancelled LeaveReason = iota // the client is gone
	Late                         // the time of WaitUntil has passed
	Moved                        // the ticket enters another queue, with ForOtherQueue
)

// Leave removes a waiting ticket at once. For a dispatched, unclaimed ticket, Cancelled returns
// the lease to the pool, and Late returns nil: the caller must Claim it. For a waiting ticket,
// Late returns the error of the answer, or ErrWaiting if its limit has moved: see WaitUntil. Moved returns
// ErrMoved if the ticket has left, and otherwise nil: the caller must Claim it.
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
		case t.state == stateWaiting && why == Moved:
			err = ErrMoved
			q.removeLocked(t, now)
			if t.counted {
				counts.Moved++
			}
		case t.state == stateWaiting && now.Before(q.waitLimitLocked(t)):
			err = ErrWaiting
		case t.state == stateWaiting:
			err = q.shedLocked(t, q.lateReasonLocked(t), now)
			q.removeLocked(t, now)
			counts.Expired++
		case t.state == stateDispatched && why == Cancelled:
			unclaimed, t.lease, t.state = t.lease, routing.Lease{}, stateNew
			q.settleChargeLocked(t, 0)
			if t.counted {
				counts.Dispatched--
				counts.Abandoned++
			}
		case t.state == stateEvicted && why != Moved:
			err = t.err
		}
	})
	if unclaimed.Worker() != nil {
		unclaimed.Release(routing.Result{At: now, Err: routing.ErrExcluded})
	}
	return err
}

// WaitUntil returns the end of the ticket's wait. The owner must then call Leave with Late. The
// end can move while the ticket waits.
func (q *Queue) WaitUntil(t *Ticket) (until time.Time) {
	q.locked(func() { until = q.waitLimitLocked(t) })
	return until
}

// SettleUsage replaces a ticket's charge by the tokens that were really used. The owner must call it
// after the last attempt of a claimed ticket. It does nothing for a ticket that was not dispatched
// by a pass.
func (q *Queue) SettleUsage(t *Ticket, tokens int64) {
	if t.charged != 0 { // guarded by the owner after Claim
		q.locked(func() { q.settleChargeLocked(t, max(1, tokens)) })
	}
}
