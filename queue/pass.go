package queue

import (
	"errors"
	"time"

	"tierway/routing"
)

// passLocked offers up to maxOffers waiting tickets, in their order, until no
// worker is open. A newcomer is offered even when none is: what it returns is the
// pool's error when no worker that is up could ever take that one.
func (q *Queue) passLocked(now time.Time, newcomer *Ticket) error {
	if q.waiting.Load() == 0 {
		return nil
	}
	q.downLocked(now)
	q.output = q.pool.OutputTokens(0)
	round := q.pool.Begin(now)
	defer round.End()
	q.grants = q.grants[:0]
	var lost error
	if round.Open() {
		lost = q.offerAllLocked(round, now, newcomer)
	} else if newcomer != nil {
		lost = q.offerLocked(round, newcomer, [Classes - 1]step{}, now)
	}
	for i := range q.grants {
		q.grantLocked(q.grants[i].ticket, q.grants[i].path, newcomer)
	}
	clear(q.grants)
	return q.lostLocked(newcomer, lost)
}

// grant is a ticket whose lease is booked.
type grant struct {
	ticket *Ticket
	path   [Classes - 1]step
}

// offerAllLocked returns what the pool says of the newcomer.
func (q *Queue) offerAllLocked(round *routing.Round, now time.Time, newcomer *Ticket) (lost error) {
	q.walk.begin(q, now)
	defer q.walk.end()
	reserved := false // one a pass: what is reserved stands idle for a while
	for range maxOffers {
		t, path := q.walk.next()
		if t == nil {
			break
		}
		err := q.offerLocked(round, t, path, now)
		switch {
		case err == nil:
			q.walk.granted(t, path)
		case t == newcomer:
			lost = err
		default:
			q.noteLostLocked(t, vain(err), now)
		}
		if err != nil && !reserved && q.overdueLocked(t, now) {
			round.Reserve(t.Request, t.passedOver(now))
			reserved = true
		}
		if err == nil && !round.Open() {
			break
		}
	}
	return lost
}

// offerLocked offers one ticket, and keeps the lease if it is booked.
func (q *Queue) offerLocked(round *routing.Round, t *Ticket, path [Classes - 1]step, now time.Time) error {
	t.Request.Now, t.Request.Waited = now, now.Sub(t.entered)
	q.refreshLocked(t)
	age := q.config.Age[t.Class]
	t.Request.Wait = age <= 0 || now.Sub(t.entered) < age
	lease, err := round.Offer(t.Request, t.passedOver(now))
	if err == nil {
		t.lease = lease
		q.grants = append(q.grants, grant{t, path})
	}
	return err
}

// overdueLocked tells whether a ticket has waited for so long that a worker may be
// reserved for it: for its class's age, or for half of what it may wait.
func (q *Queue) overdueLocked(t *Ticket, now time.Time) bool {
	after := q.config.MaxWait[t.Class] / 2
	if age := q.config.Age[t.Class]; age > 0 {
		after = age
	}
	return now.Sub(t.entered) >= after
}

// refreshLocked brings what was expected of the ticket's answer up to date: what a
// request counts for should not be what was believed minutes ago.
func (q *Queue) refreshLocked(t *Ticket) {
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
	t.flow.tokens += more
	q.classes[t.Class].tokens += more
}

// vain tells whether an error of the pool means that no worker who is up now
// could take the request.
func vain(err error) bool {
	return err != nil && !errors.Is(err, routing.ErrFull) && !errors.Is(err, routing.ErrHeld)
}

// lostLocked returns the pool's error when the newcomer should not wait after it.
func (q *Queue) lostLocked(t *Ticket, err error) error {
	var cooled *routing.CooledError
	if !vain(err) || q.config.EngineWait > 0 || errors.As(err, &cooled) && cooled.Until.Before(t.until) {
		return nil
	}
	return err
}

// noteLostLocked notes since when nobody who is up could take a waiting ticket.
func (q *Queue) noteLostLocked(t *Ticket, lost bool, now time.Time) {
	switch {
	case lost && t.lostAt.IsZero():
		t.lostAt = now
		q.lost++
	case !lost && !t.lostAt.IsZero():
		t.lostAt = time.Time{}
		q.lost--
	}
}

// grantLocked takes a ticket whose lease is booked out of the queue and charges
// its tenant.
func (q *Queue) grantLocked(t *Ticket, path [Classes - 1]step, newcomer *Ticket) {
	c := &q.classes[t.Class]
	t.path = path
	t.charged = int64(t.cost())
	c.charge(t.flow, t.cost())
	t.flow.unsettled += t.cost()
	q.creditLocked(t, t.cost())
	q.removeLocked(t)
	t.state = stateGranted
	c.counts.Granted++
	t.promoted = false
	for _, s := range path {
		t.promoted = t.promoted || s == stepPromoted
	}
	if t.promoted {
		c.counts.Promoted++
	}
	if t != newcomer {
		q.wakes = append(q.wakes, t)
	}
}

// creditLocked books a grant's tokens on the levels that it was chosen at.
func (q *Queue) creditLocked(t *Ticket, tokens float64) {
	for level, s := range t.path {
		c := &q.classes[level]
		switch {
		case c.depth == 0:
			// nobody of the class waits: there is nothing to share
		case s == stepOwn:
			c.credit += tokens * q.config.accrual()
		case s == stepPromoted:
			c.credit -= tokens
		}
	}
}

// unchargeLocked takes a grant back.
func (q *Queue) unchargeLocked(t *Ticket) {
	q.classes[t.Class].charge(t.flow, -float64(t.charged))
	t.flow.unsettled -= float64(t.charged)
	q.creditLocked(t, -float64(t.charged))
	t.charged = 0
}

// downLocked puts out who has waited for long enough while nobody is up, or
// nobody who could take the one request.
func (q *Queue) downLocked(now time.Time) {
	if q.pool.Up(now) {
		q.downSince = time.Time{}
	} else if q.downSince.IsZero() {
		q.downSince = now
	}
	if q.downSince.IsZero() && q.lost == 0 {
		return
	}
	wait := max(q.config.EngineWait, graceWhenDown)
	for i := range q.classes {
		for t, newer := q.classes[i].oldest, (*Ticket)(nil); t != nil; t = newer {
			newer = t.newer
			since := t.lostAt
			if !q.downSince.IsZero() {
				since = later(q.downSince, t.entered)
			}
			if !since.IsZero() && now.Sub(since) >= wait {
				q.putOutLocked(t, q.shedLocked(t, ShedEngine, now))
			}
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// putOutLocked ends a ticket's wait with an error.
func (q *Queue) putOutLocked(t *Ticket, err error) {
	q.removeLocked(t)
	t.state, t.err = stateOut, err
	q.classes[t.Class].counts.PutOut++
	q.wakes = append(q.wakes, t)
}
