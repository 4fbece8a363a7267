package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"tierway/http1"
	"tierway/openai"
	"tierway/routing"
	"tierway/server/intake"
	"tierway/workers"
)

// failure describes a failed attempt that sent no content to the client.
type failure struct {
	err             *openai.Error // the client's answer if no other worker succeeds
	fault           error         // for the breaker: wraps routing.ErrExcluded if the worker is not at fault
	retry           bool          // another worker may succeed
	sent            bool          // the worker may have received part of the request
	backoff         time.Duration // how long the worker receives no further requests
	backoffIfOthers bool          // backoff applies only if another worker is available
	transfer        bool          // the decode worker failed before it had the whole prompt
	byContrast      bool          // the worker is at fault only if another worker answers the request
	unreachable     bool          // no connection was established
	recheck         bool          // the worker's health is checked at once
	status          int           // of the worker's answer; 0 without one
	prefill         bool          // only the prefill stage failed: the attempt's own worker has received nothing
}

// requestMayBeCause reports whether the request itself may have caused the failure, because it reached the
// worker. Timeouts never count as caused: a hanging worker is more likely than a faulty request.
func (f *failure) requestMayBeCause() bool {
	return f.sent && !errors.Is(f.fault, routing.ErrExcluded) &&
		!errors.Is(f.fault, errFirstByteTimeout) && !errors.Is(f.fault, errIdleTimeout) &&
		!errors.Is(f.fault, errStoppedSilence)
}

// errAborted is the fault of an answer that the engine aborted, as vLLM does on SIGTERM.
var errAborted = errors.New("the worker aborted the answer before it was complete")

func abortFailure() *failure {
	return &failure{
		sent:    true,
		retry:   true,
		recheck: true,
		fault:   errAborted,
		err: &openai.Error{Code: openai.CodeWorkerError,
			Message: "The worker aborted its answer before it was complete. Try again.", Cause: errAborted},
	}
}

const (
	// backoffMax bounds the backoff that a Retry-After causes.
	backoffMax = 30 * time.Second
	// backoffMin is the minimum backoff, and the backoff after a 429 without a Retry-After.
	// Without one, a rejecting worker would answer fastest and receive the most requests.
	backoffMin = time.Second
	// retryAfterMax is the largest Retry-After that a client receives. A later date is not plausible.
	retryAfterMax = 7 * 24 * time.Hour
	// unreachableFor is how long a worker that accepted no connection receives no requests. A
	// health check within this time decides whether it is down.
	unreachableFor = time.Second
)

// excluded returns an error that breakers do not count, because the worker is not at fault.
func excluded(format string, args ...any) error {
	for _, arg := range args {
		if err, ok := arg.(error); ok && errors.Is(err, routing.ErrExcluded) {
			return fmt.Errorf(format, args...) // it is marked already
		}
	}
	return fmt.Errorf("%w: "+format, append([]any{routing.ErrExcluded}, args...)...)
}

// statusFailure classifies a worker's status other than 2xx. hasRetryAfter reports whether the answer
// has a Retry-After. passes means that the client receives the answer unchanged.
func statusFailure(status int, retryAfter time.Duration, hasRetryAfter bool) (f failure, passes bool) {
	f.sent, f.status = true, status
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		f.fault, f.retry = excluded("the worker refused the gateway's key with %d", status), true
		// A rejecting worker answers fastest: without a backoff it would receive the most requests.
		// On a path that passes through, the client may be the cause.
		f.backoff, f.backoffIfOthers = backoffMin, true
		f.err = &openai.Error{Code: openai.CodeWorkerAuthFailed,
			Message: "The worker rejected the gateway's credentials. The operator must check the worker's " +
				"api_key_env or api_key_file."}
	case status == http.StatusRequestTimeout:
		f.fault, f.retry = excluded("the worker answered 408"), true
		f.err = &openai.Error{Code: openai.CodeWorkerTimeout,
			Message: "The worker timed out while it received the request. Try again."}
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable, status == openai.StatusOverloaded:
		f.fault, f.retry = excluded("the worker reported a rate limit or an overload with %d", status), true
		f.backoff = backoffMin
		f.recheck = !hasRetryAfter && status == http.StatusServiceUnavailable // it may be starting or stopping
		if hasRetryAfter {
			f.backoff = min(max(retryAfter, backoffMin), backoffMax)
		}
		f.err = &openai.Error{Code: openai.CodeOverloaded, RetryAfter: max(f.backoff, retryAfter, time.Second),
			Message: "The workers are busy. Try again later."}
		if status == http.StatusTooManyRequests {
			f.err.Code = openai.CodeRateLimitExceeded
		}
	case status == http.StatusLoopDetected:
		// The client may have written the Via header that the worker refuses.
		f.fault, f.retry =
			excluded("the worker answered 508: the request has passed it before, or has passed too many gateways"), true
		f.err = &openai.Error{Code: openai.CodeLoopDetected,
			Message: "The URL of the worker leads to a gateway that the request has already passed. The operator must " +
				"correct the URL."}
	case status == http.StatusNotImplemented:
		f.fault, f.retry = excluded("the worker answered 501: it does not support the request"), true
		f.err = &openai.Error{Code: openai.CodeWorkerError,
			Message: "The worker does not support a feature of the request. Remove the feature, or use another model."}
	case status >= 500:
		f.fault, f.retry, f.recheck = fmt.Errorf("the worker answered %d", status), true, true
		f.err = &openai.Error{Code: openai.CodeWorkerError, Message: "The worker failed to answer. Try again later.",
			Cause: f.fault}
	case status >= 400:
		f.fault = excluded("the worker refused the request with %d", status)
		return f, true
	default:
		f.fault, f.retry = fmt.Errorf("the worker answered with status %d", status), true
		f.err = &openai.Error{Code: openai.CodeWorkerProtocol,
			Message: "The worker's answer has an unknown format. Try again; if it recurs, report the request ID to the operator.",
			Cause:   f.fault}
	}
	if f.err.Cause == nil {
		f.err.Cause = f.fault
	}
	return f, false
}

