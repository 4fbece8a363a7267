package replay

import (
	"errors"
	"time"

	"tierway/decisions"
	"tierway/routing"
)

// ErrNoWorker means that the draft leaves no worker that could take the request.
var ErrNoWorker = errors.New("no worker of the draft can take the request")

// pick is one request whose worker is decided again.
type pick struct {
	d         *decisions.Decision
	a         *decisions.Attempt
	tier      string // the draft's tier
	residency residency
	worker    string // the real worker
	prefiller string // the worker that computed its prompt; "" if that is worker
}

func newPick(d *decisions.Decision, a *decisions.Attempt, tier string, at time.Duration) *pick {
	return &pick{d: d, a: a, tier: tier, residency: newResidency(d, a, at), worker: a.Worker,
		prefiller: prefillerOf(a)}
}

func (p *pick) pickTime() time.Time { return p.d.Time.Add(millis(p.a.AtMs)) }

// Placement is the worker of a request, and the choice that explains it.
type Placement struct {
	Choice *routing.Choice
	Worker string
	Reason routing.Reason

	// the decision which worker computes the prompt, of Redecide only; nil without a hand-over
	Handover *routing.HandoverChoice
	Unknown  bool // the record lacks what that decision needs; then it is the recorded one
}

// redecide lets a policy decide a choice of the request again.
func (p *pick) redecide(policy routing.Policy, c *routing.Choice) (Placement, error) {
	f := &p.d.Features
	i, reason, decided, err := routing.Redecide(policy, c, f.Model, f.Prefix, f.Chain, p.pickTime())
	if err != nil {
		return Placement{}, err
	}
	return Placement{Choice: decided, Worker: c.Candidates[i].Worker, Reason: reason}, nil
}

// countRefusal places a request at its real worker. Under the draft it has no worker.
func (r *Replay) countRefusal(p *pick) {
	if was := r.now.pools[p.d.Tier]; was != nil {
		r.placeAsRecorded(p, was)
		r.countRegret(p)
		r.diverged = true
	}
}

// decideWorker decides a request's worker again and places the request on both sides.
func (r *Replay) decideWorker(p *pick) {
	was, to := r.now.pools[p.d.Tier], r.draft.pools[p.tier]
	if was == nil || to == nil {
		r.sums.skip(SkippedPool)
		r.keepOnBothSides(p)
		return
	}
	redecided, err := r.decideNow(p, was)
	stays := p.tier == p.d.Tier
	var as Placement
	if err == nil || !stays { // in another tier, the recorded candidates do not matter
		as, err = r.decideDraft(p, to)
	}
	if err == nil && decisions.Names(p.worker, as.Worker) {
		as.Worker = p.worker
	}
	switch {
	case errors.Is(err, ErrNoWorker):
		r.sums.skip(SkippedWorkers)
		r.countRefusal(p)
		return
	case err != nil:
		r.sums.skip(SkippedIncomplete)
		r.keepPlacement(p, was)
		return
	case stays && as.Worker == redecided:
		as.Worker = p.worker // both configurations agree, even if another rule placed the request
	case stays && redecided != p.worker:
		r.sums.skip(SkippedWorker)
		r.keepPlacement(p, was)
		return
	}
	r.placeOnBothSides(p, was, to, as)
}

// decideNow decides the recorded pick again under Now. The result is the recorded worker if
// another policy than Now's decided it.
func (r *Replay) decideNow(p *pick, was *sidePool) (worker string, err error) {
	c := p.a.Choice
	if err := c.Check(); err != nil {
		return "", err
	}
	was.updateRates(c)
	if to := r.draft.pools[p.d.Tier]; to != nil {
		to.updateRates(c)
	}
	if !was.Chooses(c) {
		r.sums.Unknown.OtherPolicy++
		return p.worker, nil
	}
	as, err := p.redecide(was.policy, c)
	if err != nil {
		return "", err
	}
	if decisions.Names(p.worker, as.Worker) {
		as.Worker = p.worker
	}
	r.sums.WorkersReproduced.add(as.Worker == p.worker)
	return as.Worker, nil
}

func (p *sidePool) updateRates(c *routing.Choice) {
	for i := range c.Candidates {
		p.worker(c.Candidates[i].Worker).rate = c.Candidates[i].Rate
	}
	if h := c.Handover; h != nil && h.Prefill != nil {
		for i := range h.Prefill.Candidates {
			p.worker(h.Prefill.Candidates[i].Worker).rate = h.Prefill.Candidates[i].Rate
		}
	}
}

// decideDraft decides the request's worker under the draft. In its recorded pool, the recorded
// pick is changed by the draft; in another pool, the earlier requests of the draft's side have
// set the state.
func (r *Replay) decideDraft(p *pick, to *sidePool) (as Placement, err error) {
	var c *routing.Choice
	if p.tier == p.d.Tier {
		c = r.draftChoice(p, to)
	} else {
		c = r.otherPoolChoice(p, to)
	}
	if len(c.Candidates) == 0 {
		return as, ErrNoWorker
	}
	if !to.samePolicy {
		c.Rule = to.rule(p.d)
	}
	learned := to.observePick(p, c) // the policy sees every request of its pool, also if the record decides
	as, ok, err := to.byRecord(p, c)
	if !ok {
		as = learned
	}
	as.Choice = c
	return as, err
}

