package server

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"tierway/decisions"
	"tierway/openai"
	"tierway/replay"
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
func (s *Server) explainPast(d *decisions.Decision, under *snapshot) *Explanation {
	e := &Explanation{Outcome: wouldRoute, Tenant: d.Tenant, Key: d.Key, Class: d.Class, Dialect: d.Dialect, Stream: d.Stream,
		RequestedModel: d.RequestedModel, PromptTokens: d.PromptTokens, MaxTokens: d.MaxTokens, UserTextBytes: d.Features.UserTextBytes,
		Tier: d.Tier, Rule: d.Rule, Note: d.RuleNote, Model: d.Model, Policy: d.Policy, Blocks: d.Features.Blocks,
		Worker: d.Worker, Reason: d.Reason, Generation: d.Generation, SnapshotAt: d.Time.UTC(), Limit: d.Limit, Shed: d.Shed}
	why := ""
	if len(d.Attempts) == 0 {
		why = e.unsent(d)
	}
	snap := s.snapshot.Load()
	if under != nil {
		snap = under
		e.Notes = append(e.Notes, "the tier is the one that the request had; a replay decides it again too")
	}
	if snap.generation != d.Generation {
		e.Notes = append(e.Notes, fmt.Sprintf("generation %d of the configuration decided; %d is in force", d.Generation, snap.generation))
	}
	e.Steps = e.pastSteps(d, why)
	p := snap.byName[d.Tier]
	decide := func(a *decisions.Attempt) (*Again, *routing.Choice, error) { return e.again(d, a, p) }
	if under != nil && p != nil {
		decide = func(a *decisions.Attempt) (*Again, *routing.Choice, error) { return s.againUnder(p, d, a) }
	}
	for i := range d.Attempts {
		if e.Outcome == wouldRoute {
			e.Steps = append(e.Steps, e.pastAttempt(&d.Attempts[i], decide))
		}
	}
	if e.Summary == "" {
		e.Summary = e.pastSentence()
	}
	return e
}

// unsent says what became of a request that no worker was asked for.
func (e *Explanation) unsent(d *decisions.Decision) (why string) {
	if c := d.Refused; c != nil { // whom it would have waited for
		e.Candidates, e.RunnerUp = c.Candidates, c.RunnerUp
	}
	switch d.Result {
	case decisions.OK:
		e.Outcome, why = wasAnswered, "answered by the gateway itself"
	case decisions.ClientGone:
		e.Outcome, why = wasLeft, "the client left"
		if d.QueueMs > 0 {
			why = fmt.Sprintf("the client left after %.0f ms in the queue", d.QueueMs)
		}
	default:
		e.Outcome, e.Status, e.Code = wouldReject, d.Status, d.Code
		why = cmp.Or(d.Code, d.Shed, d.Limit, fmt.Sprintf("answered %d", d.Status))
	}
	return why
}

// pastSteps are the steps up to the workers, as they were recorded: of a request that
// no worker was asked for, up to the one at which it ended.
func (e *Explanation) pastSteps(d *decisions.Decision, why string) []Step {
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
			st.OK, st.Detail = e.Outcome != wouldReject, why
			return all[:i+1]
		}
	}
	return all
}

// pastAttempt is one attempt with its pick decided again.
func (e *Explanation) pastAttempt(a *decisions.Attempt, decide func(*decisions.Attempt) (*Again, *routing.Choice, error)) Step {
	st := Step{Stage: stageWorker, OK: true, Worker: &WorkerStep{Used: a.Worker, Choice: a.Choice}}
	e.Worker, e.Reason, e.RunnerUp, e.Candidates = a.Worker, a.Reason, "", nil
	if a.Choice == nil {
		st.Detail = a.Worker + ": the only one that could be asked, or no pick was recorded"
		return st
	}
	again, decided, err := decide(a)
	if errors.Is(err, errNobodyLeft) {
		e.Worker, e.Reason, e.Outcome, e.Code = "", "", wouldReject, string(openai.CodeNoHealthyWorker)
		e.Summary = "was refused at worker: " + err.Error()
		st.OK, st.Detail = false, fmt.Sprintf("%s: %s; %v", a.Worker, a.Reason, err)
		return st
	}
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

// errNobodyLeft means that a draft has no worker any more that could take what was
// sent.
var errNobodyLeft = errors.New("the draft leaves no worker for it")

// againUnder decides a recorded pick again among the members of p, a draft's tier or
// pool, as a replay of this record alone does.
func (s *Server) againUnder(p *pool, d *decisions.Decision, a *decisions.Attempt) (*Again, *routing.Choice, error) {
	live := s.snapshot.Load()
	share := s.sharing(live.file)
	to := setupPool(p.Pool, share)
	var was *replay.Pool
	if l := live.byName[d.Tier]; l != nil {
		was = new(setupPool(l.Pool, share))
	}
	decided, worker, reason, err := replay.Repick(was, &to, d, a)
	if errors.Is(err, replay.ErrNobody) {
		return nil, nil, errNobodyLeft
	} else if err != nil {
		return nil, nil, fmt.Errorf("the pick cannot be decided again: %w", err)
	}
	return &Again{Worker: worker, Reason: string(reason), Agrees: worker == a.Worker}, decided, nil
}

// again decides a recorded pick again, p being the tier or pool as it is configured
// now; nil when there is none of that name.
func (e *Explanation) again(d *decisions.Decision, a *decisions.Attempt, p *pool) (*Again, *routing.Choice, error) {
	c, chosen := a.Choice, routing.Config{Name: a.Choice.Policy}
	switch {
	case p == nil:
		e.Notes = append(e.Notes, fmt.Sprintf("there is no tier or pool %s any more: decided by %s as it is by default", d.Tier, c.Policy))
	case p.Policy.Name != c.Policy:
		e.Notes = append(e.Notes, fmt.Sprintf("%s has the policy %s now: decided by %s as it is by default", d.Tier, p.Policy.Name, c.Policy))
	default:
		chosen = p.Policy
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

// pastSentence says in one sentence what became of the request.
func (e *Explanation) pastSentence() string {
	last := e.Steps[len(e.Steps)-1]
	switch e.Outcome {
	case wouldReject:
		return fmt.Sprintf("was refused at %s: %s", last.Stage, last.Detail)
	case wouldRoute:
		return e.sentence(e.Steps)
	}
	return last.Detail
}
