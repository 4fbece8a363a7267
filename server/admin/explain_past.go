package admin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"tierway/decisions"
	"tierway/openai"
	"tierway/replay"
	"tierway/routing"
	"tierway/server/control"
	"tierway/tenants"
)

// explainPast explains a past request from its record, by the configuration in force, live, or by the
// draft under if that is not nil. The tier is the recorded one, unless the draft lacks it. Each worker
// selection is repeated over the workers as they were recorded.
func (a *routeAPI) explainPast(live *control.Snapshot, d *decisions.Decision,
	under *control.Snapshot) *decisions.Explanation {
	e := &decisions.Explanation{
		Outcome:        decisions.WouldRoute,
		Tenant:         d.Tenant,
		Key:            d.Key,
		Class:          d.Class,
		Dialect:        d.Dialect,
		Stream:         d.Stream,
		RequestedModel: d.RequestedModel,
		PromptTokens:   d.PromptTokens,
		MaxTokens:      d.MaxTokens,
		UserTextBytes:  d.Features.UserTextBytes,
		Tier:           d.Tier,
		Rule:           d.Rule,
		Note:           d.RuleNote,
		Model:          d.Model,
		Policy:         d.Policy,
		Blocks:         d.Features.Blocks,
		Worker:         d.Worker,
		Reason:         d.Reason,
		Generation:     d.Generation,
		SnapshotAt:     d.Time.UTC(),
		Limit:          d.Limit,
		Shed:           d.Shed,
		Hooks:          d.Hooks,
	}
	why := ""
	if len(d.Attempts) == 0 {
		why = setEndWithoutAttempt(e, d)
	}
	snap := live
	if under != nil {
		snap = under
	}
	moved := under != nil && under.ByName[d.Tier] == nil && d.Tier != ""
	if under != nil && !moved {
		e.Notes = append(e.Notes, "the tier is the recorded one; a replay repeats the tier decision too")
	}
	if snap.Generation != d.Generation {
		e.Notes = append(e.Notes,
			fmt.Sprintf("the request was decided by generation %d of the configuration; the explanation uses generation %d",
				d.Generation, snap.Generation))
	}
	if d.Features.Score != nil {
		e.Notes = append(e.Notes, d.Features.Score.String())
	}
	if d.Features.ModelScore != nil {
		e.Notes = append(e.Notes, d.Features.ModelScore.String())
	}
	e.Steps = pastSteps(e, d, why)
	if under != nil || live.Generation == d.Generation {
		addQueueBounds(e.Steps, snap.ByName[d.Tier], d.Class)
	}
	if moved {
		c, notes := a.tierUnder(live, under, d)
		c.applyTo(e, d)
		e.Notes = append(e.Notes, notes...)
		return e
	}
	decide := func(try *decisions.Attempt) (*decisions.RedecidedPick, replay.Placement, error) {
		tier := cmp.Or(try.Tier, d.Tier)
		was, to := a.setupPool(live, tier), a.setupPool(snap, tier)
		if under == nil || to == nil {
			to = withRecordedPolicy(e, tier, try, to)
			was = to
		}
		as, unknown, err := replay.Redecide(was, to, d, try)
		if err != nil && !errors.Is(err, replay.ErrNoWorker) {
			err = fmt.Errorf("the selection cannot be repeated: %w", err)
		}
		if unknown.Bounds > 0 {
			e.Notes = append(e.Notes,
				"the record lacks some of the loads that the draft's bounds and saturation need: decided by the recorded loads")
		}
		again := &decisions.RedecidedPick{Worker: as.Worker, Reason: string(as.Reason),
			Agrees: decisions.Names(try.Worker, as.Worker)}
		if as.Unknown {
			e.Notes = append(e.Notes, "the record lacks the prefill workers that the decision about the hand-over needs: "+
				"it is the recorded one")
		}
		return again, as, err
	}
	for i := range d.Attempts {
		if e.Outcome == decisions.WouldRoute {
			e.Steps = append(e.Steps, pastAttempt(e, &d.Attempts[i], decide))
		}
	}
	if e.Summary == "" {
		e.Summary = pastSummary(e)
	}
	return e
}

// setupPool returns the tier or pool of that name as a replay uses it, or nil if the configuration
// does not have it.
func (a *routeAPI) setupPool(snap *control.Snapshot, name string) *replay.Pool {
	p := snap.ByName[name]
	if p == nil {
		return nil
	}
	return new(control.SetupPool(p.Pool, a.control.Pools.Gateways(snap.File)))
}

// setEndWithoutAttempt sets the outcome of a request that reached no worker, and returns its reason.
func setEndWithoutAttempt(e *decisions.Explanation, d *decisions.Decision) (why string) {
	if c := d.Refused; c != nil { // the workers that it would have waited for
		e.Candidates, e.RunnerUp = c.Candidates, c.RunnerUp
	}
	switch d.Result {
	case decisions.OK:
		e.Outcome, why = decisions.WasAnswered, "answered by the gateway itself"
	case decisions.ClientGone:
		e.Outcome, why = decisions.WasLeft, "the client left"
		if d.QueueMs > 0 {
			why = fmt.Sprintf("the client left after %.0f ms in the queue", d.QueueMs)
		}
	default:
		e.Outcome, e.Status, e.Code = decisions.WouldReject, d.Status, d.Code
		why = cmp.Or(decisions.HookEnd(d.Code, d.Hooks), d.Code, d.Shed, d.Limit, fmt.Sprintf("answered %d", d.Status))
	}
	return why
}

