package decisions

import (
	"fmt"
	"strings"
	"time"

	"tierway/routing"
	"tierway/tiers"
)

// The outcomes of an explanation.
const (
	WouldRoute  = "route"
	WouldQueue  = "queue"
	WouldReject = "reject"
	WasAnswered = "answer"
	WasLeft     = "left"
)

// Explanation is what is decided about one request, and why. It holds features
// and names, never text of a prompt.
type Explanation struct {
	Outcome string   `json:"outcome" enum:"route,queue,reject,answer,left" doc:"It would be sent at once, wait for a worker, or be refused; of a past one that no worker was asked for also: the gateway answered it itself, or its client left before."`
	Summary string   `json:"summary" doc:"One sentence."`
	Tenant  string   `json:"tenant"`
	Key     string   `json:"key,omitempty" doc:"The key's id."`
	Class   string   `json:"class,omitempty"`
	Dialect string   `json:"dialect,omitempty"`
	Stream  bool     `json:"stream,omitempty"`
	Notes   []string `json:"notes,omitempty" doc:"What differs from a request that a client sends."`

	RequestedModel string             `json:"requested_model,omitempty"`
	PromptTokens   int64              `json:"prompt_tokens_estimate"`
	MaxTokens      int64              `json:"max_tokens,omitempty"`
	UserTextBytes  int                `json:"user_text_bytes" doc:"Of the last user turn, as far as it is looked at."`
	Classified     *tiers.Explanation `json:"classified,omitempty" doc:"Absent where no content was looked at."`
	Estimate       *TokenEstimate     `json:"estimate,omitempty" doc:"Absent where the request could not be read."`

	Tier  string `json:"tier,omitempty"`
	Rule  string `json:"rule,omitempty"`
	Note  string `json:"note,omitempty"`
	Model string `json:"model,omitempty" doc:"The name that the worker is asked for."`

	Policy     string              `json:"policy,omitempty"`
	Blocks     int                 `json:"blocks" doc:"Of the prompt's chain."`
	Worker     string              `json:"worker,omitempty" doc:"With the outcome queue: the one that it would wait for, if there is one."`
	Reason     string              `json:"reason,omitempty"`
	RunnerUp   string              `json:"runner_up,omitempty"`
	Candidates []routing.Candidate `json:"candidates,omitempty"`

	Status int    `json:"status,omitempty" doc:"Of the refusal; absent when the request would be sent."`
	Code   string `json:"code,omitempty" doc:"Of the refusal."`
	Limit  string `json:"limit,omitempty" doc:"Which limit refuses."`
	Shed   string `json:"shed,omitempty" doc:"Why the queue refuses."`
	Error  string `json:"error,omitempty" doc:"The refusal's body."`

	Steps      []Step    `json:"steps,omitempty" doc:"What each stage says, in the order in which a request passes them, up to the one that refuses."`
	Generation int64     `json:"config_generation"`
	SnapshotAt time.Time `json:"snapshot_at" doc:"When loads and limits were as they are told."`
}

// The stages that a request passes, in their order.
const (
	StageAuth    = "auth"
	StageRequest = "request"
	StageTier    = "tier"
	StageLimits  = "limits"
	StageQueue   = "queue"
	StageWorker  = "worker"
)

// Step is what one stage says of a request.
type Step struct {
	Stage  string      `json:"stage" enum:"auth,request,tier,limits,queue,worker"`
	OK     bool        `json:"ok"`
	Detail string      `json:"detail"`
	Tier   *TierStep   `json:"tier,omitempty"`
	Limits []LimitUse  `json:"limits,omitempty"`
	Queue  *QueueStep  `json:"queue,omitempty"`
	Worker *WorkerStep `json:"worker,omitempty"`
}

// TokenEstimate is how long a request is taken to be.
type TokenEstimate struct {
	Raw     int64            `json:"raw_tokens" doc:"By its characters alone."`
	Prompt  int64            `json:"prompt_tokens" doc:"As it is booked: by characters and the learned scale."`
	Method  string           `json:"method" enum:"estimated,counted" doc:"By which the tier was decided."`
	Counted int64            `json:"counted_tokens,omitempty" doc:"By the vocabulary, where the estimate was too near a threshold."`
	Scale   routing.Estimate `json:"scale" doc:"The engines' count of prompt tokens for each estimated one, learned of the pool."`
	Output  int64            `json:"expected_output_tokens" doc:"At most max_tokens."`
}

// TierStep is how the tier was found.
type TierStep struct {
	Asked   string         `json:"asked" doc:"The model's name as the client wrote it; \"other\" for one that no pool serves."`
	Header  string         `json:"header,omitempty" doc:"X-Model-Tier: the tier that it names; \"other\" when it names none."`
	Signals []tiers.Signal `json:"signals,omitempty" doc:"What each kind of evidence asks for; none where no content was looked at."`
	Moves   []tiers.Move   `json:"moves,omitempty" doc:"Tiers that a rule asked for and did not get, in order."`
	Targets []TierTarget   `json:"targets,omitempty" doc:"The tiers, and the pool where it goes to one."`
	Note    string         `json:"note,omitempty"`
}

// TierTarget is what is known of one tier or pool for one request.
type TierTarget struct {
	Name    string `json:"name"`
	Allowed bool   `json:"allowed" doc:"Its tenant may use it."`
	Served  bool   `json:"served" doc:"It takes requests of this dialect."`
	Context int64  `json:"context,omitempty"`
	Fits    bool   `json:"fits" doc:"Its context holds the prompt and the answer, by the estimate."`
	Up      bool   `json:"up"`
}

// queueOf is what the queue's step has found; nothing where it was not reached.
func queueOf(steps []Step) QueueStep {
	for _, st := range steps {
		if st.Queue != nil {
			return *st.Queue
		}
	}
	return QueueStep{}
}

// TierDetail returns the tier with the rule that selected it and the rule's note.
func (e *Explanation) TierDetail() string {
	text := e.Tier + " by " + e.Rule
	if e.Note != "" {
		text += " (" + e.Note + ")"
	}
	return text
}

// Sentence says in one sentence what would become of the request, and why.
func (e *Explanation) Sentence(steps []Step) string {
	last := steps[len(steps)-1]
	if e.Outcome == WouldReject {
		return strings.TrimSuffix("refused at "+last.Stage+": "+last.Detail, ".")
	}
	text := fmt.Sprintf("%s by %s", e.Tier, e.Rule)
	switch {
	case e.Outcome == WouldQueue && e.Worker != "":
		text += fmt.Sprintf("; it would wait for %s (%s: %s)", e.Worker, e.Policy, e.Reason)
	case e.Outcome == WouldQueue:
		text += "; it would wait: " + queueOf(steps).Why
	default:
		text += fmt.Sprintf("; %s (%s: %s)", e.Worker, e.Policy, e.Reason)
	}
	if c := (&routing.Choice{Candidates: e.Candidates}); e.RunnerUp != "" {
		if first, second := c.Of(e.Worker), c.Of(e.RunnerUp); first != nil && second != nil {
			text += fmt.Sprintf(", score %.4g, next %s with %.4g", first.Score, e.RunnerUp, second.Score)
		}
	}
	return text
}
