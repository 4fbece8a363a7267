package server

import (
	"fmt"
	"time"

	"tierway/routing"
)

// Again is a recorded pick that was decided again.
type Again struct {
	Worker string `json:"worker" doc:"Whom the policy chooses of the candidates as they were."`
	Reason string `json:"reason"`
	Agrees bool   `json:"agrees" doc:"It is the worker that was used."`
}

// explainPast explains a request that has ended from its record: the tier as it was
// found, and each pick decided again by the policy in force, or a draft's, of the
// workers as they were then.
func (s *Server) explainPast(d *routing.Decision, under *draft) *Explanation {
	e := &Explanation{Outcome: wouldRoute, Tenant: d.Tenant, Key: d.Key, Class: d.Class, Dialect: d.Dialect, Stream: d.Stream,
		RequestedModel: d.RequestedModel, PromptTokens: d.PromptTokens, MaxTokens: d.MaxTokens, UserTextBytes: d.Features.UserTextBytes,
		Tier: d.Tier, Rule: d.Rule, Note: d.RuleNote, Model: d.Model, Policy: d.Policy, Blocks: d.Features.Blocks,
		Worker: d.Worker, Reason: d.Reason, Generation: d.Generation, SnapshotAt: d.Time.UTC(), Limit: d.Limit, Shed: d.Shed, draft: under}
	if len(d.Attempts) == 0 {
		e.Outcome, e.Status, e.Code = wouldReject, d.Status, d.Code
	}
	snap := s.snapshot.Load()
	if under != nil {
		snap = under.snap
		e.Notes = append(e.Notes, "the tier is the one that the request had; a replay decides it again too")
	}
	if snap.generation != d.Generation {
		e.Notes = append(e.Notes, fmt.Sprintf("generation %d of the configuration decided; %d is in force", d.Generation, snap.generation))
	}
	e.Steps = e.pastSteps(d)
	for i := range d.Attempts {
		if e.Outcome == wouldRoute {
			e.Steps = append(e.Steps, e.pastAttempt(d, &d.Attempts[i], snap.byName[d.Tier]))
		}
	}
	e.Summary = e.pastSentence()
	return e
}

// pastSteps are the steps up to the workers, as they were recorded.
func (e *Explanation) pastSteps(d *routing.Decision) []Step {
	q := &QueueStep{Class: d.Class, Asked: d.AskedClass, Would: queuePasses}
	if d.QueueMs > 0 {
		q.Would, q.Estimated = queueHolds, new(d.QueueMs)
	}
	if d.Shed != "" {
		q.Would, q.Shed = queueShed, d.Shed
	}
	all := []Step{
		{Stage: stageAuth, OK: d.Tenant != "", Detail: "tenant " + d.Tenant},
		{Stage: stageRequest, OK: d.Class != "", Detail: fmt.Sprintf("%s, about %d prompt tokens", d.Dialect, d.PromptTokens)},
		{Stage: stageTier, OK: d.Tier != "", Detail: e.tierDetail(),
			Tier: &TierStep{Asked: d.RequestedModel, Header: d.Features.Header, Note: d.RuleNote}},
		{Stage: stageLimits, OK: d.Limit == "", Detail: "passed"},
		{Stage: stageQueue, OK: d.Shed == "" || len(d.Attempts) > 0, Detail: fmt.Sprintf("class %s, waited %.0f ms", d.Class, d.QueueMs), Queue: q},
	}
	for i := range all {
		st := &all[i]
		if i+1 == len(all) && len(d.Attempts) == 0 {
			st.OK = false // nobody was asked
		}
		if !st.OK {
			st.Detail = d.Code
			e.walk.failed, e.walk.why = st.Stage, d.Code
			return all[:i+1]
		}
	}
	return all
}