// pastSteps returns the recorded steps before the workers. If the request reached no worker, the
// last one is the step at which it ended, with why as its detail.
func pastSteps(e *decisions.Explanation, d *decisions.Decision, why string) []decisions.Step {
	q := &decisions.QueueStep{Class: d.Class, Asked: d.AskedClass, Would: decisions.QueuePasses}
	if d.QueueMs > 0 {
		q.Would, q.Estimated = decisions.QueueHolds, new(d.QueueMs)
	}
	if d.Shed != "" {
		q.Would, q.Shed = decisions.QueueShed, d.Shed
	}
	all := []decisions.Step{
		{Stage: decisions.StageAuth, OK: d.Tenant != "", Detail: "tenant " + d.Tenant},
		{Stage: decisions.StageRequest, OK: d.Class != "" && !d.EndedAtHooks(),
			Detail: fmt.Sprintf("%s, about %d prompt tokens", d.Dialect, d.PromptTokens) + decisions.HooksDetail(d.Hooks)},
		{Stage: decisions.StageTier, OK: d.Tier != "", Detail: e.TierDetail(),
			Tier: &decisions.TierStep{Asked: d.RequestedModel, Header: d.Features.Header, Note: d.RuleNote,
				Moves: d.Passed}},
		{Stage: decisions.StageLimits, OK: d.Limit == "", Detail: "passed"},
		{Stage: decisions.StageQueue, OK: d.Shed == "" || len(d.Attempts) > 0,
			Detail: fmt.Sprintf("class %s, waited %.0f ms", d.Class, d.QueueMs), Queue: q},
	}
	for i := range all {
		st := &all[i]
		if i+1 == len(all) && len(d.Attempts) == 0 {
			st.OK = false // no worker was tried
		}
		if !st.OK {
			st.OK, st.Detail = e.Outcome != decisions.WouldReject, why
			return all[:i+1]
		}
	}
	return all
}

// addQueueBounds sets the bounds of the queue step, if there is one, to those of the pool, which may
// be nil, for the class.
func addQueueBounds(steps []decisions.Step, p *control.Pool, class string) {
	i := slices.IndexFunc(steps, func(st decisions.Step) bool { return st.Queue != nil })
	c := slices.Index(tenants.Classes(), class)
	if i >= 0 && c >= 0 && p != nil {
		q := steps[i].Queue
		q.MaxDepth, q.MaxWait = new(p.Queue.MaxDepth), new(millis(p.Queue.MaxWait[c]))
	}
}

// pastAttempt returns the worker step of one recorded attempt, and sets its worker in e. decide repeats
// the selection.
func pastAttempt(e *decisions.Explanation, a *decisions.Attempt,
	decide func(*decisions.Attempt) (*decisions.RedecidedPick, replay.Placement, error)) decisions.Step {
	st := decisions.Step{Stage: decisions.StageWorker, OK: true,
		Worker: &decisions.WorkerStep{Used: a.Worker, Choice: a.Choice, Handover: a.Handover}}
	if a.Handover != nil {
		st.Worker.Took = a.Handover.Text(a)
	}
	e.Worker, e.Reason, e.RunnerUp, e.Candidates, e.Handover = a.Worker, a.Reason, "", nil, nil
	if a.Choice == nil {
		st.Detail = a.Worker + ": the only possible worker, or its selection was not recorded"
		return st
	}
	again, as, err := decide(a)
	if err != nil {
		e.Handover = a.Choice.Handover
		st.Detail = fmt.Sprintf("%s: %s; %v", a.Worker, a.Reason, err)
		if errors.Is(err, replay.ErrNoWorker) {
			st.OK, e.Summary = false, "was rejected at worker: "+err.Error()
			e.Worker, e.Reason, e.Handover = "", "", nil
			e.Outcome, e.Code = decisions.WouldReject, string(openai.CodeNoHealthyWorker)
		}
		return st
	}
	decided := new(*as.Choice)
	decided.Handover = as.Handover
	e.Worker, e.Reason, e.Policy, e.RunnerUp, e.Candidates, e.Handover = again.Worker, again.Reason, decided.Policy,
		decided.RunnerUp, decided.Candidates, as.Handover
	st.Worker.Redecided, st.Worker.Choice = again, decided
	st.Detail = fmt.Sprintf("%s: %s, candidates: %d", again.Worker, again.Reason, len(decided.Candidates))
	if !again.Agrees {
		st.Detail += "; the request used " + a.Worker + ": " + a.Reason
	}
	if text := decisions.HandoverText(as.Handover, again.Worker); text != "" {
		st.Detail += "; " + text
	}
	return st
}

// withRecordedPolicy returns p, the tier or pool of the configuration in force, with the policy of the
// record. p is nil if the configuration lacks it.
func withRecordedPolicy(e *decisions.Explanation, tier string, a *decisions.Attempt,
	p *replay.Pool) *replay.Pool {
	by := a.Choice.Policy
	switch {
	case p == nil:
		e.Notes = append(e.Notes,
			fmt.Sprintf("the configuration in force has no tier or pool %s: decided by the default settings of the policy %s",
				tier, by))
		return &replay.Pool{Name: tier, Policy: routing.Config{Name: by}}
	case !p.Chooses(a.Choice):
		e.Notes = append(e.Notes,
			fmt.Sprintf("%s now has the policy %s: decided by the default settings of the recorded policy %s", tier,
				p.Policy.Name, by))
		p = new(*p)
		p.Policy, p.Rules = routing.Config{Name: by}, nil
	}
	return p
}

// pastSummary returns the summary of a past request: its outcome and the reason.
func pastSummary(e *decisions.Explanation) string {
	last := e.Steps[len(e.Steps)-1]
	switch e.Outcome {
	case decisions.WouldReject:
		return fmt.Sprintf("was rejected at %s: %s", last.Stage, last.Detail)
	case decisions.WouldRoute:
		return e.Sentence(e.Steps)
	}
	return last.Detail
}
