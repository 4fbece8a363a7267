package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"tierway/http1"
	"tierway/openai"
	"tierway/routing"
	"tierway/workers"
)

// failure is an attempt that gave the client nothing.
type failure struct {
	err             *openai.Error // the client's answer if no other worker succeeds
	fault           error         // as the breaker counts it: wraps routing.ErrExcluded if the worker is not at fault
	retry           bool          // another worker may succeed
	sent            bool          // the worker may have received part of the request
	backoff         time.Duration // how long the worker receives no requests
	backoffIfOthers bool          // only if another worker takes requests
	unreachable     bool          // no connection was made
	recheck         bool          // its health is checked at once
	status          int           // of the worker's answer; 0 without one
}

// mayBeCaused reports whether the request itself may have caused the failure: it has
// reached the worker. A timeout always counts: a worker that sends nothing hangs more
// often than its request is at fault.
func (f *failure) mayBeCaused() bool {
	return f.sent && !errors.Is(f.fault, routing.ErrExcluded) &&
		!errors.Is(f.fault, errFirstByteTimeout) && !errors.Is(f.fault, errIdleTimeout)
}

// errAborted is the fault of a worker whose engine gave up an answer, as vLLM does on
// SIGTERM.
var errAborted = errors.New("the worker aborted the answer before it was whole")

// abortFailure is the failure of an answer that its engine gave up.
func abortFailure() *failure {
	return &failure{sent: true, retry: true, recheck: true, fault: errAborted,
		err: &openai.Error{Code: openai.CodeWorkerError, Message: "The worker aborted its answer before it was whole.", Cause: errAborted}}
}

const (
	// backoffMax bounds the backoff that a Retry-After causes.
	backoffMax = 30 * time.Second
	// backoffMin is the backoff of a worker that sent 429 without a Retry-After, and the
	// least: a worker that refuses answers fastest and would get the most requests.
	backoffMin = time.Second
	// retryAfterMax bounds what is read of a Retry-After. A later date is no plan.
	retryAfterMax = 7 * 24 * time.Hour
	// unreachableFor is how long a worker that took no connection gets no requests before
	// its breaker opens: one health check finds out within it.
	unreachableFor = time.Second
)

// excluded makes an error that no breaker counts.
func excluded(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{routing.ErrExcluded}, args...)...)
}

// statusFailure classifies a worker's status other than 2xx. passes means that the client gets
// the answer unchanged.
func statusFailure(status int, retryAfter time.Duration, asked bool) (f failure, passes bool) {
	f.sent, f.status = true, status
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		f.fault, f.retry = excluded("the worker refused the gateway's key with %d", status), true
		// A worker that refuses answers fastest: without a backoff it would get the most requests.
		// On a path that passes through, the client may be the cause.
		f.backoff, f.backoffIfOthers = backoffMin, true
		f.err = &openai.Error{Code: openai.CodeWorkerAuthFailed, Message: "The worker refused the gateway's credentials. Its operator must check the worker's api_key_env."}
	case status == http.StatusRequestTimeout:
		f.fault, f.retry = excluded("the worker answered 408"), true
		f.err = &openai.Error{Code: openai.CodeWorkerTimeout, Message: "The worker gave up waiting for the request."}
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable && asked:
		f.fault, f.retry = excluded("the worker asked for less with %d", status), true
		f.backoff = backoffMin
		if asked {
			f.backoff = min(max(retryAfter, backoffMin), backoffMax)
		}
		f.err = &openai.Error{Code: openai.CodeOverloaded, RetryAfter: max(f.backoff, retryAfter, time.Second), Message: "The workers are busy. Try again later."}
		if status == http.StatusTooManyRequests {
			f.err.Code = openai.CodeRateLimitExceeded
		}
	case status == http.StatusLoopDetected:
		// The client may have written the Via header that the worker refuses.
		f.fault, f.retry = excluded("the worker answered 508: it is a gateway that the request has passed, or the last of too many"), true
		f.err = &openai.Error{Code: openai.CodeLoopDetected,
			Message: "The URL of the worker leads to a gateway that the request has passed before. Its operator must correct it."}
	case status == http.StatusNotImplemented:
		f.fault, f.retry = excluded("the worker answered 501: it lacks what the request needs"), true
		f.err = &openai.Error{Code: openai.CodeWorkerError, Message: "The worker does not support what the request asks for."}
	case status >= 500:
		f.fault, f.retry, f.recheck = fmt.Errorf("the worker answered %d", status), true, true
		f.err = &openai.Error{Code: openai.CodeWorkerError, Message: "The worker failed to answer.", Cause: f.fault}
	case status >= 400:
		f.fault = excluded("the worker refused the request with %d", status)
		return f, true
	default:
		f.fault, f.retry = fmt.Errorf("the worker answered with status %d", status), true
		f.err = &openai.Error{Code: openai.CodeWorkerProtocol, Message: "The worker's answer was not understood.", Cause: f.fault}
	}
	if f.err.Cause == nil {
		f.err.Cause = f.fault
	}
	return f, false
}

