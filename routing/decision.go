package routing

import "time"

// SchemaVersion is the version of Decision's JSON form. It grows when a field
// changes its meaning or goes, not when one is added.
const SchemaVersion = 1

// Outcome says how a request ended. Every request has exactly one.
type Outcome string

// The outcomes.
const (
	OK         Outcome = "ok"          // answered whole, its end proven
	Refused    Outcome = "refused"     // answered with a 4xx, the gateway's or the engine's own
	Failed     Outcome = "failed"      // answered with a 5xx: the workers failed, or none could be asked
	Truncated  Outcome = "truncated"   // the answer broke off after its first content
	ClientGone Outcome = "client_gone" // the client left before the end
)

// Decision is everything that was decided about one request and how it went.
// The access log line and the explaining headers are written from it. It holds
// features and names, never text of a prompt or answer.
type Decision struct {
	SchemaVersion  int       `json:"schema_version"`
	Time           time.Time `json:"time"`
	RequestID      string    `json:"request_id"`
	Generation     int64     `json:"config_generation"` // of the one configuration that decided
	Tenant         string    `json:"tenant,omitempty"`
	Key            string    `json:"key,omitempty"`         // the id of the key that asked
	Class          string    `json:"class,omitempty"`       // interactive, background or batch
	AskedClass     string    `json:"asked_class,omitempty"` // the class that was asked for, where the caller may not have it
	Method         string    `json:"method"`
	Route          string    `json:"route"` // the route's pattern, never the path that came
	Dialect        string    `json:"dialect,omitempty"`
	Stream         bool      `json:"stream,omitempty"`
	RequestedModel string    `json:"requested_model,omitempty"` // "other" when no pool serves it
	Model          string    `json:"model,omitempty"`           // the name that the worker was asked for
	Tier           string    `json:"tier,omitempty"`            // the tier or pool
	Rule           string    `json:"rule,omitempty"`            // why this tier: header, model, alias, default
	RuleNote       string    `json:"rule_note,omitempty"`       // what the rule passed over, such as an unknown X-Model-Tier
	Policy         string    `json:"policy,omitempty"`
	Worker         string    `json:"worker,omitempty"` // the last one asked
	Reason         string    `json:"reason,omitempty"` // why this worker
	Attempts       []Attempt `json:"attempts,omitempty"`
	Promoted       bool      `json:"promoted,omitempty"` // it waited past its class's age and went as the class above

	PromptTokens int64 `json:"prompt_tokens_estimate,omitempty"`
	MaxTokens    int64 `json:"max_tokens,omitempty"` // as the client asked; 0 when it did not
	Usage        Usage `json:"usage,omitzero"`
	Estimated    bool  `json:"estimated,omitempty"` // Usage is the gateway's own count: the engine reported none

	QueueMs    float64 `json:"queue_ms"`          // over all waits for a worker, of those who got none too
	TTFTMs     float64 `json:"ttft_ms,omitempty"` // to the first content event, or the header of a whole answer
	DurationMs float64 `json:"duration_ms"`
	OverheadMs float64 `json:"overhead_ms"` // the gateway's own time up to the first attempt

	Outcome Outcome `json:"outcome"`
	Status  int     `json:"status"` // as sent to the client; 499 when it left before any
	Code    string  `json:"code,omitempty"`
	Limit   string  `json:"limit,omitempty"` // which limit refused, as rpm
	Shed    string  `json:"shed,omitempty"`  // why the queue refused it, at once or after a wait, as depth; of the last attempt
	Cause   string  `json:"cause,omitempty"` // the private cause of an error
}

// Usage is the tokens that the engine reported.
type Usage struct {
	Prompt int64 `json:"prompt"`
	Cached int64 `json:"cached"` // part of Prompt that came from the engine's cache
	Output int64 `json:"output"`
}

// Attempt is one try on one worker.
type Attempt struct {
	Worker     string      `json:"worker"`
	Reason     string      `json:"reason"`
	Candidates []Candidate `json:"candidates,omitempty"`
	Status     int         `json:"status,omitempty"` // the worker's; 0 when none came
	Error      string      `json:"error,omitempty"`
	DurationMs float64     `json:"duration_ms"` // to the answer's header or the failure
}

// Candidate is one worker that could have been chosen, with the load that the
// policy compared.
type Candidate struct {
	Worker string  `json:"worker"`
	Score  float64 `json:"score"` // lower is better
}
