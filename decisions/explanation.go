package decisions

import (
	"fmt"
	"strings"
	"time"

	"tierway/routing"
	"tierway/tiers"
)

// Outcomes of an explanation.
const (
	WouldRoute  = "route"
	WouldQueue  = "queue"
	WouldReject = "reject"
	WasAnswered = "answer"
	WasLeft     = "abandoned"

	Undetermined = "unknown"
)

// Explanation is the decision about one request with its reasons. It holds features and names,
// never text of a prompt.
type Explanation struct {
	Outcome string   `json:"outcome" enum:"route,queue,reject,answer,abandoned,unknown" doc:"route: it would be sent at once; queue: it would wait for a worker; reject: it would be refused. Past requests without a worker also have answer (the gateway answered it) and abandoned (its client disconnected first). unknown: a draft lacks the tier of a past request, and its record does not determine another."`
	Summary string   `json:"summary" doc:"One sentence."`
	Tenant  string   `json:"tenant"`
	Key     string   `json:"key,omitempty" doc:"The key's id."`
	Class   string   `json:"class,omitempty"`
	Dialect string   `json:"dialect,omitempty"`
	Stream  bool     `json:"stream,omitempty"`
	Notes   []string `json:"notes,omitempty" doc:"Differences to a request from a client."`
	Hooks   []Hook   `json:"hooks,omitempty" doc:"Calls of hooks. Those of a past request are the recorded ones; for another request, hooks are called only if the order asks for it."`

	RequestedModel string                  `json:"requested_model,omitempty"`
	PromptTokens   int64                   `json:"prompt_tokens_estimate"`
	MaxTokens      int64                   `json:"max_tokens,omitempty"`
	UserTextBytes  int                     `json:"user_text_bytes" doc:"Inspected bytes of the last user turn."`
	Classified     *tiers.ClassifierReport `json:"classified,omitempty" doc:"Absent if the content was not classified."`
	Estimate       *TokenEstimate          `json:"estimate,omitempty" doc:"Absent if the request could not be parsed."`

	Tier  string `json:"tier,omitempty"`
	Rule  string `json:"rule,omitempty"`
	Note  string `json:"note,omitempty"`
	Model string `json:"model,omitempty" doc:"The model name sent to the worker."`

	Policy     string              `json:"policy,omitempty"`
	Blocks     int                 `json:"blocks" doc:"Number of blocks of the prompt's chain."`
	Worker     string              `json:"worker,omitempty" doc:"With outcome queue: the worker that it would wait for, if known."`
	Reason     string              `json:"reason,omitempty"`
	RunnerUp   string              `json:"runner_up,omitempty"`
	Candidates []routing.Candidate `json:"candidates,omitempty"`
	// the decision which worker computes the prompt
	Handover *routing.HandoverChoice `json:"handover,omitempty" doc:"Absent in a tier without handover."`

	Cache *Cache `json:"cache,omitempty" doc:"What the response cache would do; absent in a tier without one."`

	Status int    `json:"status,omitempty" doc:"HTTP status of the refusal; absent if the request would be sent."`
	Code   string `json:"code,omitempty" doc:"Error code of the refusal."`
	Limit  string `json:"limit,omitempty" doc:"The limit that refuses the request."`
	Shed   string `json:"shed,omitempty" doc:"Why the queue rejects the request."`
	Error  string `json:"error,omitempty" doc:"The refusal's body."`

	Steps      []Step    `json:"steps,omitempty" doc:"Result of each stage in order, up to the one that refuses the request."`
	Generation int64     `json:"config_generation"`
	SnapshotAt time.Time `json:"snapshot_at" doc:"Time of the loads and limits shown."`
}

// The stages of a request, in their order.
const (
	StageAuth    = "auth"
	StageRequest = "request"
	StageTier    = "tier"
	StageLimits  = "limits"
	StageQueue   = "queue"
	StageWorker  = "worker"
)

// Step is the result of one stage for a request.
type Step struct {
	Stage  string      `json:"stage" enum:"auth,request,tier,limits,queue,worker"`
	OK     bool        `json:"ok"`
	Detail string      `json:"detail"`
	Tier   *TierStep   `json:"tier,omitempty"`
	Limits []LimitUse  `json:"limits,omitempty"`
	Queue  *QueueStep  `json:"queue,omitempty"`
	Worker *WorkerStep `json:"worker,omitempty"`
}