// byRecord decides from the record where the draft has a request with the candidates c. ok is
// false if only the draft's own policy can decide.
func (to *sidePool) byRecord(p *pick, c *routing.Choice) (as Placement, ok bool, err error) {
	switch {
	case !to.samePolicy || p.tier != p.d.Tier:
	case to.Chooses(c): // by the recorded memory of the policy
		as, err = p.redecide(to.policy, c)
		return as, true, err
	case c.CandidateOf(p.worker) != nil: // made under an older configuration, which the draft does not change
		return Placement{Choice: c, Worker: p.worker, Reason: routing.Reason(p.a.Reason)}, true, nil
	}
	return as, false, nil
}

// rule returns the number of the draft's rule that the request meets; 0 without one.
func (p *sidePool) rule(d *decisions.Decision) int {
	if p.RuleOf == nil {
		return 0
	}
	return p.RuleOf(d)
}

// observePick lets the pool's own policy pick among the candidates. The policy remembers the
// request.
func (p *sidePool) observePick(k *pick, c *routing.Choice) Placement {
	f := &k.d.Features
	i, reason := routing.LearnChoice(p.policy, c, f.Model, f.Prefix, f.Chain, k.pickTime())
	return Placement{Choice: c, Worker: c.Candidates[i].Worker, Reason: reason}
}

// placeOnBothSides places a request at its real worker and at the draft's, and counts the
// differences.
func (r *Replay) placeOnBothSides(p *pick, was, to *sidePool, as Placement) {
	r.placeAsRecorded(p, was)
	prefiller := r.draftPrefiller(p, was, to, as)
	r.diverged = r.diverged || p.tier != p.d.Tier || as.Worker != p.worker || prefiller != p.prefiller
	r.draft.account(p, p.tier, to, as.Worker, prefiller)
	if p.tier == p.d.Tier {
		r.sums.countWorker(p, as.Worker, as.Reason)
	}
	if prefiller == "" {
		r.draft.regret.add(as.Choice, as.Worker)
	}
	r.countRegret(p)
}

// keepPlacement leaves a request whose worker cannot be decided at its real worker, on both
// sides. Its tokens and cost count; its regret is unknown.
func (r *Replay) keepPlacement(p *pick, was *sidePool) {
	r.placeAsRecorded(p, was)
	if to := r.draft.pools[p.d.Tier]; to != nil {
		r.draft.account(p, p.d.Tier, to, p.worker, p.prefiller)
	}
}

// placeAsRecorded places a request at its real worker, and counts its hits.
func (r *Replay) placeAsRecorded(p *pick, was *sidePool) {
	r.now.account(p, p.d.Tier, was, p.worker, p.prefiller)
	r.sums.countHits(p)
}

func (s *replaySide) account(p *pick, tier string, pool *sidePool, worker, prefiller string) {
	hit := s.placeRequest(pool, worker, prefiller, p.residency)
	if p.hasChain() {
		s.hits.add(hit, p.residency.prompt)
	}
	if pool.Cost != nil {
		s.cost[tier] += pool.Cost(p.residency.prompt, hit, p.residency.output)
	}
}

// Redecide decides one recorded pick of a pool again, as a Replay of that record alone: among
// the members of to, with the changes of to against was applied. was is the pool as configured
// now; nil if there is none. d and a are not changed.
//
// A pick of another policy than was has keeps its worker if to keeps the policy and the worker:
// the choice is then the recorded one. Only Bounds of unknown is counted. The error is
// routing.ErrIncomplete, ErrNoWorker, or describes an invalid record.
func Redecide(was, to *Pool, d *decisions.Decision, a *decisions.Attempt) (as Placement, unknown Unknown, err error) {
	if err := a.Choice.Check(); err != nil {
		return Placement{}, unknown, err
	}
	pool, err := openPool(to, was, defaultCacheTokens)
	if err != nil {
		return Placement{}, unknown, err
	}
	pool.updateRates(a.Choice)
	p, r := newPick(d, a, d.Tier, 0), &Replay{}
	c := r.draftChoice(p, pool)
	unknown = r.sums.Unknown
	if len(c.Candidates) == 0 {
		return Placement{}, unknown, ErrNoWorker
	}
	as, ok, err := pool.byRecord(p, c)
	if !ok {
		asked := *c
		if !pool.samePolicy {
			asked.Rule = pool.rule(d)
		}
		asked.Policy = "" // the memory of another policy or configuration does not apply
		as, err = p.redecide(pool.policy, &asked)
	}
	if err != nil {
		return Placement{}, unknown, err
	}
	if as.Choice == c && c.CandidateOf(c.RunnerUp) == nil {
		c.RunnerUp = ""
	}
	as.Handover = a.Choice.Handover
	if pool.handover != nil {
		if d, known := r.decideHandover(p, pool, as.Choice, as.Worker); known {
			as.Handover = &d
		} else {
			as.Unknown = true
		}
	}
	return as, unknown, nil
}
