package proxy

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"tierway/decisions"
	"tierway/openai"
	"tierway/tenants"
)

// steps returns the steps of all stages, up to the stage that refused the request.
func (n *explainer) steps(e *decisions.Explanation) []decisions.Step {
	all := []decisions.Step{
		{Stage: decisions.StageAuth, Detail: n.callerText},
		{Stage: decisions.StageRequest, Detail: n.requestDetail(e)},
		{Stage: decisions.StageTier, Detail: e.TierDetail()},
		{Stage: decisions.StageLimits, Detail: n.limitsDetail(), Limits: limitUses(n.limits)},
		{Stage: decisions.StageQueue},
		{Stage: decisions.StageWorker},
	}
	if n.x.parsed.Req != nil {
		all[2].Tier = n.tierStep(e)
	}
	if n.queue != nil {
		all[4].Queue, all[4].Detail = n.queue, n.queue.Detail()
	}
	if n.preview != nil {
		w := &decisions.WorkerStep{Others: n.preview.Excluded, Prefill: n.preview.PrefillExcluded,
			Learned: new(n.x.resolution.Pool.Routing.Estimates())}
		if len(n.preview.Choice.Candidates) > 0 {
			w.Choice = &n.preview.Choice
		}
		all[5].Worker, all[5].Detail = w, w.Detail(e)
	}
	for i := range all {
		if all[i].OK = all[i].Stage != n.stage; !all[i].OK {
			all[i].Detail = cmp.Or(n.refusal.Message, causeOf(n.refusal))
			switch hook := decisions.HookEnd(e.Code, e.Hooks); {
			case n.refusal.Code == openai.CodeRejectedByHook:
				all[i].Detail = hook + ": " + all[i].Detail
			case hook != "": // the message is the same for each hook and cause
				all[i].Detail = hook
			}
			return all[:i+1]
		}
	}
	return all
}

// causeOf returns the text of an error's cause, or "" without a cause.
func causeOf(e *openai.Error) string {
	if e.Cause == nil {
		return ""
	}
	return e.Cause.Error()
}

func (n *explainer) requestDetail(e *decisions.Explanation) string {
	if n.x.parsed.Req == nil {
		return ""
	}
	bound := "no limit on the answer"
	if e.MaxTokens > 0 {
		bound = fmt.Sprintf("at most %d output tokens", e.MaxTokens)
	}
	return fmt.Sprintf("%s, about %d prompt tokens, %s", e.Dialect, e.PromptTokens, bound) + decisions.HooksDetail(e.Hooks)
}

func (n *explainer) tierStep(e *decisions.Explanation) *decisions.TierStep {
	x := n.x
	st := &decisions.TierStep{Asked: e.RequestedModel, Header: headerTier(&x.in, &x.resolution),
		Moves: x.resolution.Moves, Note: e.Note}
	if e.Classified != nil {
		st.Signals = e.Classified.Signals
	}
	st.List = x.in.Snap.Catalog.List(x.resolution.Resolution)
	st.Targets = x.s.intake.Targets(&x.in, &x.caller, &x.parsed, &x.resolution)
	return st
}

func (n *explainer) tokenEstimate() *decisions.TokenEstimate {
	x := n.x
	t := &decisions.TokenEstimate{
		Raw:     x.parsed.RawTokens,
		Prompt:  cmp.Or(x.facts.PromptTokens, x.parsed.Estimate),
		Method:  "estimated",
		Output:  x.facts.OutputTokens,
		Counted: x.resolution.Evidence.Counted,
	}
	if t.Counted > 0 {
		t.Method = "counted"
	}
	if p := x.resolution.Pool; p != nil {
		t.Scale = p.Routing.Estimates().PromptScale
	}
	return t
}

// milliseconds returns d in milliseconds, or nil if it is unknown.
func milliseconds(d time.Duration) *float64 {
	if d <= 0 {
		return nil
	}
	return new(ms(d))
}

func (n *explainer) limitsDetail() string {
	switch {
	case len(n.limits) == 0:
		return "no limits"
	case n.partial:
		return "as known to this gateway; Redis decides for all gateways"
	}
	var texts []string
	for _, scope := range [...]string{"tenant", "key"} {
		var own []string
		for _, u := range limitUses(n.limits) {
			if u.Scope == scope {
				own = append(own, u.String())
			}
		}
		if len(own) > 0 {
			texts = append(texts, scope+": "+strings.Join(own, ", "))
		}
	}
	return strings.Join(texts, "; ")
}

func limitUses(uses []tenants.Use) (all []decisions.LimitUse) {
	for _, u := range uses {
		shown := decisions.LimitUse{Scope: u.Scope, Limit: u.Limit, Used: u.Used, Room: u.Capacity, Rate: u.Rate,
			WouldUse: u.Cost}
		if shown.Money() {
			shown.Used, shown.Room = u.Used/float64(tenants.Unit), u.Capacity/float64(tenants.Unit)
		}
		all = append(all, shown)
	}
	return all
}
