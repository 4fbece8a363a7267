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

// noWorker says why no worker could be picked. checks is the time between two health
// checks of a worker.
func noWorker(p *control.Pool, err error, class tenants.Class, checks time.Duration) error {
	var cooled *routing.BackoffError
	var open *routing.OpenError
	var shed *queue.ShedError
	var answer *openai.Error
	switch {
	case errors.As(err, &answer):
		return err
	case errors.As(err, &shed):
		return shedAnswer(p, shed, class, checks)
	case errors.As(err, &open):
		return &openai.Error{Code: openai.CodeNoHealthyWorker, RetryAfter: max(time.Until(open.Until), time.Second), Cause: err,
			Message: "All workers of " + openai.Quoted(p.Name) + " failed and are left alone for a while. Try again later."}
	case errors.As(err, &cooled):
		wait := max(time.Until(cooled.Until), time.Second)
		return &openai.Error{Code: openai.CodeOverloaded, RetryAfter: wait, Cause: err,
			Message: "All workers of " + openai.Quoted(p.Name) + " failed or asked for fewer requests a moment ago. Try again later."}
	case errors.Is(err, routing.ErrFull):
		return &openai.Error{Code: openai.CodeOverloaded, RetryAfter: time.Second, Cause: err,
			Message: "All workers of " + openai.Quoted(p.Name) + " are full. Try again later."}
	}
	return &openai.Error{Code: openai.CodeNoHealthyWorker, RetryAfter: checks, Cause: err,
		Message: "No worker of " + openai.Quoted(p.Name) + " is up. Try again later."}
}

// shedAnswer is the answer to a request that the queue's bounds keep out.
func shedAnswer(p *control.Pool, e *queue.ShedError, of tenants.Class, checks time.Duration) error {
	pool, class := openai.Quoted(p.Name), of.String()
	var why string
	switch e.Reason {
	case queue.ShedEngine:
		e.RetryAfter = max(e.RetryAfter, checks) // nothing is known of a worker before
		return &openai.Error{Code: openai.CodeNoHealthyWorker, RetryAfter: e.RetryAfter, Cause: e,
			Message: "No worker of " + pool + " is up. Try again later."}
	case queue.ShedBytes:
		why = "The requests that wait for " + pool + " are as large as they may be together."
	case queue.ShedWait:
		why = "The request has waited for " + pool + " for as long as " + class + " requests may, or as its client does."
	case queue.ShedDeadline:
		why = "The request's turn for " + pool + " would come later than its client waits, or than " + class + " requests may."
	case queue.ShedDisplaced:
		why = "The request has made room for another one that waits for " + pool + "."
	default:
		why = "All workers of " + pool + " are full, and no more " + class + " requests may wait."
	}
	return &openai.Error{Code: openai.CodeOverloaded, RetryAfter: e.RetryAfter, Cause: e,
		Message: why + " Try again in " + openai.ShortDuration(e.RetryAfter) + "."}
}
