// Package decisions holds the record of a request.
package decisions

import (
	"time"

	"tierway/routing"
)

// SchemaVersion is the version of Decision's JSON form. It grows when a field
// changes its meaning or goes, not when one is added.
const SchemaVersion = 1

// Result says how a request ended. Every request has exactly one.
type Result string

// The results.
const (
	OK         Result = "ok"          // answered whole, its end proven
	Refused    Result = "refused"     // answered with a 4xx, the gateway's or the engine's own
	Failed     Result = "failed"      // answered with a 5xx: the workers failed, or none could be asked
	Truncated  Result = "truncated"   // the answer broke off after its first content
	ClientGone Result = "client_gone" // the client left before the end
)

// Decision is everything that was decided about one request and how it went.
// The access log line and the ledger row are written from it. It holds
// features and names, never text of a prompt or answer.
type Decision struct {
	SchemaVersion  int             `json:"schema_version"`
	Time           time.Time       `json:"time"`
	RequestID      string          `json:"request_id"`
	Generation     int64           `json:"config_generation"` // of the one configuration that decided
	Tenant         string          `json:"tenant,omitempty"`
	Key            string          `json:"key,omitempty"`         // the id of the key that asked
	Class          string          `json:"class,omitempty"`       // interactive, background or batch
	AskedClass     string          `json:"asked_class,omitempty"` // the class that was asked for, where the caller may not have it
	Method         string          `json:"method"`
	Route          string          `json:"route"`              // the route's pattern, never the path that came
	TraceID        string          `json:"trace_id,omitempty"` // 32 hex digits; empty when no trace was exported
	Dialect        string          `json:"dialect,omitempty"`
	Stream         bool            `json:"stream,omitempty"`
	RequestedModel string          `json:"requested_model,omitempty"` // "other" when no pool serves it
	Model          string          `json:"model,omitempty"`           // the name that the worker was asked for
	Tier           string          `json:"tier,omitempty"`            // the tier or pool
	Rule           string          `json:"rule,omitempty"`            // why this tier: header, model, alias, default
	RuleNote       string          `json:"rule_note,omitempty"`       // what the rule passed over, such as an unknown X-Model-Tier
	Features       Features        `json:"features,omitzero"`         // what else the tier was decided by
	Policy         string          `json:"policy,omitempty"`
	Worker         string          `json:"worker,omitempty"` // the last one asked
	Reason         string          `json:"reason,omitempty"` // why this worker
	Attempts       []Attempt       `json:"attempts,omitempty"`
	Refused        *routing.Choice `json:"refused_choice,omitempty"` // the last pick of a request that got no worker, or no other one; nil where no policy was asked
	Promoted       bool            `json:"promoted,omitempty"`       // it waited past its class's age and went as the class above

	PromptTokens int64 `json:"prompt_tokens_estimate,omitempty"`
	MaxTokens    int64 `json:"max_tokens,omitempty"` // as the client asked; 0 when it did not
	Usage        Usage `json:"usage,omitzero"`
	Estimated    bool  `json:"estimated,omitempty"` // Usage is the gateway's own count: the engine reported none

	QueueMs    float64 `json:"queue_ms"`          // over all waits for a worker, of those who got none too
	TTFTMs     float64 `json:"ttft_ms,omitempty"` // to the first content event of a generated stream; 0 of a whole answer
	DurationMs float64 `json:"duration_ms"`
	OverheadMs float64 `json:"overhead_ms"` // the gateway's own time up to the first attempt

	Result Result `json:"outcome"`
	Status int    `json:"status"` // as sent to the client; 499 when it left before any
	Code   string `json:"code,omitempty"`
	Limit  string `json:"limit,omitempty"` // which limit refused, as rpm
	Shed   string `json:"shed,omitempty"`  // why the queue refused it, at once or after a wait, as depth; of the last attempt
	Cause  string `json:"cause,omitempty"` // the private cause of an error
}

