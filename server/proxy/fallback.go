package proxy

import (
	"errors"
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

// mayFallBack reports whether the request has a further target. A follow-up of a stored response has none,
// because only the engine of the response has it.
func (x *exchange) mayFallBack() bool {
	return x.resolution.MayFallBack() && !x.parsed.FollowsUp() && !x.own
}

// fallBack moves the request to the next target of its list that can take it, and reports whether there is
// one. why is why its pool does not serve it. The time that it has waited counts in the next queue too.
func (x *exchange) fallBack(why string) bool {
	to, ok := x.s.intake.FallBack(&x.in, &x.caller, &x.parsed, x.resolution, why)
	x.resolution.Note, x.resolution.Moves = to.Note, to.Moves
	if failed := x.dispatch.failed; !ok || !time.Now().Before(x.patience) ||
		len(failed) > 0 && !x.s.spendRetry(failed[len(failed)-1].failure) {
		return false
	}
	x.setTarget(to, rejection{})
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
