package replay

import (
	"errors"
	"time"

	"tierway/decisions"
	"tierway/routing"
)

// ErrNobody means that the draft leaves no worker that could take the request.
var ErrNobody = errors.New("the draft leaves no worker for it")

// pick is one request whose worker is decided again.
type pick struct {
	d      *decisions.Decision
	a      *decisions.Attempt
	tier   string // that the draft has it in
	at     time.Duration
	stay   stay
	worker string // that it really went to
}

func newPick(d *decisions.Decision, a *decisions.Attempt, tier string, at time.Duration) *pick {
	return &pick{d: d, a: a, tier: tier, at: at, stay: newStay(d, a, at), worker: a.Worker}
}

// moment is when a worker was chosen.
func (p *pick) moment() time.Time { return p.d.Time.Add(millis(p.a.AtMs)) }

// again has a policy decide a choice again, which is that of the request.
func (p *pick) again(policy routing.Policy, c *routing.Choice) (i int, reason routing.Reason, decided *routing.Choice, err error) {
	f := &p.d.Features
	return routing.Again(policy, c, f.Model, f.Prefix, f.Chain, p.moment())
}

// refuse leaves a request where it was: under the draft it goes to nobody.
func (r *Replay) refuse(p *pick) {
	if was := r.now.pools[p.d.Tier]; was != nil {
		r.settleNow(p, was)
		r.regretNow(p)
		r.parted = true
	}
}

// decideWorker decides a request's worker again and puts it there, on both sides.
func (r *Replay) decideWorker(p *pick) {
	was, to := r.now.pools[p.d.Tier], r.draft.pools[p.tier]
	if was == nil || to == nil {
		r.sums.skip(SkippedPool)
		r.keep(p)
		return
	}
	again, err := r.decideNow(p, was)
	stays := p.tier == p.d.Tier
	var choice *routing.Choice
	var worker string
	var reason routing.Reason
	if err == nil || !stays { // elsewhere nobody asks for who was a candidate here
		choice, worker, reason, err = r.decideDraft(p, to)
	}
	switch {
	case errors.Is(err, ErrNobody):
		r.sums.skip(SkippedWorkers)
		r.refuse(p)
		return
	case err != nil:
		r.sums.skip(SkippedIncomplete)
		r.stay(p, was)
		return
	case stays && worker == again:
		worker = p.worker // by whatever it came there
	case stays && again != p.worker:
		r.sums.skip(SkippedWorker)
		r.stay(p, was)
		return
	}
	r.settle(p, was, to, choice, worker, reason)
}

// decideNow decides the recorded pick again as it was. The worker is that of the
// record where another policy decided it than Now has.
func (r *Replay) decideNow(p *pick, was *sidePool) (worker string, err error) {
	c := p.a.Choice
	if err := c.Check(); err != nil {
		return "", err
	}
	was.rates(c)
	if to := r.draft.pools[p.d.Tier]; to != nil {
		to.rates(c)
	}
	if c.Policy != was.policy.Name() {
		r.sums.Unknown.OtherPolicy++
		return p.worker, nil
	}
	i, _, _, err := p.again(was.policy, c)
	if err != nil {
		return "", err
	}
	r.sums.WorkersReproduced.add(c.Candidates[i].Worker == p.worker)
	return c.Candidates[i].Worker, nil
}

// rates notes how fast the candidates prefill.
func (p *sidePool) rates(c *routing.Choice) {
	for i := range c.Candidates {
		p.of(c.Candidates[i].Worker).rate = c.Candidates[i].Rate
	}
}

// decideDraft decides where the draft has the request: of a pool that it would have
// come to anyway by the record, with what the draft changes changed in it; of another
// one by what the requests before it have left there.
func (r *Replay) decideDraft(p *pick, to *sidePool) (c *routing.Choice, worker string, reason routing.Reason, err error) {
	if p.tier == p.d.Tier {
		c = r.edited(p, to)
	} else {
		c = r.elsewhere(p, to)
	}
	if len(c.Candidates) == 0 {
		return nil, "", "", ErrNobody
	}
	// It sees every request of its pool, whether it has a say or not.
	learned, learnedReason := to.learn(p, c)
	switch to.says(p, c) {
	case sayRecord:
		return c, p.worker, routing.Reason(p.a.Reason), nil
	case sayAgain:
		i, reason, _, err := p.again(to.policy, c)
		if err != nil {
			return nil, "", "", err
		}
		return c, c.Candidates[i].Worker, reason, nil
	}
	return c, c.Candidates[learned].Worker, learnedReason, nil
}

