package proxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"tierway/queue"
	"tierway/routing"
	"tierway/server/control"
	"tierway/server/intake"
)

// wakeup notifies the goroutine of an exchange that its wait in a queue is over. The zero
// wakeup is not over; a request that never waits allocates no channel.
type wakeup struct {
	mu   sync.Mutex
	over bool
	ch   chan struct{} // closed when it is over; nil while nothing waits
}

func (t *wakeup) notify() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over && t.ch != nil {
		close(t.ch)
	}
	t.over = true
}

// wait returns a channel that is closed when the wait is over.
func (t *wakeup) wait() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ch == nil {
		t.ch = make(chan struct{})
		if t.over {
			close(t.ch)
		}
	}
	return t.ch
}

func (t *wakeup) reset() {
	t.mu.Lock()
	t.over, t.ch = false, nil
	t.mu.Unlock()
}

// wait is the state of a request in the queue of its pool.
type wait struct {
	ticket    *queue.Ticket // in the queue of the pool; nil before the first wait
	first     queue.Ticket  // initial ticket, which saves an allocation
	wakeup    wakeup
	placement placement     // selection of the last worker
	total     time.Duration // sum of all waits
	promoted  bool          // the queue dispatched the request before its class, because of its age
	// next is the resolution for which the request has left a queue without a worker up; nil: it has not
	next *intake.Resolution
	rejection
}

// rejection describes the last selection without a worker.
type rejection struct {
	shed    string          // queue.Shed… reason for which the queue rejected the request
	refused *routing.Choice // candidates of the policy when no worker was selected
}

var _ control.Waiter = (*wait)(nil)

func (w *wait) OnWake() { w.wakeup.notify() }

func (x *exchange) fillTicket() *queue.Ticket {
	if x.wait.ticket == nil {
		x.wait.ticket = &x.wait.first
	}
	t := x.wait.ticket
	t.Request, t.Tried = &x.facts, x.dispatch.tried
	if t.Ref == nil {
		t.Ref, t.ID = &x.wait, x.in.RequestID
		t.Class, t.Tenant, t.Weight = int(x.parsed.Class), x.caller.Tenant, x.caller.Weight
		t.Tokens, t.Bytes = x.facts.PromptTokens+x.facts.OutputTokens, int64(len(x.parsed.Req.Body))
		t.Expected, t.MaxTokens = true, x.parsed.Req.MaxTokens
		t.Deadline = x.patience
		t.Movable = x.s.intake.MovesIfUnavailable(&x.in, &x.parsed, &x.resolution)
	}
	return t
}

// enterQueue returns the lease of a worker, which the queue selects and books in one step. If no worker
// is free, it waits for the turn of the request.
func (x *exchange) enterQueue() (routing.Lease, error) {
	w := &x.wait
	w.placement = newPlacement(x.resolution.Pool, x.s.records.keepsFull(x.trace.Sampled))
	x.facts.Record = w.placement.choice
	t, began := x.fillTicket(), time.Now()
	lease, err := x.resolution.Pool.WaitQueue.Enter(t, began)
	w.placement.selection = time.Since(began)
	if errors.Is(err, queue.ErrWaiting) {
		lease, err = x.waitForWakeup(t, began)
		w.placement.waited, w.placement.selection = time.Since(began).Truncate(time.Microsecond), 0 // records have µs
		w.total += w.placement.waited
	}
	w.promoted = w.promoted || t.Promoted()
	if shed, ok := errors.AsType[*queue.ShedError](err); ok {
		w.shed = shed.Reason
	}
	if c := w.placement.choice; err != nil && c != nil && len(c.Candidates) > 0 {
		w.refused = c
	}
	return lease, err
}

// waitForWakeup waits until the queue dispatches the ticket, the ticket expires, or the client leaves.
func (x *exchange) waitForWakeup(t *queue.Ticket, began time.Time) (routing.Lease, error) {
	q := x.resolution.Pool.WaitQueue
	late := time.NewTimer(q.WaitUntil(t).Sub(began))
	defer late.Stop()
	for {
		var err error
		var lease routing.Lease
		select {
		case <-x.wait.wakeup.wait():
		case <-late.C:
			if err = q.Leave(t, queue.Late, time.Now()); err != nil && !errors.Is(err, queue.ErrWaiting) {
				return lease, err
			}
		case <-x.in.HTTP.Context().Done():
			_ = q.Leave(t, queue.Cancelled, time.Now()) // the client has left
			if errors.Is(context.Cause(x.in.HTTP.Context()), ErrDrainCut) {
				return lease, shuttingDown()
			}
			return lease, errClientGone
		}
		if x.s.isCut.Load() { // a slot that a cut request released must not start another request
			_ = q.Leave(t, queue.Cancelled, time.Now())
			return lease, shuttingDown()
		}
		if err == nil {
			x.wait.wakeup.reset()
			if lease, err = q.Claim(t, time.Now()); !errors.Is(err, queue.ErrWaiting) {
				return lease, err
			}
			if err = x.leaveForNextTier(t); err != nil {
				return lease, err
			}
		}
		late.Reset(time.Until(q.WaitUntil(t))) // the limit may have moved, or the timer fired with the wakeup
	}
}

// leaveQueue settles the real usage of the request against its tenant's share of the queue.
func (x *exchange) leaveQueue() {
	if x.wait.ticket != nil {
		used := x.dispatch.settlement(x.cached).usage
		x.resolution.Pool.WaitQueue.SettleUsage(x.wait.ticket, used.Prompt+used.Output)
	}
}