// engineFailure classifies an error by the text of the engine's error, and otherwise by statusFailure. An
// overloaded engine counts as 503. A refusal for content and a prompt that exceeds the context pass, as
// 400 if the engine failed with it.
func engineFailure(e openai.EngineError, retryAfter time.Duration, hasRetryAfter bool) (f failure, passes bool) {
	switch {
	case e.RefusesContent():
		status := e.Status
		if status >= http.StatusInternalServerError {
			status = http.StatusBadRequest
		}
		return failure{sent: true, status: status,
			fault: excluded("the worker refused the content of the request with %d", e.Status)}, true
	case e.Overloaded():
		return statusFailure(http.StatusServiceUnavailable, retryAfter, hasRetryAfter)
	case e.Status >= http.StatusInternalServerError:
		if _, overflow := e.Overflow(openai.Chat); overflow {
			return statusFailure(http.StatusBadRequest, 0, false)
		}
	}
	return statusFailure(e.Status, retryAfter, hasRetryAfter)
}

func (a *attempt) sendFailure(err error) *failure {
	f := &failure{sent: true, fault: err, retry: true}
	var se *http1.SendError
	prepared := true
	if errors.As(err, &se) {
		f.sent, prepared = se.Phase > http1.PhaseConnect, se.Phase != http1.PhasePrepare
	}
	cause := a.cause()
	if cause == nil || errors.Is(cause, context.Canceled) { // net/http itself cancels when a body fails
		if broken := a.uploadFailure(); broken != nil {
			return broken
		}
	}
	switch {
	case !prepared:
		f.fault, f.retry = excluded("%w", err), false
		f.err = &openai.Error{Code: openai.CodeInvalidValue, Cause: err,
			Message: "The request's path, query or headers cannot be forwarded. Send the path percent-encoded and headers " +
				"without control characters."}
	case cause == nil && workers.OutOfResources(err):
		a.x.s.Exhausted("connect", err)
		f.fault, f.retry = excluded("%w", err), false // another worker needs a descriptor too
		f.err = &openai.Error{Code: openai.CodeOverloaded, RetryAfter: time.Second, Cause: err,
			Message: "The gateway has no file descriptor free. Try again later."}
	case cause == nil && !f.sent:
		f.unreachable, f.recheck = true, true
		f.err = &openai.Error{Code: openai.CodeWorkerError, Message: "No worker could be reached. Try again later.",
			Cause: err}
	case cause == nil:
		if f.recheck = true; se != nil && se.Kept && !a.m.Closures.Fail(a.sentAt(), time.Now()) {
			f.fault = excluded("%w", err) // the worker may have closed it before
		}
		f.err = &openai.Error{Code: openai.CodeWorkerError,
			Message: "The worker closed the connection before its answer was complete. Try again, unless the request must not run twice.", Cause: err}
	case errors.Is(cause, errOtherStage):
		f.fault = excluded("%w", cause)
		f.err = &openai.Error{Code: openai.CodeWorkerError, Message: "The worker failed to answer. Try again later.",
			Cause: cause}
	case errors.As(cause, new(*stoppedError)):
		f.fault, f.recheck = excluded("%w", cause), true // its breaker and its health check know already
		f.err = &openai.Error{Code: openai.CodeWorkerTimeout, Message: "The worker stopped answering. Try again.",
			Cause: cause}
	case errors.Is(cause, errStoppedSilence):
		f.fault, f.recheck, f.retry = cause, true, false
		f.err = &openai.Error{Code: openai.CodeWorkerTimeout, Message: "The worker stopped answering before its answer was " +
			"complete. Try again, unless the request must not run twice.", Cause: cause}
	case errors.Is(cause, errFirstByteTimeout), errors.Is(cause, errIdleTimeout):
		f.fault, f.recheck = cause, true
		f.err = &openai.Error{Code: openai.CodeWorkerTimeout,
			Message: "The worker did not answer in time. Try again, with a shorter prompt or a lower max_tokens.", Cause: cause}
	case errors.Is(cause, errTotalTimeout):
		f.fault, f.retry = excluded("%w", cause), false
		f.err = &openai.Error{Code: openai.CodeWorkerTimeout,
			Message: "The request reached its time limit before its answer was complete. Lower max_tokens, or ask the " +
				"operator for a longer timeouts.total.", Cause: cause}
	case errors.Is(cause, ErrDrainCut):
		f.fault, f.retry = excluded("%w", cause), false
		f.err = shuttingDown()
	default:
		f.fault, f.retry = excluded("%w", errClientGone), false
		f.err = &openai.Error{Code: openai.CodeWorkerError, Message: "The client left.", Cause: errClientGone}
	}
	return f
}

