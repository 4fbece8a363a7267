package proxy

import (
	"errors"
	"slices"
	"time"

	"tierway/openai"
	"tierway/queue"
	"tierway/routing"
	"tierway/server/intake"
)

// Reasons for which a pool does not serve a request, as the ends of sentences.
const (
	whyFailed  = "failed"
	whyBackoff = "has only workers in backoff"
	whyFull    = "has a full queue"
	whyLate    = "has too long a queue"
)

// whyUnserved returns why the selection of a worker failed with err; empty if another pool cannot serve
// the request either.
func whyUnserved(err error) string {
	var backoff *routing.BackoffError
	var shed *queue.ShedError
	var answer *openai.Error
	switch {
	case errors.As(err, &answer), errors.Is(err, errClientGone):
		return ""
	case errors.As(err, &backoff):
		return whyBackoff
	case !errors.As(err, &shed) || shed.Reason == queue.ShedEngine:
		return intake.WhyNoWorker
	case shed.Reason == queue.ShedWait, shed.Reason == queue.ShedDeadline:
		return whyLate
	}
	return whyFull
}

// mayFallBack reports whether a request has a further target. A follow-up of a stored response has none, because only
// the engine of the response has it. own means a request of the gateway itself, which is sent once.
func mayFallBack(res *intake.Resolution, p *intake.Parsed, own bool) bool {
	return res.MayFallBack() && !p.FollowsUp() && !own
}

// fallBack moves the request to the next target of its list that can take it, and reports whether it did. why is why
// its pool does not serve it.
func (x *exchange) fallBack(why string) bool {
	to, ok := x.s.intake.FallBack(&x.in, &x.caller, &x.parsed, x.resolution, why)
	x.resolution.Note, x.resolution.Moves = to.Note, to.Moves
	return ok && x.moveTo(&to)
}

// moveTo moves a request that its pool did not serve to another target, and reports whether it did: not after the
// client's patience, and not without a retry of the budget if an attempt has failed. The time that the request has
// waited counts in the next queue too.
func (x *exchange) moveTo(to *intake.Resolution) bool {
	if failed := x.dispatch.failed; !time.Now().Before(x.patience) ||
		len(failed) > 0 && !x.s.spendRetry(failed[len(failed)-1].failure) {
		return false
	}
	x.setTarget(*to, rejection{})
	x.dispatch.tried = nil
	x.gatherFacts()
	return true
}

// setTarget moves the request from the queue of its pool to another target.
func (x *exchange) setTarget(to intake.Resolution, of rejection) {
	x.leaveQueue()
	x.wait.ticket, x.wait.rejection = x.wait.ticket.ForOtherQueue(), of
	x.resolution = to
}

// failedIn reports whether an attempt of the request failed in a tier.
func (d *dispatch) failedIn(tier string) bool {
	return slices.ContainsFunc(d.failed, func(a *attempt) bool { return a.pool.Name == tier })
}

// leaveForNextTier takes a waiting request out of its queue if its tier has no worker up and another tier
// can take it, and returns queue.ErrMoved. Otherwise it returns nil, and the request waits on or is to be
// claimed.
func (x *exchange) leaveForNextTier(t *queue.Ticket) error {
	if !t.Movable {
		return nil
	}
	to, ok := x.s.intake.MoveUnavailable(&x.in, &x.caller, &x.parsed, x.resolution, x.dispatch.failedIn)
	if !ok {
		return nil
	}
	err := x.resolution.Pool.WaitQueue.Leave(t, queue.Moved, time.Now())
	if err != nil {
		x.wait.next = &to
	}
	return err
}

// leaveUnavailable moves a request that its tier did not serve to another tier, if no worker of its tier is
// up, and reports whether it did.
func (x *exchange) leaveUnavailable() bool {
	next := x.wait.next
	if x.wait.next = nil; next == nil {
		to, ok := x.s.intake.MoveUnavailable(&x.in, &x.caller, &x.parsed, x.resolution, x.dispatch.failedIn)
		if !ok {
			return false
		}
		next = &to
	}
	return x.moveTo(next)
}