// Usage is the tokens that the engine reported.
type Usage struct {
	Prompt int64 `json:"prompt"`
	Cached int64 `json:"cached"` // part of Prompt that came from the engine's cache
	Output int64 `json:"output"`
}

// Features is what a request was classified by, beside its model, its tokens and
// its caller. It is enough to classify the request again, as long as the keyword
// groups are the same; hashes stand for all text.
type Features struct {
	Header        string         `json:"header,omitempty"`           // the tier that X-Model-Tier named; "other" when it named none
	Classified    bool           `json:"classified,omitempty"`       // the content was looked at: else the name or the header decided
	Estimate      int64          `json:"estimated_tokens,omitempty"` // of the prompt, that the tier was decided by
	Counted       int64          `json:"counted_tokens,omitempty"`   // of the prompt, where it was counted; 0 when the estimate was enough
	UserTextBytes int            `json:"user_text_bytes,omitempty"`  // of the last user turn, as far as it is looked at
	Groups        []string       `json:"groups,omitempty"`           // the keyword groups that matched
	LimitRequired bool           `json:"limit_required,omitempty"`   // the endpoint requires a limit on the output, so MaxTokens shows no wish
	Tools         bool           `json:"tools,omitempty"`            // the request offers tools or functions
	Media         bool           `json:"media,omitempty"`            // images, audio or files are not in the estimate
	Session       routing.Hash   `json:"session,omitzero"`           // of tenant and session key; differs from process to process
	Model         routing.Hash   `json:"model,omitzero"`             // of the name that the worker was asked for, as Request.Model
	Prefix        routing.Hash   `json:"prefix,omitzero"`            // as Request.Prefix
	Chain         []routing.Link `json:"chain,omitempty"`            // the prompt's blocks; of a long one the first, and eight for each doubling after
	Blocks        int            `json:"blocks,omitempty"`           // that the whole chain has
}

// Attempt is one try on one worker. Times are milliseconds; those named AtMs
// count from the request's beginning.
type Attempt struct {
	Worker      string          `json:"worker"`
	Reason      string          `json:"reason"`
	AtMs        float64         `json:"at_ms"`                   // when it was given the worker
	QueueMs     float64         `json:"queue_ms,omitempty"`      // that it waited for that one, up to AtMs
	SelectionUs float64         `json:"selection_us,omitempty"`  // that choosing and booking took, in microseconds; 0 after a wait
	Status      int             `json:"status,omitempty"`        // the worker's; 0 when none came
	Error       string          `json:"error,omitempty"`         // why the worker is to blame, or who is
	ErrorType   string          `json:"error_type,omitempty"`    // one of the error types, or the worker's status in digits
	DurationMs  float64         `json:"duration_ms"`             // to the answer's header or the failure
	FirstAtMs   float64         `json:"first_at_ms,omitempty"`   // the first content; 0 without any
	EndAtMs     float64         `json:"end_at_ms,omitempty"`     // when the worker was done with, whole or not
	Predicted   int64           `json:"predicted_cached_tokens"` // of the prompt, that the worker was believed to have
	Usage       Usage           `json:"usage,omitzero"`          // as this worker reported
	Span        routing.Hash    `json:"span,omitzero"`           // its span in the trace; zero when no trace was exported
	Choice      *routing.Choice `json:"choice,omitempty"`        // nil of a worker that no policy chose
}

// The error types of attempts that failed without a status of the worker's.
const (
	ErrorGateway    = "gateway"     // the gateway could not send the request; says nothing about the worker
	ErrorConnect    = "connect"     // no connection
	ErrorTimeout    = "timeout"     // it stayed silent for too long
	ErrorCut        = "cut"         // it broke off
	ErrorProtocol   = "protocol"    // its answer was not understood
	ErrorClientGone = "client_gone" // nobody's fault
	ErrorShutdown   = "shutdown"    // the gateway's own end
)