// protocolFailure returns the failure of an answer in an unexpected format.
func protocolFailure(format string, args ...any) *failure {
	cause := fmt.Errorf(format, args...)
	return &failure{
		sent:  true,
		retry: true,
		fault: cause,
		err: &openai.Error{Code: openai.CodeWorkerProtocol,
			Message: "The worker's answer has an unknown format. Try again; if it recurs, report the request ID to the operator.",
			Cause:   cause},
	}
}

// formFailure returns the failure of an answer that is a stream although none was requested, or the
// reverse. The engine may support one form only, so the worker is not at fault.
func formFailure(what string) *failure {
	f := protocolFailure("%s", what)
	f.fault = excluded("%w", f.fault)
	return f
}

// retryAfter parses a worker's Retry-After, in seconds or as a date, or its forms in milliseconds.
func retryAfter(h http.Header, now time.Time) (d time.Duration, ok bool) {
	v := h.Get("Retry-After")
	if t, err := http.ParseTime(v); err == nil {
		return min(max(0, t.Sub(now)), retryAfterMax), true
	}
	for _, form := range [...]struct {
		value string
		unit  time.Duration
	}{{v, time.Second}, {h.Get("Retry-After-Ms"), time.Millisecond}, {h.Get("X-Ms-Retry-After-Ms"), time.Millisecond}} {
		if n, err := strconv.ParseFloat(form.value, 64); err == nil && n >= 0 {
			return time.Duration(min(n*float64(form.unit), float64(retryAfterMax))), true
		}
	}
	return 0, false
}

// noAnswerMemory returns the failure of an answer for which no memory is left after that many bytes.
// The worker is not at fault, and its work is charged.
func (a *attempt) noAnswerMemory(bytes int) *failure {
	a.x.s.metrics.BodiesRefused.Inc()
	a.bookEstimate(a.x.resolution.EstimateOutput(&a.x.parsed, bytes))
	cause := excluded("%w", intake.ErrBodyMemory)
	return &failure{sent: true, fault: cause, err: &openai.Error{
		Code:       openai.CodeOverloaded,
		RetryAfter: time.Second,
		Cause:      cause,
		Message: "The gateway has no memory left for the worker's answer (max_buffered_bytes). Request a shorter " +
			"answer, or try again later.",
	}}
}

// Exhausted counts and logs a connection that failed because the gateway has no free file
// descriptor. operation is accept (from a client) or connect (to a worker).
func (px *Proxy) Exhausted(operation string, err error) {
	px.metrics.Exhausted(operation)
	if omitted, ok := px.exhaustions.allow(time.Now()); ok {
		px.log.Warn("a connection failed: no file descriptor is free", "operation", operation,
			"cause", err.Error(), "more", omitted,
			"way_out", "raise the limit of open files (ulimit -n, LimitNOFILE), or add a gateway")
	}
}

// logLimiter limits a log line to one per minute. Its zero value is ready for use.
type logLimiter struct {
	mu      sync.Mutex
	last    time.Time
	omitted int // lines since last
}

// allow reports whether a line may be logged now, and how many lines were omitted before it.
func (l *logLimiter) allow(now time.Time) (omitted int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.last.IsZero() && now.Sub(l.last) < time.Minute {
		l.omitted++
		return 0, false
	}
	omitted, l.omitted, l.last = l.omitted, 0, now
	return omitted, true
}
