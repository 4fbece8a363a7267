package queue

import (
	"errors"
	"slices"
	"time"

	"tierway/routing"
)

// dispatchLocked evicts tickets that no worker could take for too long, and offers the waiting
// tickets in order. If nothing has changed since the last whole pass, it offers only the
// newcomer, even if no worker is open. It returns the pool's error for the newcomer.
func (q *Queue) dispatchLocked(now time.Time, newcomer *Ticket) error {
	if q.waiting.Load() == 0 {
		return nil
	}
	q.expireWhileDownLocked(now)
	q.output = q.pool.Learned().OutputTokens(0)
	poolErr := q.runRoundLocked(now, newcomer)
	for _, t := range q.evictions {
		if t.state == stateWaiting {
			q.evictLocked(t, q.shedLocked(t, ShedEngine, now), now)
		}
	}
	clear(q.evictions)
	q.evictions = q.evictions[:0]
	return poolErr
}

// runRoundLocked runs one round of the pool. Tickets with a booked lease are dispatched even after a
// panic.
func (q *Queue) runRoundLocked(now time.Time, newcomer *Ticket) error {
	round := q.pool.BeginRound(now)
	defer round.End()
	defer q.dispatchBookedLocked(now, newcomer)
	q.offerUnroutableLocked(round, now)
	open := round.Open()
	changes, sure := round.Changes()
	known := sure && changes == q.seenChanges // no waiting ticket can be dispatched now either
	if !sure {
		changes = unknownChanges
	}
	switch {
	case newcomer != nil && newcomer.lease.Worker() == nil && (!open || known):
		return q.offerLocked(round, newcomer, [Classes - 1]step{}, now)
	case open:
		q.seenChanges = changes
		return q.offerAllLocked(round, now, newcomer)
	}
	return nil
}

type bookedTicket struct {
	ticket *Ticket
	path   [Classes - 1]step
}

// rejectionMemo is an error that the round would return again. No worker takes a matching
// request with as many tokens, because none are returned during a round.
type rejectionMemo struct {
	model    uint64
	only     any
	excluded []*routing.Worker // workers that are not offered
	tokens   int64
	wait     bool // the request could wait for its cache: another one may still go to a worker in slow start
	err      error
}

// offerAllLocked offers tickets until no worker is open, and returns the newcomer's error.
func (q *Queue) offerAllLocked(round *routing.DispatchRound, now time.Time, newcomer *Ticket) (poolErr error) {
	q.walk.begin(q, now)
	defer q.walk.end()
	reservations := maxReservations
	for offers, seen := 0, 0; offers < maxOffers && seen < maxScanned; seen++ {
		t, path := q.walk.next()
		if t == nil {
			break
		}
		if t.lease.Worker() != nil {
			continue // booked earlier in this round
		}
		err := q.recallRejectionLocked(t, now)
		if err == nil {
			offers++
			err = q.offerLocked(round, t, path, now)
		}
		if err == nil {
			q.walk.recordDispatch(t, path)
			if !round.Open() {
				break
			}
			continue
		}
		if t == newcomer {
			poolErr = err
		} else {
			q.markUnroutableLocked(t, isUnroutable(t, err, q.waitLimitLocked(t)), now)
		}
		if errors.Is(err, routing.ErrBestWorkerFull) || len(t.refusedBy) > 0 {
			q.seenChanges = unknownChanges // it can be dispatched later without any change in the pool
		}
		if reservations > 0 && errors.Is(err, routing.ErrFull) && q.overdueLocked(t, now) {
			reservations--
			if round.Reserve(t.Request, t.excludedWorkers(now)) {
				reservations, q.seenChanges = 0, unknownChanges // a newcomer must not take the reserved worker
			}
		}
	}
	return poolErr
}

// recallRejectionLocked returns the error of this round for a ticket like t; nil if none is
// known.
func (q *Queue) recallRejectionLocked(t *Ticket, now time.Time) error {
	if len(q.rejections) == 0 {
		return nil
	}
	q.updateExpectedTokensLocked(t)
	over, tokens := t.excludedWorkers(now), t.tokens()
	for i := range q.rejections {
		s := &q.rejections[i]
		if tokens >= s.tokens && s.matches(t, over) && (!s.wait || q.mayWaitForCacheLocked(t, now)) {
			return s.err
		}
	}
	return nil
}

// offerLocked offers one ticket, and keeps the lease if it is booked.
func (q *Queue) offerLocked(round *routing.DispatchRound, t *Ticket, path [Classes - 1]step, now time.Time) error {
	t.Request.Now, t.Request.Waited = now, now.Sub(t.entered)
	q.updateExpectedTokensLocked(t)
	t.Request.Wait = q.mayWaitForCacheLocked(t, now)
	lease, err := round.Offer(t.Request, t.excludedWorkers(now))
	if err == nil {
		t.lease = lease
		q.booked = append(q.booked, bookedTicket{t, path})
	} else if !errors.Is(err, routing.ErrBestWorkerFull) {
		q.recordRejectionLocked(round, t, err, now)
	}
	return err
}

