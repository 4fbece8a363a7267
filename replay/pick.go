package replay

import (
	"errors"
	"time"

	"tierway/decisions"
	"tierway/routing"
)

// ErrNobody means that the draft leaves no worker that could take the request.
var ErrNoWorker = errors.New("the draft leaves no worker for it")

// pick is one request whose worker is decided again.
type pick struct {
	d         *decisions.Decision
	a         *decisions.Attempt
	tier      string // that the draft has it in
	at        time.Duration
	residency residency
	worker    string // that it really went to
}

func newPick(d *decisions.Decision, a *decisions.Attempt, tier string, at time.Duration) *pick {
	return &pick{d: d, a: a, tier: tier, at: at, residency: newResidency(d, a, at), worker: a.Worker}
}

func (p *pick) moment() time.Time { return p.d.Time.Add(millis(p.a.AtMs)) }

// Placement is where a request goes, and the choice that says why.
type Placement struct {
	Choice *routing.Choice
	Worker string
	Reason routing.Reason
}

// again has a policy decide a choice again, which is that of the request.
func (p *pick) redecide(policy routing.Policy, c *routing.Choice) (Placement, error) {
	f := &p.d.Features
	i, reason, decided, err := routing.Redecide(policy, c, f.Model, f.Prefix, f.Chain, p.moment())
	if err != nil {
		return Placement{}, err
	}
	return Placement{decided, c.Candidates[i].Worker, reason}, nil
}

// refuse leaves a request where it was: under the draft it goes to nobody.
func (r *Replay) countRefusal(p *pick) {
	if was := r.now.pools[p.d.Tier]; was != nil {
		r.placeAsRecorded(p, was)
		r.countRegret(p)
		r.diverged = true
	}
}

// decideWorker decides a request's worker again and puts it there, on both sides.
func (r *Replay) decideWorker(p *pick) {
	was, to := r.now.pools[p.d.Tier], r.draft.pools[p.tier]
	if was == nil || to == nil {
		r.sums.skip(SkippedPool)
		r.keepOnBothSides(p)
		return
	}
	again, err := r.decideNow(p, was)
	stays := p.tier == p.d.Tier
	var as Placement
	if err == nil || !stays { // elsewhere nobody asks for who was a candidate here
		as, err = r.decideDraft(p, to)
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
	case stays && as.Worker == again:
		as.Worker = p.worker // by whatever it came there
	case stays && again != p.worker:
		r.sums.skip(SkippedWorker)
		r.keepPlacement(p, was)
		return
	}
	r.placeOnBothSides(p, was, to, as)
}

// decideNow decides the recorded pick again as it was. The worker is that of the
// record where another policy decided it than Now has.
func (r *Replay) decideNow(p *pick, was *sidePool) (worker string, err error) {
	c := p.a.Choice
	if err := c.Check(); err != nil {
		return "", err
	}
	was.updateRates(c)
	if to := r.draft.pools[p.d.Tier]; to != nil {
		to.updateRates(c)
	}
	if c.Policy != was.policy.Name() {
		r.sums.Unknown.OtherPolicy++
		return p.worker, nil
	}
	as, err := p.redecide(was.policy, c)
	if err != nil {
		return "", err
	}
	r.sums.WorkersReproduced.add(as.Worker == p.worker)
	return as.Worker, nil
}

func (p *sidePool) updateRates(c *routing.Choice) {
	for i := range c.Candidates {
		p.of(c.Candidates[i].Worker).rate = c.Candidates[i].Rate
	}
}

// decideDraft decides where the draft has the request: of a pool that it would have
// come to anyway by the record, with what the draft changes changed in it; of another
// one by what the requests before it have left there.
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
	learned := to.observePick(p, c) // it sees every request of its pool, whether it has a say or not
	as, ok, err := to.byRecord(p, c)
	if !ok {
		as = learned
	}
	as.Choice = c
	return as, err
}

// byRecord decides by what the record holds where to has a request of which c are the
// candidates. ok is false if only to's own policy can decide, by what it has seen.
func (to *sidePool) byRecord(p *pick, c *routing.Choice) (as Placement, ok bool, err error) {
	switch {
	case !to.samePolicy || p.tier != p.d.Tier:
	case c.Policy == to.policy.Name(): // by what it remembered then
		as, err = p.redecide(to.policy, c)
		return as, true, err
	case c.Of(p.worker) != nil: // made under an older configuration, which the draft leaves as it is
		return Placement{c, p.worker, routing.Reason(p.a.Reason)}, true, nil
	}
	return as, false, nil
}

// learn has a pool's own policy pick among the candidates, as one that takes
// requests: it remembers them.
func (p *sidePool) observePick(k *pick, c *routing.Choice) Placement {
	f := &k.d.Features
	i, reason := routing.Learn(p.policy, c, f.Model, f.Prefix, f.Chain, k.moment(), k.d.Stream)
	return Placement{c, c.Candidates[i].Worker, reason}
}

// settle puts a request where it was and where the draft has it, and sums up.
func (r *Replay) placeOnBothSides(p *pick, was, to *sidePool, as Placement) {
	r.placeAsRecorded(p, was)
	r.diverged = r.diverged || p.tier != p.d.Tier || as.Worker != p.worker
	r.draft.account(p, p.tier, to, as.Worker)
	if p.tier == p.d.Tier {
		r.sums.countWorker(p, as.Worker, as.Reason)
	}
	r.draft.regret.add(as.Choice, as.Worker)
	r.countRegret(p)
}

// stay leaves a request whose worker cannot be decided where it was, on both sides:
// its tokens and its cost count, and of what was lost nothing is known.
func (r *Replay) keepPlacement(p *pick, was *sidePool) {
	r.placeAsRecorded(p, was)
	if to := r.draft.pools[p.d.Tier]; to != nil {
		r.draft.account(p, p.d.Tier, to, p.worker)
	}
}

// settleNow puts a request where it was, and sums up what that was like.
func (r *Replay) placeAsRecorded(p *pick, was *sidePool) {
	r.now.account(p, p.d.Tier, was, p.worker)
	r.sums.countHits(p)
}

func (s *replaySide) account(p *pick, tier string, pool *sidePool, worker string) {
	hit := s.place(pool, worker, p.residency)
	if p.chained() {
		s.hits.add(hit, p.residency.prompt)
	}
	if pool.Cost != nil {
		s.cost[tier] += pool.Cost(p.residency.prompt, hit, p.residency.output)
	}
}

// Redecide decides one recorded pick of a pool again, as a Replay does with that record
// alone: among the members of to, with what to changes against was changed, which is
// the pool as it is configured now; nil if it is not. d and a are not changed.
//
// A pick of another policy than was has stays where it was if to leaves the policy and the
// worker in place: the choice is then the recorded one. Of unknown only Bounds is counted.
// The error is routing.ErrIncomplete, ErrNobody, or says what cannot be a record of a pick.
func Redecide(was, to *Pool, d *decisions.Decision, a *decisions.Attempt) (as Placement, unknown Unknown, err error) {
	if err := a.Choice.Check(); err != nil {
		return Placement{}, unknown, err
	}
	pool, err := openPool(to, was, usualCache)
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
		asked.Policy = "" // what another policy remembered, or one that was configured otherwise, is nothing to it
		as, err = p.redecide(pool.policy, &asked)
	}
	if err != nil {
		return Placement{}, unknown, err
	}
	if as.Choice == c && c.Of(c.RunnerUp) == nil {
		c.RunnerUp = ""
	}
	return as, unknown, nil
}