// TokenEstimate is the estimated and counted length of a request.
type TokenEstimate struct {
	Raw     int64            `json:"raw_tokens" doc:"Estimate from characters alone."`
	Prompt  int64            `json:"prompt_tokens" doc:"Booked tokens: the estimate times the learned scale."`
	Method  string           `json:"method" enum:"estimated,counted" doc:"What decided the tier."`
	Counted int64            `json:"counted_tokens,omitempty" doc:"Counted with the vocabulary if the estimate was near a threshold."`
	Scale   routing.Estimate `json:"scale" doc:"Learned ratio of the engines' prompt tokens to estimated ones."`
	Output  int64            `json:"expected_output_tokens" doc:"At most max_tokens."`
}

// TierStep is the outcome of the tier stage.
type TierStep struct {
	Asked   string         `json:"asked" doc:"The requested model; \"other\" if no pool serves it."`
	Header  string         `json:"header,omitempty" doc:"The tier named by X-Model-Tier; \"other\" if it is unknown."`
	Signals []tiers.Signal `json:"signals,omitempty" doc:"The tier that each kind of evidence selects; absent if the content was not classified."`
	Moves   []tiers.Move   `json:"moves,omitempty" doc:"Tiers that a rule selected and could not use, and targets of the list that were passed over, in order."`
	List    []string       `json:"list,omitempty" doc:"The targets of the alias, or the tier or pool with its fallback, in the order of preference; absent without a fallback."`
	Targets []TierTarget   `json:"targets,omitempty" doc:"The tiers, and the selected pool and those of the list if they are not tiers."`
	Note    string         `json:"note,omitempty"`
}

// TierTarget is the state of one tier or pool for one request.
type TierTarget struct {
	Name    string `json:"name"`
	Allowed bool   `json:"allowed" doc:"The tenant may use it."`
	Served  bool   `json:"served" doc:"It accepts requests of this dialect."`
	Context int64  `json:"context,omitempty"`
	Fits    bool   `json:"fits" doc:"Prompt and answer fit its context, by the estimate."`
	Up      bool   `json:"up"`
}

// queueOf returns the result of the queue stage, or a zero value if the request did not reach it.
func queueOf(steps []Step) QueueStep {
	for _, st := range steps {
		if st.Queue != nil {
			return *st.Queue
		}
	}
	return QueueStep{}
}

// choiceOf returns the choice of the worker; nil without one.
func choiceOf(steps []Step) *routing.Choice {
	for _, st := range steps {
		if st.Worker != nil {
			return st.Worker.Choice
		}
	}
	return nil
}

// TierDetail returns the tier with the rule that selected it and the rule's note.
func (e *Explanation) TierDetail() string {
	text := e.Tier + " by " + e.Rule
	if e.Note != "" {
		text += " (" + e.Note + ")"
	}
	return text
}

// Sentence returns the outcome and its reason in one sentence.
func (e *Explanation) Sentence(steps []Step) string {
	last := steps[len(steps)-1]
	if e.Outcome == WouldReject {
		return strings.TrimSuffix("rejected at "+last.Stage+": "+last.Detail, ".")
	}
	text := fmt.Sprintf("%s by %s", e.Tier, e.Rule)
	switch {
	case e.Outcome == WouldQueue && e.Worker != "":
		text += fmt.Sprintf("; it would wait for %s (%s: %s)", e.Worker, policyOf(e.Policy, choiceOf(steps)), e.Reason)
	case e.Outcome == WouldQueue:
		text += "; it would wait: " + queueOf(steps).Why
	default:
		text += fmt.Sprintf("; %s (%s: %s)", e.Worker, policyOf(e.Policy, choiceOf(steps)), e.Reason)
	}
	if c := (&routing.Choice{Candidates: e.Candidates}); e.RunnerUp != "" {
		if first, second := c.CandidateOf(e.Worker), c.CandidateOf(e.RunnerUp); first != nil && second != nil {
			if own, next := Distinct(first.Score, second.Score, 4); own == next {
				text += fmt.Sprintf(", score %s, next %s with the same", own, e.RunnerUp)
			} else {
				text += fmt.Sprintf(", score %s, next %s with %s", own, e.RunnerUp, next)
			}
		}
	}
	if handover := HandoverText(e.Handover, e.Worker); handover != "" {
		text += "; " + handover
	}
	return text
}