// pastAttempt decides one pick again, p being the tier or pool as it is configured
// now; nil when there is none of that name.
func (e *Explanation) pastAttempt(d *routing.Decision, a *routing.Attempt, p *pool) Step {
	st := Step{Stage: stageWorker, OK: true, Worker: &WorkerStep{Used: a.Worker, Choice: a.Choice}}
	e.Worker, e.Reason, e.RunnerUp, e.Candidates = a.Worker, a.Reason, "", nil
	if a.Choice == nil {
		st.Detail = a.Worker + ": the only one that could be asked, or no pick was recorded"
		return st
	}
	again, decided, err := e.again(d, a, p)
	if err != nil {
		st.Detail = fmt.Sprintf("%s: %s; %v", a.Worker, a.Reason, err)
		return st
	}
	e.Worker, e.Reason, e.Policy, e.RunnerUp, e.Candidates = again.Worker, again.Reason, decided.Policy, decided.RunnerUp, decided.Candidates
	st.Worker.Again, st.Worker.Choice = again, decided
	st.Detail = fmt.Sprintf("%s: %s, of %d candidates", again.Worker, again.Reason, len(decided.Candidates))
	if !again.Agrees {
		st.Detail += "; used was " + a.Worker + ": " + a.Reason
	}
	return st
}

// again decides a recorded pick again.
func (e *Explanation) again(d *routing.Decision, a *routing.Attempt, p *pool) (*Again, *routing.Choice, error) {
	c, chosen := a.Choice, routing.Config{Name: a.Choice.Policy}
	switch {
	case p == nil:
		e.Notes = append(e.Notes, fmt.Sprintf("there is no tier or pool %s any more: decided by %s as it is by default", d.Tier, c.Policy))
	case p.Policy.Name != c.Policy && e.draft == nil:
		e.Notes = append(e.Notes, fmt.Sprintf("%s has the policy %s now: decided by %s as it is by default", d.Tier, p.Policy.Name, c.Policy))
	default:
		chosen = p.Policy
	}
	if e.draft != nil && p != nil {
		c = redrafted(c, draftMembers(p.Pool, 1), e.draft.known)
	}
	policy, err := routing.New(chosen)
	if err != nil {
		return nil, nil, fmt.Errorf("the pick cannot be decided again: %w", err)
	}
	at := d.Time.Add(time.Duration(a.AtMs * float64(time.Millisecond)))
	i, reason, decided, err := routing.Again(policy, c, d.Features.Model, d.Features.Prefix, d.Features.Chain, at)
	if err != nil {
		return nil, nil, fmt.Errorf("the pick cannot be decided again: %w", err)
	}
	return &Again{Worker: c.Candidates[i].Worker, Reason: string(reason), Agrees: c.Candidates[i].Worker == a.Worker}, decided, nil
}

// redrafted is a recorded pick among other members: with their weights, without
// those that are none of them or have no weight, and with those idle that are not
// known yet.
func redrafted(c *routing.Choice, members []routing.Member, known map[string]bool) *routing.Choice {
	is := *c
	is.Candidates = nil
	rate := 0.0
	for i := range c.Candidates {
		rate += c.Candidates[i].Rate / float64(len(c.Candidates))
	}
	for at, m := range members {
		if m.Weight <= 0 {
			continue
		}
		next := routing.Candidate{Worker: m.ID, MaxInflight: m.MaxInflight, Rate: rate}
		if was := c.Of(m.ID); was != nil {
			next = *was
		} else if known[m.ID] {
			continue // it was there, and could not be chosen then
		}
		next.Index, next.Weight = at, m.Weight
		is.Candidates = append(is.Candidates, next)
	}
	is.Seen = c.Seen - len(c.Candidates) + len(is.Candidates)
	return &is
}

// pastSentence says in one sentence what became of the request.
func (e *Explanation) pastSentence() string {
	if e.Outcome == wouldReject {
		return fmt.Sprintf("was refused at %s: %s", e.walk.failed, e.walk.why)
	}
	return e.sentence()
}
