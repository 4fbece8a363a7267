package sim

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"tierway/routing"
)

// errNobody means that the draft leaves no worker that could take the request.
var errNobody = errors.New("the draft has no worker for it")

// errUnsound means that no pool can have shown such candidates.
var errUnsound = errors.New("the record's candidates cannot be")

// What the candidates of a pool may have at most, as its configuration is checked.
const maxWeight, maxMembers = 100, 10_000

// sound tells whether a pool can have shown these candidates: a policy may trust
// what a pool shows it, and a file may hold anything.
func sound(c *routing.Choice) bool {
	for i := range c.Candidates {
		v := &c.Candidates[i]
		if v.Weight < 1 || v.Weight > maxWeight || v.Index < 0 || v.Index >= maxMembers || i > 0 && v.Index <= c.Candidates[i-1].Index || c.Of(v.Worker) != v {
			return false
		}
	}
	return true
}

// unknownRate is the prefill rate of a worker of which no record says one, in
// tokens/s: what a pool believes before it has samples.
const unknownRate = 8000

// pick is one request whose worker is decided again.
type pick struct {
	d      *routing.Decision
	a      *routing.Attempt
	tier   string // that the draft has it in
	at     time.Duration
	stay   stay
	worker string // that it really went to
}

// workerOf decides a request's worker again and puts it there, on both sides.
func (r *Replay) workerOf(d *routing.Decision, tier string, at time.Duration) {
	a := picked(d)
	if a == nil {
		r.sums.skip(SkippedUnplaced)
		return
	}
	p := &pick{d: d, a: a, tier: tier, at: at, stay: newStay(d, a, at), worker: a.Worker}
	was, to := r.now.pools[d.Tier], r.draft.pools[tier]
	if was == nil || to == nil {
		r.sums.skip(SkippedPool)
		r.keep(d, at)
		return
	}
	again, err := "", errUnsound
	if sound(a.Choice) {
		again, err = r.decideNow(p, was)
	}
	if err != nil {
		r.sums.skip(SkippedIncomplete)
		r.keep(d, at)
		return
	}
	choice, to2, reason, err := r.decideDraft(p, to)
	switch {
	case err != nil:
		r.sums.skip(SkippedWorkers)
		r.now.place(was, p.worker, p.stay)
		return
	case tier == d.Tier && to2 == again:
		to2 = p.worker // by whatever it came there
	case tier == d.Tier && again != p.worker:
		r.sums.skip(SkippedWorker)
		r.keep(d, at)
		return
	}
	r.settle(p, was, to, choice, to2, reason)
}

// decideNow decides the recorded pick again as it was. The worker is that of the
// record where another policy decided it than Now has.
func (r *Replay) decideNow(p *pick, was *sidePool) (worker string, err error) {
	c := p.a.Choice
	for i := range c.Candidates {
		was.of(c.Candidates[i].Worker).rate = c.Candidates[i].Rate
		if to := r.draft.pools[p.d.Tier]; to != nil {
			to.of(c.Candidates[i].Worker).rate = c.Candidates[i].Rate
		}
	}
	if c.Policy != was.policy.Name() {
		r.sums.otherPolicy++
		return p.worker, nil
	}
	i, _, decided, err := routing.Again(was.policy, c, p.d.Features.Model, p.d.Features.Prefix, p.d.Features.Chain, p.d.Time.Add(millis(p.a.AtMs)))
	if err != nil {
		return "", err
	}
	r.sums.reproduced(decided.Candidates[i].Worker == p.worker)
	return decided.Candidates[i].Worker, nil
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
	if c == nil || len(c.Candidates) == 0 {
		return nil, "", "", errNobody
	}
	// It sees every request of its pool, whether it has a say or not.
	learned, learnedReason := to.learn(p, c)
	if c.Policy == to.policy.Name() && to.alike && p.tier == p.d.Tier {
		i, reason, _, err := routing.Again(to.policy, c, p.d.Features.Model, p.d.Features.Prefix, p.d.Features.Chain, p.d.Time.Add(millis(p.a.AtMs)))
		if err != nil {
			return nil, "", "", err
		}
		return c, c.Candidates[i].Worker, reason, nil
	}
	if to.alike && p.tier == p.d.Tier && c.Of(p.worker) != nil {
		// Made under an older configuration, which the draft leaves as it is.
		return c, p.worker, routing.Reason(p.a.Reason), nil
	}
	return c, c.Candidates[learned].Worker, learnedReason, nil
}

// learn has a pool's own policy pick among the candidates, as one that takes
// requests: it remembers them.
func (p *sidePool) learn(k *pick, c *routing.Choice) (i int, reason routing.Reason) {
	ws := make([]routing.View, len(c.Candidates))
	for i := range ws {
		ws[i] = view(&c.Candidates[i])
	}
	f := &k.d.Features
	q := routing.Request{Now: k.d.Time.Add(millis(k.a.AtMs)), Rand: uint64(k.a.Choice.Rand), Model: uint64(f.Model), Prefix: uint64(f.Prefix),
		PromptTokens: c.PromptTokens, OutputTokens: c.OutputTokens, Stream: k.d.Stream, Wait: c.Waits}
	for _, l := range f.Chain {
		q.Blocks = append(q.Blocks, routing.Block(l))
	}
	if i, reason = p.learning.Pick(&q, ws); i < 0 { // it abstains, and the least loaded one takes it
		i, reason = leastLoaded(ws), routing.ReasonLeastLoad
	}
	return i, reason
}

// leastLoaded is whom a pool takes when its policy abstains.
func leastLoaded(ws []routing.View) int {
	load := func(v *routing.View) float64 { return float64(v.PendingTokens+v.OutputTokens) / float64(v.Weight) }
	best := 0
	for i := range ws {
		if load(&ws[i]) < load(&ws[best]) {
			best = i
		}
	}
	return best
}

// view is a candidate as a policy sees it.
func view(c *routing.Candidate) routing.View {
	return routing.View{ID: c.Worker, Index: c.Index, Weight: max(1, c.Weight), Up: true, Inflight: c.Inflight, MaxInflight: c.MaxInflight, Full: c.Full,
		PendingTokens: c.PendingTokens, OutputTokens: c.OutputTokens, Waiting: c.Waiting, KVUsage: c.KVUsage, Overlap: c.Overlap, Rate: c.Rate}
}

// settle puts a request where it was and where the draft has it, and sums up.
func (r *Replay) settle(p *pick, was, to *sidePool, c *routing.Choice, worker string, reason routing.Reason) {
	moved := p.tier != p.d.Tier || worker != p.worker
	r.parted = r.parted || moved
	nowHit := r.now.place(was, p.worker, p.stay)
	draftHit := r.draft.place(to, worker, p.stay)
	if p.tier == p.d.Tier {
		r.sums.worker(p, worker, reason)
	}
	r.sums.hits(p, nowHit, draftHit)
	r.sums.money(p, was, to, nowHit, draftHit)
	r.sums.nowRegret.add(p.a.Choice, p.worker)
	r.sums.draftRegret.add(c, worker)
	r.sums.realised(p)
}

// byIndex orders candidates as a pool shows them.
func byIndex(cs []routing.Candidate) {
	slices.SortFunc(cs, func(a, b routing.Candidate) int { return cmp.Compare(a.Index, b.Index) })
}
