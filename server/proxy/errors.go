package proxy

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"tierway/openai"
	"tierway/queue"
	"tierway/routing"
	"tierway/server/control"
	"tierway/tenants"
)

// Causes for which the gateway ends an exchange. ErrDrainCut is the cause for requests that the
// end of a drain cuts.
var (
	errClientGone       = errors.New("the client left")
	errFirstByteTimeout = errors.New("no first event within timeouts.first_byte")
	errIdleTimeout      = errors.New("no bytes within timeouts.idle")
	errTotalTimeout     = errors.New("the request reached its total time")
	errStoppedSilence   = errors.New("no byte for 10 s from a worker that has stopped answering")
	errTrailer          = errors.New("the body did not end after its last event")
	ErrDrainCut         = errors.New("cut at the end of the drain")
	errTruncated        = errors.New("the stream ended without a terminating event")
)

func responseNotFound(id string) error {
	return &openai.Error{Code: openai.CodeResponseNotFound, Message: "Response with id " + openai.Quoted(id) +
		" not found. It may have expired, or belong to another key."}
}

func previousNotFound(id string) error {
	return &openai.Error{Code: openai.CodePreviousResponseNotFound, Param: "previous_response_id",
		Message: "Previous response with id " + openai.Quoted(id) +
			" not found. It may have expired, or belong to another key. Send the whole conversation as input instead."}
}

func conversationNotFound(id string) error {
	return &openai.Error{Code: openai.CodeConversationNotFound, Param: "conversation",
		Message: "Conversation with id " + openai.Quoted(id) +
			" not found. It may have expired, or belong to another key."}
}

func shuttingDown() *openai.Error {
	return &openai.Error{
		Code:       openai.CodeServerShuttingDown,
		RetryAfter: time.Second,
		Message:    "The gateway is shutting down. Try again, on another connection.",
		Cause:      ErrDrainCut,
	}
}

// translate returns the client's error for err. No other function converts errors of other packages.
func translate(err error) *openai.Error {
	var e *openai.Error
	if errors.As(err, &e) {
		return e
	}
	var refused *openai.RequestError
	if errors.As(err, &refused) {
		return &openai.Error{Code: refused.Reason, Param: refused.Param, Message: refused.Message}
	}
	return &openai.Error{Code: openai.CodeInternalError, Cause: err,
		Message: "The gateway failed to handle the request. Quote the request id to its operator."}
}

// writeError answers with an error in the dialect's shape. If a heartbeat has opened the answer, the
// error is an event.
func (x *exchange) writeError(e *openai.Error) {
	x.answer.stopBeats()
	if !x.answer.held() {
		if x.answer.write(e.Frame(x.in.Shape), true) != nil {
			x.answer.abort = true
		}
		return
	}
	body := e.Body(x.in.Shape, x.in.RequestID)
	x.answer.sendHead(e.HTTPStatus(), func(h http.Header) {
		if x.dispatch.settlement(x.cached).refunded(x.admission.Grant, x.resolution.Pool) {
			dropRateHeaders(h) // they were computed before the refund
		}
		errorHeaders(h, e, len(body))
		if x.wait.total > 0 && x.in.Snap.File.RoutingHeaders {
			set := setInto(h)
			x.wait.queueHeader(&set)
		}
	})
	if x.in.HTTP.Method == http.MethodHead {
		body = nil
	}
	if x.answer.write(body, false) != nil {
		x.answer.abort = true
	}
}

// errorHeaders sets the headers of an error, including whether and when clients may retry.
func errorHeaders(h http.Header, e *openai.Error, length int) {
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(length))
	if e.RetryAfter > 0 {
		// Whole seconds, at least 1: the SDKs retry at once after 0.
		h.Set("Retry-After", strconv.FormatInt(int64((e.RetryAfter+time.Second-1)/time.Second), 10))
		h.Set("Retry-After-Ms", strconv.FormatInt(max(1, e.RetryAfter.Milliseconds()), 10))
	}
	if e.NeverRetry() {
		h.Set("X-Should-Retry", "false")
	}
	if e.Allow != "" {
		h.Set("Allow", e.Allow)
	}
	if e.HTTPStatus() == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
}

// nativeError reports whether a worker's error body has the form that clients of the dialect parse.
func nativeError(d openai.Dialect, body []byte) bool {
	var b struct {
		Type  string `json:"type"`
		Error *struct {
			Message *string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &b) != nil || b.Error == nil || b.Error.Message == nil {
		return false
	}
	return d != openai.Messages || b.Type == "error"
}

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