// engineFailure is statusFailure of an error without a Retry-After. An engine whose queue
// is full rests as after a 429 without one.
func engineFailure(e openai.EngineError) (f failure, passes bool) {
	if e.Busy() {
		return statusFailure(e.Status, backoffMin, true)
	}
	return statusFailure(e.Status, 0, false)
}

// sendFailure classifies a broken exchange with the worker.
func (a *attempt) sendFailure(err error) *failure {
	f := &failure{sent: true, fault: err, retry: true}
	var se *http1.SendError
	prepared := true
	if errors.As(err, &se) {
		f.sent, prepared = se.Phase > http1.PhaseConnect, se.Phase != http1.PhasePrepare
	}
	cause := a.cause()
	if cause == nil || errors.Is(cause, context.Canceled) { // net/http cancels by itself when a body fails
		if broken := a.uploadFailure(); broken != nil {
			return broken
		}
	}
	switch {
	case !prepared:
		f.fault, f.retry = excluded("%w", err), false
		f.err = &openai.Error{Code: openai.CodeInvalidValue, Cause: err,
			Message: "The request's path, query or headers cannot be forwarded."}
	case cause == nil && workers.OutOfResources(err):
		a.x.s.Exhausted("connect", err)
		f.fault, f.retry = excluded("%w", err), false // another worker needs a descriptor too
		f.err = &openai.Error{Code: openai.CodeOverloaded, RetryAfter: time.Second, Cause: err,
			Message: "The gateway has no file descriptor free. Try again later."}
	case cause == nil && !f.sent:
		f.unreachable, f.recheck = true, true
		f.err = &openai.Error{Code: openai.CodeWorkerError, Message: "No worker could be reached.", Cause: err}
	case cause == nil:
		f.recheck = true
		f.err = &openai.Error{Code: openai.CodeWorkerError, Message: "The worker broke off before its answer was whole.", Cause: err}
	case errors.Is(cause, errFirstByteTimeout), errors.Is(cause, errIdleTimeout):
		f.fault, f.recheck = cause, true
		f.err = &openai.Error{Code: openai.CodeWorkerTimeout, Message: "The worker did not answer in time.", Cause: cause}
	case errors.Is(cause, errTotalTimeout):
		f.fault, f.retry = excluded("%w", cause), false
		f.err = &openai.Error{Code: openai.CodeWorkerTimeout, Message: "The request's time is over before its answer was whole.", Cause: cause}
	case errors.Is(cause, ErrDrainCut):
		f.fault, f.retry = excluded("%w", cause), false
		f.err = shuttingDown()
	default:
		f.fault, f.retry = excluded("%w", errClientGone), false
		f.err = &openai.Error{Code: openai.CodeWorkerError, Message: "The client left.", Cause: errClientGone}
	}
	return f
}

// protocolFailure is the failure of an answer in an unexpected format.
func protocolFailure(format string, args ...any) *failure {
	cause := fmt.Errorf(format, args...)
	return &failure{sent: true, retry: true, fault: cause,
		err: &openai.Error{Code: openai.CodeWorkerProtocol, Message: "The worker's answer was not understood.", Cause: cause}}
}

// formFailure is a whole answer where a stream was asked for, or a stream where a whole
// answer was. The engine may have no other form, so that its worker is not at fault.
func formFailure(what string) *failure {
	f := protocolFailure("%s", what)
	f.fault = excluded("%w", f.fault)
	return f
}

// retryAfter reads a worker's Retry-After, in seconds or as a date.
func retryAfter(h http.Header, now time.Time) (d time.Duration, ok bool) {
	v := h.Get("Retry-After")
	if v == "" {
		return 0, false
	}
	if s, err := strconv.Atoi(v); err == nil && s >= 0 {
		return time.Duration(min(s, int(retryAfterMax/time.Second))) * time.Second, true
	}
	if t, err := http.ParseTime(v); err == nil {
		return min(max(0, t.Sub(now)), retryAfterMax), true
	}
	return 0, false
}