// Who says where the draft has a request.
const (
	sayLearned = iota // the draft's policy, by what it has seen
	sayAgain          // the policy that made the record, by what the record remembers
	sayRecord         // the record: made under an older configuration, which the draft leaves as it is
)

// says returns who says where a request goes of which c are the candidates.
func (to *sidePool) says(p *pick, c *routing.Choice) int {
	switch {
	case !to.alike || p.tier != p.d.Tier:
		return sayLearned
	case c.Policy == to.policy.Name():
		return sayAgain
	case c.Of(p.worker) != nil:
		return sayRecord
	}
	return sayLearned
}

// learn has a pool's own policy pick among the candidates, as one that takes
// requests: it remembers them.
func (p *sidePool) learn(k *pick, c *routing.Choice) (i int, reason routing.Reason) {
	f := &k.d.Features
	return routing.Learn(p.policy, c, f.Model, f.Prefix, f.Chain, k.moment(), k.d.Stream)
}

// settle puts a request where it was and where the draft has it, and sums up.
func (r *Replay) settle(p *pick, was, to *sidePool, c *routing.Choice, worker string, reason routing.Reason) {
	r.settleNow(p, was)
	r.parted = r.parted || p.tier != p.d.Tier || worker != p.worker
	r.draft.put(p, p.tier, to, worker)
	if p.tier == p.d.Tier {
		r.sums.worker(p, worker, reason)
	}
	r.draft.regret.add(c, worker)
	r.regretNow(p)
}

// stay leaves a request whose worker cannot be decided where it was, on both sides:
// its tokens and its cost count, and of what was lost nothing is known.
func (r *Replay) stay(p *pick, was *sidePool) {
	r.settleNow(p, was)
	if to := r.draft.pools[p.d.Tier]; to != nil {
		r.draft.put(p, p.d.Tier, to, p.worker)
	}
}

// settleNow puts a request where it was, and sums up what that was like.
func (r *Replay) settleNow(p *pick, was *sidePool) {
	r.now.put(p, p.d.Tier, was, p.worker)
	r.sums.measured(p)
}

// put places a request and counts its tokens and its cost.
func (s *side) put(p *pick, tier string, pool *sidePool, worker string) {
	hit := s.place(pool, worker, p.stay)
	if p.chained() {
		s.hits.add(hit, p.stay.prompt)
	}
	if pool.Cost != nil {
		s.cost[tier] += pool.Cost(p.stay.prompt, hit, p.stay.output)
	}
}

// Repick decides one recorded pick of a pool again, as a Replay does with that record
// alone: among the members of to, with what to changes against was changed, which is
// the pool as it is configured now; nil if it is not. d and a are not changed.
//
// It returns the new choice, which says why, with the worker and the reason. A pick
// of another policy than was has stays where it was if to leaves the policy and the
// worker in place: the choice is then the recorded one. The error is
// routing.ErrIncomplete, ErrNobody, or says what cannot be a record of a pick.
func Repick(was, to *Pool, d *decisions.Decision, a *decisions.Attempt) (decided *routing.Choice, worker string, reason routing.Reason, err error) {
	if err := a.Choice.Check(); err != nil {
		return nil, "", "", err
	}
	pool, err := openPool(to, was, usualCache)
	if err != nil {
		return nil, "", "", err
	}
	pool.rates(a.Choice)
	p := newPick(d, a, d.Tier, 0)
	c := (&Replay{}).edited(p, pool)
	if len(c.Candidates) == 0 {
		return nil, "", "", ErrNobody
	}
	asked := c
	switch pool.says(p, c) {
	case sayRecord:
		if c.Of(c.RunnerUp) == nil {
			c.RunnerUp = ""
		}
		return c, p.worker, routing.Reason(a.Reason), nil
	case sayLearned:
		asked = new(*c)
		asked.Policy = "" // what another policy remembered, or one that was configured otherwise, is nothing to it
	}
	i, reason, decided, err := p.again(pool.policy, asked)
	if err != nil {
		return nil, "", "", err
	}
	return decided, c.Candidates[i].Worker, reason, nil
}