// recordRejectionLocked remembers the error for tickets like t until the end of the round.
func (q *Queue) recordRejectionLocked(round *routing.DispatchRound, t *Ticket, err error, now time.Time) {
	tokens := int64(0)
	if round.Sized() {
		tokens = t.tokens()
	}
	over := t.excludedWorkers(now)
	for i := range q.rejections {
		if s := &q.rejections[i]; s.wait == t.Request.Wait && s.matches(t, over) {
			s.tokens, s.err = min(s.tokens, tokens), err
			return
		}
	}
	if len(q.rejections) < maxRejectionMemos {
		q.rejections = append(q.rejections, rejectionMemo{t.Request.Model, t.Request.Only, over, tokens, t.Request.Wait, err})
	}
}

// matches reports whether t may go to the same workers.
func (s *rejectionMemo) matches(t *Ticket, over []*routing.Worker) bool {
	return s.model == t.Request.Model && s.only == t.Request.Only && slices.Equal(s.excluded, over)
}

// mayWaitForCacheLocked reports whether the ticket may wait for a full worker beside an open
// one. To avoid a shed, it may not once it is aged, nor in the second half of its time.
func (q *Queue) mayWaitForCacheLocked(t *Ticket, now time.Time) bool {
	waited := now.Sub(t.entered)
	if age := q.config.Load().Age[t.Class]; age > 0 && waited >= age {
		return false
	}
	return waited < q.waitLimitLocked(t).Sub(t.entered)/2
}

// overdueLocked reports whether a worker may be reserved for a ticket: it is aged or has waited
// for half of its class's limit.
func (q *Queue) overdueLocked(t *Ticket, now time.Time) bool {
	c := q.config.Load()
	after := c.MaxWait[t.Class] / 2
	if age := c.Age[t.Class]; age > 0 {
		after = min(after, age)
	}
	return now.Sub(t.entered) >= after
}

// updateExpectedTokensLocked updates the expected length of the ticket's answer.
func (q *Queue) updateExpectedTokensLocked(t *Ticket) {
	if !t.Expected {
		return
	}
	expected := q.output
	if t.MaxTokens > 0 {
		expected = min(expected, t.MaxTokens)
	}
	more := expected - t.Request.OutputTokens
	t.Request.OutputTokens = expected
	t.Tokens += more
	q.classes[t.Class].tokens += more
}

func (q *Queue) dispatchBookedLocked(now time.Time, newcomer *Ticket) {
	for i := range q.booked {
		q.dispatchTicketLocked(q.booked[i].ticket, q.booked[i].path, now, newcomer)
	}
	clear(q.booked)
	clear(q.rejections)
	q.booked, q.rejections = q.booked[:0], q.rejections[:0]
}

// dispatchTicketLocked removes a ticket with a booked lease from the queue and charges its tenant.
func (q *Queue) dispatchTicketLocked(t *Ticket, path [Classes - 1]step, now time.Time, newcomer *Ticket) {
	c := &q.classes[t.Class]
	c.virtual = t.flow.start()
	t.path = path
	t.charged = int64(t.cost())
	t.flow.unsettled += t.cost()
	c.charge(t.flow, t.cost())
	q.bookCreditLocked(t, t.cost())
	q.removeLocked(t, now)
	t.state = stateDispatched
	t.promoted = slices.Contains(path[:], stepPromoted)
	if t == newcomer && !t.counted {
		return // it is dispatched at once and has not waited
	}
	c.counts.Dispatched++
	if t.promoted {
		c.counts.Promoted++
	}
	if t != newcomer {
		q.wakeups = append(q.wakeups, t)
	}
}

// bookCreditLocked books the tokens of a dispatch on the levels where it was chosen. Credit that no
// aged request can use does not accumulate.
func (q *Queue) bookCreditLocked(t *Ticket, tokens float64) {
	for level, s := range t.path {
		c := &q.classes[level]
		switch {
		case c.depth == 0:
			// the class has no waiting request
		case s == stepOwn:
			c.credit = accrueCredit(c.credit, tokens*q.config.Load().accrual())
		case s == stepPromoted:
			c.credit -= tokens
		}
	}
}

// accrueCredit returns the credit after more is added. Credit grows up to the amount of one
// dispatch.
func accrueCredit(credit, more float64) float64 {
	return min(credit+more, max(credit, more))
}

// settleChargeLocked replaces a ticket's charge by the tokens used; 0 cancels the dispatch.
func (q *Queue) settleChargeLocked(t *Ticket, tokens int64) {
	if t.charged == 0 {
		return
	}
	more := float64(tokens - t.charged)
	q.classes[t.Class].charge(t.flow, more)
	t.flow.unsettled -= float64(t.charged)
	q.bookCreditLocked(t, more)
	t.charged = 0
}

// evictLocked ends a ticket's wait with an error.
func (q *Queue) evictLocked(t *Ticket, err error, now time.Time) {
	q.removeLocked(t, now)
	t.state, t.err = stateEvicted, err
	q.classes[t.Class].counts.Expired++
	q.wakeups = append(q.wakeups, t)
}
