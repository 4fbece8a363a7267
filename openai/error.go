package openai

import (
	"net/http"
	"strings"
	"time"
)

// Code identifies an error; clients read it in `error.code`.
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
	CodeStoredUnavailable      Code = "stored_response_unavailable"
	CodeWorkerTimeout          Code = "worker_timeout"
	CodeLoopDetected           Code = "loop_detected"
	CodeRejectedByHook         Code = "rejected_by_hook"
	CodeHookUnavailable        Code = "hook_unavailable"

	CodeFeedbackDisabled         Code = "feedback_disabled"
	CodePreviousResponseNotFound Code = "previous_response_not_found"
	CodeConversationNotFound     Code = "conversation_not_found"
)

// Retry is the instruction to the official SDKs about retries.
type Retry uint8

// The retry instructions.
const (
	// RetryDefault sends no instruction: SDKs retry 408, 409, 429 and 5xx.
	RetryDefault Retry = iota
	// RetryNever sends x-should-retry: false, which overrides the SDKs' own rules.
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
	Meaning   string // one sentence; the default public message
	Remedy    string // what the client or the operator can do
}

// rowOf returns the row of a code. A code outside the table, such as an engine's own, gets the
// usual types of its status. So does a code of the table with another status than its own.
func rowOf(code Code, status int) Row {
	isStatus := status >= 400 && status <= 599
	for i := range table {
		if r := table[i]; r.Code == code {
			if isStatus && status != r.Status {
				usual := usualRow(code, status)
				r.Type, r.Anthropic = usual.Type, usual.Anthropic
			}
			return r
		}
	}
	if !isStatus {
		status = http.StatusInternalServerError
	}
	return usualRow(code, status)
}

// usualRow returns a row with the usual types of a status.
func usualRow(code Code, status int) Row {
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

// longestRetryAfter is the longest wait that SDKs honour: openai-node and openai-python ignore
// a Retry-After over one minute and retry within a second.
const longestRetryAfter = time.Minute

// Error is an error for a client. Cause is private: it is logged and never sent.
type Error struct {
	Code       Code
	Message    string // public; default: the meaning in the table
	Type       string // `error.type` in the OpenAI shape; default: from the table
	Param      string // the invalid field, such as `messages[0].role`
	Status     int    // default: from the table
	Cause      error  // private
	RetryAfter time.Duration
	Allow      string // allowed methods of a 405, for its Allow header
	// NoRetry reports that a retry cannot help: the gateway has retried itself, or the request
	// alone exceeds its limit.
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

// HTTPStatus returns the status of the response, from 400 to 599.
func (e *Error) HTTPStatus() int {
	if e.Status >= 400 && e.Status <= 599 {
		return e.Status
	}
	return rowOf(e.Code, e.Status).Status
}

// NeverRetry reports whether SDKs receive x-should-retry: false, because a retry cannot help or
// the wait exceeds their limit.
func (e *Error) NeverRetry() bool {
	return e.NoRetry || e.RetryAfter > longestRetryAfter || rowOf(e.Code, e.Status).Retry == RetryNever
}

func (e *Error) message() string {
	if e.Message != "" {
		return e.Message
	}
	return rowOf(e.Code, e.Status).Meaning
}

// Quoted prepares a client's text for a message: in backticks, cut to 128 bytes, and without
// control characters.
func Quoted(s string) string {
	const limit = 128 // the longest model names have some 90 bytes
	if len(s) > limit {
		s = s[:limit] + "…"
	}
	return "`" + strings.ToValidUTF8(strings.Map(printable, s), "?") + "`"
}

// printable maps characters that could forge a line or a colour to a question mark.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f || r == '`' {
		return '?'
	}
	return r
}

// MediaType returns the media type of a Content-Type in lower case, without parameters.
func MediaType(v string) string {
	v, _, _ = strings.Cut(v, ";")
	return strings.ToLower(strings.TrimSpace(v))
}

// ShortDuration formats a duration like OpenAI's headers: 12ms, 1.5s, 6m0s. It rounds up to
// milliseconds below a second, to tenths of a second below a minute, and to seconds above.
func ShortDuration(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Second:
		return ((d + time.Millisecond - 1) / time.Millisecond * time.Millisecond).String()
	case d < time.Minute:
		return ((d + 100*time.Millisecond - 1) / (100 * time.Millisecond) * (100 * time.Millisecond)).String()
	}
	return ((d + time.Second - 1) / time.Second * time.Second).String()
}
