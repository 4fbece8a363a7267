package proxy

import (
	"errors"
	"time"

	"tierway/openai"
	"tierway/queue"
	"tierway/routing"
	"tierway/server/control"
	"tierway/tenants"
)

// noWorker returns the client's error for err, with which the selection of a worker failed. checks is
// the interval of health checks.
func noWorker(p *control.Pool, err error, class tenants.Class, checks time.Duration) error {
	var backoff *routing.BackoffError
	var open *routing.OpenError
	var shed *queue.ShedError
	var answer *openai.Error
	switch {
	case errors.As(err, &answer):
		return err
	case errors.As(err, &shed):
		return shedAnswer(p, shed, class, checks)
	case errors.As(err, &open):
		return &openai.Error{
			Code:       openai.CodeNoHealthyWorker,
			RetryAfter: max(time.Until(open.Until), time.Second),
			Cause:      err,
			Message: "All workers of " + openai.Quoted(p.Name) +
				" failed repeatedly and receive no requests for now. Try again later.",
		}
	case errors.As(err, &backoff):
		wait := max(time.Until(backoff.Until), time.Second)
		return &openai.Error{Code: openai.CodeOverloaded, RetryAfter: wait, Cause: err,
			Message: "All workers of " + openai.Quoted(p.Name) + " failed or returned 429 moments ago. Try again later."}
	case errors.Is(err, routing.ErrFull):
		return &openai.Error{Code: openai.CodeOverloaded, RetryAfter: time.Second, Cause: err,
			Message: "All workers of " + openai.Quoted(p.Name) + " are full. Try again later."}
	}
	return &openai.Error{Code: openai.CodeNoHealthyWorker, RetryAfter: checks, Cause: err,
		Message: "No worker of " + openai.Quoted(p.Name) + " is up. Try again later."}
}

// shedAnswer returns the answer to a request that the queue rejects.
func shedAnswer(p *control.Pool, e *queue.ShedError, of tenants.Class, checks time.Duration) error {
	pool, class := openai.Quoted(p.Name), of.String()
	var why string
	switch e.Reason {
	case queue.ShedEngine:
		e.RetryAfter = max(e.RetryAfter, checks) // no worker can come up before the next health check
		return &openai.Error{Code: openai.CodeNoHealthyWorker, RetryAfter: e.RetryAfter, Cause: e,
			Message: "No worker of " + pool + " is up. Try again later."}
	case queue.ShedBytes:
		why = "The queue of " + pool + " is full: its waiting requests have reached the maximum of bytes."
	case queue.ShedWait:
		why = "The request waited for " + pool + " until the wait limit of " + class +
			" requests, or until the timeout of its client."
	case queue.ShedDeadline:
		why = "The request would wait for " + pool + " longer than its client does, or longer than the wait limit of " +
			class + " requests."
	case queue.ShedDisplaced:
		why = "The queue of " + pool + " is full, and a more urgent request took the place of this one."
	default:
		why = "All workers of " + pool + " are full, and its queue is full for " + class + " requests."
	}
	return &openai.Error{Code: openai.CodeOverloaded, RetryAfter: e.RetryAfter, Cause: e,
		Message: why + " Try again in " + openai.ShortDuration(e.RetryAfter) + "."}
}
