package server

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"tierway/openai"
	"tierway/routing"
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

// steps returns what each stage said, up to the one that refused.
func (n *explainer) steps(e *Explanation) []Step {
	all := []Step{
		{Stage: stageAuth, Detail: n.who},
		{Stage: stageRequest, Detail: n.requestDetail(e)},
		{Stage: stageTier, Detail: e.tierDetail()},
		{Stage: stageLimits, Detail: n.limitsDetail(), Limits: limitUses(n.limits)},
		{Stage: stageQueue},
		{Stage: stageWorker},
	}
	if n.x.parsed.req != nil {
		all[2].Tier = n.tierStep(e)
	}
	if n.queue != nil {
		all[4].Queue, all[4].Detail = n.queue, n.queue.detail()
	}
	if n.outlook != nil {
		w := &WorkerStep{Others: n.outlook.Others, Learned: new(n.x.resolution.pool.routing.Estimates())}
		if len(n.outlook.Choice.Candidates) > 0 {
			w.Choice = &n.outlook.Choice
		}
		all[5].Worker, all[5].Detail = w, w.detail(e)
	}
	for i := range all {
		if all[i].OK = all[i].Stage != n.stage; !all[i].OK {
			all[i].Detail = cmp.Or(n.refusal.Message, causeOf(n.refusal))
			return all[:i+1]
		}
	}
	return all
}

// causeOf is an error's cause in words, if it has one.
func causeOf(e *openai.Error) string {
	if e.Cause == nil {
		return ""
	}
	return e.Cause.Error()
}

func (n *explainer) requestDetail(e *Explanation) string {
	if n.x.parsed.req == nil {
		return ""
	}
	most := "no bound on the answer"
	if e.MaxTokens > 0 {
		most = fmt.Sprintf("at most %d of answer", e.MaxTokens)
	}
	return fmt.Sprintf("%s, about %d prompt tokens, %s", e.Dialect, e.PromptTokens, most)
}

func (e *Explanation) tierDetail() string {
	text := e.Tier + " by " + e.Rule
	if e.Note != "" {
		text += " (" + e.Note + ")"
	}
	return text
}

// tierStep is how the tier was found.
func (n *explainer) tierStep(e *Explanation) *TierStep {
	x, r := n.x, &n.x.resolver
	st := &TierStep{Asked: e.RequestedModel, Header: x.headerTier(), Moves: x.resolution.moves, Note: e.Note}
	if e.Classified != nil {
		st.Signals = e.Classified.Signals
	}
	for _, p := range x.snap.pools {
		if p.Tier || p == x.resolution.pool {
			st.Targets = append(st.Targets, TierTarget{Name: p.Name, Allowed: r.mayUse(p.Name), Served: p.served[x.in.dialect],
				Context: p.Context, Fits: r.fits(p.Name), Up: r.available(p.Name)})
		}
	}
	return st
}

// tokenEstimate is how long the request is taken to be.
func (n *explainer) tokenEstimate() *TokenEstimate {
	x := n.x
	t := &TokenEstimate{Raw: x.parsed.rawTokens, Prompt: cmp.Or(x.facts.PromptTokens, x.parsed.estimate), Method: "estimated",
		Output: x.facts.OutputTokens, Counted: x.resolution.evidence.Counted}
	if t.Counted > 0 {
		t.Method = "counted"
	}
	if p := x.resolution.pool; p != nil {
		t.Scale = p.routing.Estimates().PromptScale
	}
	return t
}

// sentence says in one sentence what would become of the request, and why.
func (e *Explanation) sentence(steps []Step) string {
	last := steps[len(steps)-1]
	if e.Outcome == wouldReject {
		return strings.TrimSuffix("refused at "+last.Stage+": "+last.Detail, ".")
	}
	text := fmt.Sprintf("%s by %s", e.Tier, e.Rule)
	switch {
	case e.Outcome == wouldQueue && e.Worker != "":
		text += fmt.Sprintf("; it would wait for %s (%s: %s)", e.Worker, e.Policy, e.Reason)
	case e.Outcome == wouldQueue:
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

// queueOf is what the queue's step has found; nothing where it was not reached.
func queueOf(steps []Step) QueueStep {
	for _, st := range steps {
		if st.Queue != nil {
			return *st.Queue
		}
	}
	return QueueStep{}
}

// milliseconds is a time as steps show it.
func milliseconds(d time.Duration) *float64 {
	if d <= 0 {
		return nil
	}
	return new(ms(d))
}
