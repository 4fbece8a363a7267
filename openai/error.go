package openai

import (
	"net/http"
	"time"
)

// Code names one kind of failure; clients read it in `error.code`.
type Code string

// The codes. docs/errors.md explains them.
const (
	CodeInvalidJSON            Code = "invalid_json"
	CodeJSONTooDeep            Code = "json_too_deep"
	CodeAmbiguousJSON          Code = "ambiguous_json"
	CodeInvalidValue           Code = "invalid_value"
	CodeMissingField           Code = "missing_field"
	CodeContextLengthExceeded  Code = "context_length_exceeded"
	CodeInvalidAPIKey          Code = "invalid_api_key"
	CodeTenantDisabled         Code = "tenant_disabled"
	CodeCrossSiteRequest       Code = "cross_site_request"
	CodeHostNotAllowed         Code = "host_not_allowed"
	CodeModelNotFound          Code = "model_not_found"
	CodeEndpointNotSupported   Code = "endpoint_not_supported"
	CodeUnknownURL             Code = "unknown_url"
	CodeResponseNotFound       Code = "response_not_found"
	CodeMethodNotAllowed       Code = "method_not_allowed"
	CodeRequestTimeout         Code = "request_timeout"
	CodeRequestTooLarge        Code = "request_too_large"
	CodeUnsupportedMediaType   Code = "unsupported_media_type"
	CodeUnsupportedEncoding    Code = "unsupported_encoding"
	CodeWebSocketNotSupported  Code = "websocket_not_supported"
	CodeRateLimitExceeded      Code = "rate_limit_exceeded"
	CodeInsufficientQuota      Code = "insufficient_quota"
	CodeInternalError          Code = "internal_error"
	CodeWorkerError            Code = "worker_error"
	CodeWorkerAuthFailed       Code = "worker_auth_failed"
	CodeWorkerProtocol         Code = "worker_protocol"
	CodeResponseTooLarge       Code = "response_too_large"
	CodeOverloaded             Code = "overloaded"
	CodeNoHealthyWorker        Code = "no_healthy_worker"
	CodeServerShuttingDown     Code = "server_shutting_down"
	CodeAuthBackendUnavailable Code = "auth_backend_unavailable"
	CodeRatelimitUnavailable   Code = "ratelimit_unavailable"
	CodeWorkerTimeout          Code = "worker_timeout"
	CodeLoopDetected           Code = "loop_detected"

	CodePreviousResponseNotFound Code = "previous_response_not_found"
	CodeConversationNotFound     Code = "conversation_not_found"
)

// Retry is what the official SDKs are told about sending a request again.
type Retry uint8

// The ways to answer.
const (
	// RetryDefault says nothing: SDKs retry 408, 409, 429 and 5xx.
	RetryDefault Retry = iota
	// RetryNever sends x-should-retry: false, which SDKs obey before all else.
	RetryNever
	// RetryAfter sends Retry-After and retry-after-ms.
	RetryAfter
)

// Row is one line of the error table.
type Row struct {
	Code      Code
	Status    int
	Type      string // `error.type` in the OpenAI shape
	Anthropic string // `error.type` in the Anthropic shape
	Retry     Retry
	Meaning   string // one sentence; the public message where a caller gives none
	Remedy    string // what the reader can do about it
}

// rowOf returns the row of a code. A code that is not in the table, as an
// engine's own, has the types that its status commonly has.
func rowOf(code Code, status int) Row {
	for i := range table {
		if table[i].Code == code {
			return table[i]
		}
	}
	if status < 400 || status > 599 {
		status = http.StatusInternalServerError
	}
	r := Row{Code: code, Status: status, Type: "invalid_request_error", Anthropic: "invalid_request_error",
		Meaning: "The request failed."}
	switch {
	case status == http.StatusUnauthorized:
		r.Anthropic = "authentication_error"
	case status == http.StatusForbidden:
		r.Type, r.Anthropic = "permission_denied", "permission_error"
	case status == http.StatusNotFound:
		r.Anthropic = "not_found_error"
	case status == http.StatusTooManyRequests:
		r.Type, r.Anthropic = "requests", "rate_limit_error"
	case status == http.StatusServiceUnavailable:
		r.Type, r.Anthropic = "server_error", "overloaded_error"
	case status == http.StatusGatewayTimeout:
		r.Type, r.Anthropic = "server_error", "timeout_error"
	case status >= 500:
		r.Type, r.Anthropic = "server_error", "api_error"
	}
	return r
}

// longestRetryAfter is the longest wait that an SDK honours: openai-node and
// openai-python ignore a Retry-After over a minute and retry within a second.
const longestRetryAfter = time.Minute

// Error is a failure on its way to a client. What the client may read and what
// caused it are two fields: Cause is for the log and is in no body.
type Error struct {
	Code       Code
	Message    string // public; empty: the table's meaning
	Type       string // `error.type` in the OpenAI shape; empty: the table's
	Param      string // the request's field at fault, as `messages[0].role`
	Status     int    // 0: the table's
	Cause      error  // private
	RetryAfter time.Duration
	Allow      string // the methods that a 405 allows, for its Allow header
	// NoRetry says that sending the request again cannot help: the gateway has
	// done so itself, or the request is larger than its limit will ever allow.
	NoRetry bool
}

// Error returns code, message and cause, for logs.
func (e *Error) Error() string {
	s := string(e.Code) + ": " + e.message()
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap returns the private cause.
func (e *Error) Unwrap() error { return e.Cause }

// HTTPStatus is the status to answer with, from 400 to 599.
func (e *Error) HTTPStatus() int {
	if e.Status >= 400 && e.Status <= 599 {
		return e.Status
	}
	return rowOf(e.Code, e.Status).Status
}

// NeverRetry reports whether SDKs are told by x-should-retry: false not to send the request
// again: that cannot help, or the wait is longer than they take.
func (e *Error) NeverRetry() bool {
	return e.NoRetry || e.RetryAfter > longestRetryAfter || rowOf(e.Code, e.Status).Retry == RetryNever
}

// message is what the client reads.
func (e *Error) message() string {
	if e.Message != "" {
		return e.Message
	}
	return rowOf(e.Code, e.Status).Meaning
}
