package decisions

import (
	"time"

	"tierway/routing"
	"tierway/tiers"
)

// SchemaVersion is the version of Decision's JSON form. It grows when a field is removed or changes
// its meaning, not when one is added.
const SchemaVersion = 1

// Result states how a request ended. Every request has exactly one.
type Result string

// The results.
const (
	OK         Result = "ok"          // complete answer, its end proven
	Refused    Result = "refused"     // 4xx from the gateway or the engine
	Failed     Result = "failed"      // 5xx: the workers failed, or none was available
	Truncated  Result = "truncated"   // the answer broke off after its first content
	ClientGone Result = "client_gone" // the client left before the end
)

// Decision is the record of one request: every choice, its reason and the result. The access log
// line and the ledger row are written from it. It holds features and names, never text of a prompt
// or an answer.
type Decision struct {
	SchemaVersion  int       `json:"schema_version"`
	Time           time.Time `json:"time"`
	RequestID      string    `json:"request_id"`
	Generation     int64     `json:"config_generation"` // the configuration that decided
	Tenant         string    `json:"tenant,omitempty"`
	Key            string    `json:"key,omitempty"`         // the key's id
	KeyHint        string    `json:"key_hint,omitempty"`    // first and last characters of a key that was refused
	ClientIP       string    `json:"client_ip,omitempty"`   // address of a client that was not authenticated
	Class          string    `json:"class,omitempty"`       // interactive, background or batch
	AskedClass     string    `json:"asked_class,omitempty"` // the requested class, if the caller may not use it
	Method         string    `json:"method"`
	Route          string    `json:"route"`              // the route's pattern, never the requested path
	TraceID        string    `json:"trace_id,omitempty"` // 32 hex digits; empty if no trace was exported
	Dialect        string    `json:"dialect,omitempty"`
	Stream         bool      `json:"stream,omitempty"`
	RequestedModel string    `json:"requested_model,omitempty"` // "other" if no pool serves it
	Model          string    `json:"model,omitempty"`           // the model name that the worker received
	Tier           string    `json:"tier,omitempty"`            // the tier or pool
	Rule           string    `json:"rule,omitempty"`            // reason for the tier: header, model, alias, default
	// why the rule ignored an input, such as an unknown X-Model-Tier
	RuleNote string `json:"rule_note,omitempty"`
	// targets of the request's list that were passed over, in order
	Passed   []tiers.Move `json:"passed_over,omitempty"`
	Hooks    []Hook       `json:"hooks,omitempty"`   // calls of hooks before the tier was chosen, in order
	Features Features     `json:"features,omitzero"` // further input of the classifier
	Policy   string       `json:"policy,omitempty"`
	Worker   string       `json:"worker,omitempty"` // of the last attempt
	Reason   string       `json:"reason,omitempty"` // reason for the worker
	Attempts []Attempt    `json:"attempts,omitempty"`
	// last pick of a request that got no worker, or no other one; nil if no policy was used
	Refused *routing.Choice `json:"refused_choice,omitempty"`
	// it exceeded its class's wait limit and was dispatched as the class above
	Promoted bool `json:"promoted,omitempty"`

	// what the response cache did; nil in a tier without one
	Cache *Cache `json:"cache,omitempty"`

	PromptTokens int64 `json:"prompt_tokens_estimate,omitempty"`
	MaxTokens    int64 `json:"max_tokens,omitempty"` // as requested; 0 if the client sent none
	Usage        Usage `json:"usage,omitzero"`
	Estimated    bool  `json:"estimated,omitempty"` // Usage is the gateway's own count, at least in part
	// why the engine's report is implausible, such as an output above max_tokens
	UsageNote string `json:"usage_note,omitempty"`

	QueueMs    float64 `json:"queue_ms"`          // all waits for a worker, also those that ended without one
	TTFTMs     float64 `json:"ttft_ms,omitempty"` // to the first content event of a generated stream; 0 for a whole answer
	DurationMs float64 `json:"duration_ms"`
	OverheadMs float64 `json:"overhead_ms"` // the gateway's own time before the first attempt

	Result Result `json:"outcome"`
	Status int    `json:"status"` // as sent to the client; 499 if it left before any
	Code   string `json:"code,omitempty"`
	Limit  string `json:"limit,omitempty"` // the limit that refused, such as rpm
	// why the queue rejected it, at once or after a wait, such as depth; of the last attempt
	Shed  string `json:"shed,omitempty"`
	Cause string `json:"cause,omitempty"` // internal cause of an error; never sent to the client
}

// Usage is the number of tokens that the engine reported.
type Usage struct {
	Prompt int64 `json:"prompt"`
	Cached int64 `json:"cached"` // part of Prompt that was read from the engine's cache
	Output int64 `json:"output"`
}

