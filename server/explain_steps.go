package server

import (
	"fmt"
	"strings"
	"time"

	"tierway/routing"
	"tierway/store"
	"tierway/tenants"
	"tierway/tiers"
)

// The stages that a request passes, in their order.
const (
	stageAuth    = "auth"
	stageRequest = "request"
	stageTier    = "tier"
	stageLimits  = "limits"
	stageQueue   = "queue"
	stageWorker  = "worker"
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

// walk is what an explained request has met on its way.
type walk struct {
	who     string
	uses    []tenants.Use
	asked   bool // its limits were looked at
	partial bool // of several gateways the limits are known in part only
	moves   []tiers.Move
	queue   *QueueStep
	worker  *WorkerStep
	charged bool   // it passed the limits
	failed  string // the stage that refused it; empty: none
	why     string
}

// stage is where a request is, by what it has so far.
func (w *walk) stage(x *exchange) string {
	switch {
	case x.caller == nil:
		return stageAuth
	case x.req == nil:
		return stageRequest
	case w.worker != nil && w.queue != nil && w.queue.Would == queueShed:
		return stageQueue
	case w.charged:
		return stageWorker
	case x.admitted.IsZero():
		return stageTier
	}
	return stageLimits
}

// steps returns what each stage said, up to the one that refused.
func (e *Explanation) steps(x *exchange) []Step {
	w := &e.walk
	all := []Step{
		{Stage: stageAuth, Detail: w.who},
		{Stage: stageRequest, Detail: e.requestDetail(x)},
		{Stage: stageTier, Detail: e.tierDetail()},
		{Stage: stageLimits, Detail: e.limitsDetail()},
		{Stage: stageQueue},
		{Stage: stageWorker},
	}
	for i := range all {
		st := &all[i]
		st.OK = st.Stage != w.failed
		switch {
		case st.Stage == stageTier && x.req != nil:
			st.Tier = e.tierStep(x)
		case st.Stage == stageLimits:
			st.Limits = limitUses(w.uses)
		case st.Stage == stageQueue && w.queue != nil:
			st.Queue, st.Detail = w.queue, w.queue.detail()
		case st.Stage == stageWorker && w.worker != nil:
			st.Worker, st.Detail = w.worker, w.worker.detail(e)
		}
		if !st.OK {
			st.Detail = w.why
			return all[:i+1]
		}
	}
	return all
}

func (e *Explanation) requestDetail(x *exchange) string {
	if x.req == nil {
		return ""
	}
	max := "no bound on the answer"
	if x.d.MaxTokens > 0 {
		max = fmt.Sprintf("at most %d of answer", x.d.MaxTokens)
	}
	return fmt.Sprintf("%s, about %d prompt tokens, %s", x.d.Dialect, x.d.PromptTokens, max)
}

func (e *Explanation) tierDetail() string {
	text := e.Tier + " by " + e.Rule
	if e.Note != "" {
		text += " (" + e.Note + ")"
	}
	return text
}

// tierStep is how the tier was found.
func (e *Explanation) tierStep(x *exchange) *TierStep {
	st := &TierStep{Asked: x.d.RequestedModel, Header: x.d.Features.Header, Moves: e.walk.moves, Note: x.d.RuleNote}
	if e.Classified != nil {
		st.Signals = e.Classified.Signals
	}
	for _, p := range x.snap.pools {
		if p.Tier || p == x.pool {
			st.Targets = append(st.Targets, TierTarget{Name: p.Name, Allowed: x.mayUse(p.Name), Served: p.served[x.dialect],
				Context: p.Context, Fits: x.fits(p.Name), Up: x.available(p.Name)})
		}
	}
	return st
}

// tokenEstimate is how long the request is taken to be.
func (x *exchange) tokenEstimate() *TokenEstimate {
	t := &TokenEstimate{Raw: x.rawTokens, Prompt: x.d.PromptTokens, Method: "estimated", Output: x.facts.OutputTokens}
	if t.Counted = x.d.Features.Counted; t.Counted > 0 {
		t.Method = "counted"
	}
	if p := x.pool; p != nil {
		t.Scale = p.routing.Estimates().PromptScale
	}
	return t
}

// peek looks at the limits.
func (e *Explanation) peek(l *store.Limits, c *tenants.Charge) (tenants.Verdict, error) {
	v, uses, partial, err := l.Peek(c)
	e.walk.uses, e.walk.partial, e.walk.asked = uses, partial, true
	return v, err
}

// sentence says in one sentence what would become of the request, and why.
func (e *Explanation) sentence() string {
	if e.Outcome == wouldReject {
		return strings.TrimSuffix("refused at "+e.walk.failed+": "+e.walk.why, ".")
	}
	text := fmt.Sprintf("%s by %s", e.Tier, e.Rule)
	switch {
	case e.Outcome == wouldQueue && e.Worker != "":
		text += fmt.Sprintf("; it would wait for %s (%s: %s)", e.Worker, e.Policy, e.Reason)
	case e.Outcome == wouldQueue:
		text += "; it would wait: " + e.walk.queue.Why
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

// milliseconds is a time as steps show it.
func milliseconds(d time.Duration) *float64 {
	if d <= 0 {
		return nil
	}
	return new(ms(d))
}