// Features is the input of the classifier besides the model, the tokens and the caller. It suffices
// to classify the request again if the keyword groups are unchanged. Hashes stand for all text.
type Features struct {
	// the tier named by X-Model-Tier; "other" if it is unknown
	Header string `json:"header,omitempty"`
	// the content was classified; otherwise the name or the header decided
	Classified    bool     `json:"classified,omitempty"`
	Estimate      int64    `json:"estimated_tokens,omitempty"` // estimated prompt tokens that decided the tier
	Counted       int64    `json:"counted_tokens,omitempty"`   // counted prompt tokens; 0 if the estimate sufficed
	UserTextBytes int      `json:"user_text_bytes,omitempty"`  // inspected part of the last user turn
	Groups        []string `json:"groups,omitempty"`           // the keyword groups that matched
	// of groups and length, with the thresholds of classifier.score or share; nil without these
	Score *tiers.Scored `json:"score,omitempty"`
	// of the model in learning.model; nil without one
	ModelScore *tiers.ModelScore `json:"model_score,omitempty"`
	// the endpoint requires an output limit, so MaxTokens is not a choice of the client
	LimitRequired bool `json:"limit_required,omitempty"`
	Tools         bool `json:"tools,omitempty"` // the request offers tools or functions
	// contains images, audio or files, which the estimate does not cover
	Media bool `json:"media,omitempty"`
	// of tenant and session key; differs between processes
	Session routing.Hash `json:"session,omitzero"`
	// of the model name that the worker received, as in routing.Request
	Model  routing.Hash `json:"model,omitzero"`
	Prefix routing.Hash `json:"prefix,omitzero"` // as in routing.Request
	// the prompt's blocks; of a long one the first, then eight for each doubling
	Chain  routing.Chain `json:"chain,omitempty"`
	Blocks int           `json:"blocks,omitempty"` // number of blocks in the whole chain
}

// Attempt is one try of a request on one worker. Times are in milliseconds. Fields named …AtMs
// count from the request's beginning.
type Attempt struct {
	Worker  string  `json:"worker"`
	Tier    string  `json:"tier,omitempty"` // the worker's tier or pool, if it is not the request's
	Reason  string  `json:"reason"`
	AtMs    float64 `json:"at_ms"`              // when the worker was booked
	QueueMs float64 `json:"queue_ms,omitempty"` // wait for this worker, up to AtMs
	// time to choose and book, in microseconds; 0 after a wait
	SelectionUs float64 `json:"selection_us,omitempty"`
	Status      int     `json:"status,omitempty"`      // the worker's; 0 if it sent none
	Error       string  `json:"error,omitempty"`       // why the attempt failed
	ErrorType   string  `json:"error_type,omitempty"`  // an error type, or the worker's status in digits
	DurationMs  float64 `json:"duration_ms"`           // to the answer's header or the failure
	FirstAtMs   float64 `json:"first_at_ms,omitempty"` // the first content; 0 if there was none
	EndAtMs     float64 `json:"end_at_ms,omitempty"`   // when the attempt released its worker, complete or not
	// prompt tokens that the worker's cache was expected to hold
	Predicted int64 `json:"predicted_cached_tokens"`
	Usage     Usage `json:"usage,omitzero"` // as reported by this worker
	// the attempt's span in the trace; zero if no trace was exported
	Span   routing.Hash    `json:"span,omitzero"`
	Choice *routing.Choice `json:"choice,omitempty"` // nil if no policy chose the worker
	// how the prompt was computed, in a tier whose workers hand prompts over; nil in others
	Handover *Handover `json:"handover,omitempty"`
}

// Handover describes how the prompt of an attempt was computed.
type Handover struct {
	Result   string    `json:"result"`             // remote, local, recomputed, failed or abandoned
	Prefills []Prefill `json:"prefills,omitempty"` // in order; the last one may have succeeded
	// when the request was sent to the decode worker; 0 if it was not, and without prefills
	DecodeAtMs float64 `json:"decode_at_ms,omitempty"`
}

// Prefill is the computation of a prompt on a worker for the decode worker.
type Prefill struct {
	Worker    string  `json:"worker"`
	Reason    string  `json:"reason"`
	Status    int     `json:"status,omitempty"`     // the worker's; 0 if it sent none
	Error     string  `json:"error,omitempty"`      // why it failed
	ErrorType string  `json:"error_type,omitempty"` // as of an attempt
	AtMs      float64 `json:"at_ms"`
	EndAtMs   float64 `json:"end_at_ms"` // when the worker had answered or failed
	Predicted int64   `json:"predicted_cached_tokens"`
	Usage     Usage   `json:"usage,omitzero"` // as reported by this worker
	// the span in the trace; zero if no trace was exported
	Span routing.Hash `json:"span,omitzero"`
	// the selection of the worker after another one failed; that of the first is in the attempt's Choice
	Choice *routing.Choice `json:"choice,omitempty"`
}

// Hook is the call of a hook. Times are in milliseconds, as those of an Attempt.
type Hook struct {
	Name   string `json:"name"`
	Result string `json:"result"` // allowed, rejected, transformed, timeout, error, refused, busy, open or cancelled
	// the result had no effect on the request
	Shadow     bool    `json:"shadow,omitempty"`
	AtMs       float64 `json:"at_ms"`
	DurationMs float64 `json:"duration_ms"`
	// changes of headers that no hook may make
	IgnoredHeaders int    `json:"ignored_headers,omitempty"`
	Error          string `json:"error,omitempty"` // cause of a failure
	// the span in the trace; zero if no trace was exported
	Span routing.Hash `json:"span,omitzero"`
}

// Error types of attempts that failed without a status from the worker.
const (
	ErrorGateway    = "gateway"     // the gateway could not send the request; no fault of the worker
	ErrorConnect    = "connect"     // no connection
	ErrorTimeout    = "timeout"     // silence for longer than the timeout
	ErrorCut        = "cut"         // the connection broke off
	ErrorProtocol   = "protocol"    // the answer violates the protocol
	ErrorClientGone = "client_gone" // the client left
	ErrorShutdown   = "shutdown"    // the gateway shut down
)
