package replay

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"tierway/routing"
)

// draftChoice returns the recorded pick as the draft's pool would have shown it: with the
// draft's changes to the pool, and with the load and cache of earlier requests that the draft
// placed elsewhere.
func (r *Replay) draftChoice(p *pick, to *sidePool) *routing.Choice {
	c, known := r.changedChoice(p, to, p.a.Choice, stage{model: uint64(p.d.Features.Model)})
	if !known {
		r.sums.Unknown.Bounds++
	}
	return c
}

// stage is the part of a request that a pick is for.
type stage struct {
	model   uint64
	prefill bool // it computes the prompt for another worker
	every   bool // members without a record could be chosen too
}

func (s stage) takes(m *routing.Member) bool {
	if s.prefill {
		return m.Prefills(s.model)
	}
	return m.Takes(s.model)
}

// changedChoice is draftChoice for one stage, of which base is the recorded pick. known is false if it needs a number
// that is not in the records.
func (r *Replay) changedChoice(p *pick, to *sidePool, base *routing.Choice, s stage) (c *routing.Choice, known bool) {
	c, known = new(*base), true
	c.Candidates = make([]routing.Candidate, 0, len(base.Candidates)+1)
	workers := make([]routing.Loaded, 0, cap(c.Candidates))
	add := func(v routing.Candidate, w routing.Loaded) {
		if w.Stages = v.Stages; s.prefill {
			if v.Stages&routing.StagePrefill == 0 {
				return
			}
			w.Stages = 0 // it serves the whole of this stage
		}
		c.Candidates, workers = append(c.Candidates, v), append(workers, w)
	}
	for i := range base.Candidates {
		v := base.Candidates[i]
		w, isMember, counted := r.draftCandidate(p, to, &v)
		if isMember {
			add(v, w)
		}
		known = known && counted
	}
	same := to.sameMembers()
	for i := range to.Members {
		m := &to.Members[i]
		if !s.takes(m) || base.CandidateOf(m.ID) != nil {
			continue
		}
		if !s.every && !to.addsCandidate(m, s) {
			known = known && !to.mayAdmitUnrecorded(m)
			continue
		}
		v, w := r.unrecordedCandidate(p, to, m, i)
		add(v, w)
		same = false
	}
	if same {
		for i := range workers {
			workers[i].Group = 0 // all in one group, as they were shown together
		}
	}
	to.filterEligible(p, c, s, workers)
	if !same {
		to.orderByMembers(c)
	}
	return c, known
}

// draftCandidate turns a recorded candidate into one of the draft's pool, and returns the
// worker for the eligibility check; isMember is false if the draft has removed it. The record knows
// best whether a worker was full: bounds count only if the draft changes them or the load.
// known is false if they need a number that is not in the records.
func (r *Replay) draftCandidate(p *pick, to *sidePool, v *routing.Candidate) (w routing.Loaded, isMember, known bool) {
	was, _ := to.was.member(v.Worker)
	m, _ := to.member(v.Worker)
	if m == nil && was != nil {
		return w, false, true
	}
	w = routing.Loaded{Waiting: v.Waiting, KVUsage: v.KVUsage, Reported: v.Inflight - v.OthersInflight}
	known = true
	if to.was != nil && to.was.Saturation.Reached(v.Waiting, v.KVUsage) {
		// The pool showed it anyway: the metrics were too old, or fewer requests waited by then.
		w.Waiting, w.KVUsage, known = 0, 0, to.Saturation == to.was.Saturation
	}
	bound := false
	if m != nil {
		w.Group = m.Group
		if was == nil || m.Weight != was.Weight {
			v.Effective *= float64(m.Weight) / float64(max(1, v.Weight))
			v.Weight = m.Weight
		}
		if was == nil || m.Stages != was.Stages {
			v.Stages = m.Stages
		}
		if was == nil || !slices.Equal(m.Models, was.Models) {
			w.Models = m.Models
		}
		if was == nil || m.MaxInflight != was.MaxInflight || m.MaxTokensInflight != was.MaxTokensInflight {
			v.MaxInflight, bound = m.MaxInflight, true
		}
	}
	bound = r.applyDivergence(p, to, v) || bound
	w.ID, w.Weight, w.Inflight = v.Worker, v.Weight, max(0, v.Inflight-v.OthersInflight)
	if !bound {
		w.Full = v.Full
		return w, true, known
	}
	w.MaxInflight = v.MaxInflight
	if m != nil && m.MaxTokensInflight > 0 {
		counted := false
		w.MaxTokensInflight = m.MaxTokensInflight
		w.Tokens, counted = r.tokens(p, to, v, w.Reported)
		known = known && counted
	}
	return w, true, known
}

// tokens returns the tokens in flight at a candidate: prompts, cached or not, and expected
// answers. They are known if the worker was idle, or if the records have as many requests in
// flight as the pick; otherwise they are at least those booked.
func (r *Replay) tokens(p *pick, to *sidePool, v *routing.Candidate, inflight int) (tokens int64, known bool) {
	current, draft := &workerState{}, to.worker(v.Worker)
	if now := r.now.pools[p.d.Tier]; now != nil {
		current = now.worker(v.Worker)
	}
	switch inflight {
	case current.inflight:
		return draft.tokens, true
	case 0:
		return max(0, draft.tokens-current.tokens), true
	}
	return v.PendingTokens + v.OutputTokens, false
}

// addsCandidate reports whether the draft adds a member that the record does not show: a new
// one, or one that the draft's changes no longer exclude. A worker that was down, full or in
// backoff is not added.
func (to *sidePool) addsCandidate(m *routing.Member, s stage) bool {
	was, _ := to.was.member(m.ID)
	return was == nil || !s.takes(was) || was.Group != m.Group
}

// mayAdmitUnrecorded reports whether the record may lack a member because of a bound that the
// draft raises.
func (to *sidePool) mayAdmitUnrecorded(m *routing.Member) bool {
	was, _ := to.was.member(m.ID)
	before, after := &to.was.Saturation, &to.Saturation
	return raised(was.MaxInflight, m.MaxInflight) || raised(was.MaxTokensInflight, m.MaxTokensInflight) ||
		raised(before.Waiting, after.Waiting) || raised(before.KVUsage, after.KVUsage) ||
		raised(after.StaleAfter, before.StaleAfter)
}

// raised reports whether a bound is raised; 0 is no bound.
func raised[N int | int64 | float64 | time.Duration](before, after N) bool {
	return before > 0 && (after <= 0 || after > before)
}

// filterEligible keeps the candidates that the pool would show its policy. workers has their
// states. If all are full or saturated, the request would wait for any of them.
func (to *sidePool) filterEligible(p *pick, c *routing.Choice, s stage, workers []routing.Loaded) {
	q := routing.Request{Now: p.pickTime(), Model: s.model, PromptTokens: c.PromptTokens,
		OutputTokens: c.OutputTokens, Wait: c.Waits, Whole: !s.prefill && to.staysWhole(c, s.model)}
	shown, err := routing.Eligible(to.policy, to.Saturation, &q, workers)
	if errors.Is(err, routing.ErrFull) {
		for i := range workers {
			workers[i] = routing.Loaded{Member: workers[i].Member}
		}
		shown, _ = routing.Eligible(to.policy, to.Saturation, &q, workers)
	}
	for i := range shown {
		c.Candidates[i] = c.Candidates[shown[i].Index] // at or after i
		c.Candidates[i].Full = shown[i].Full
	}
	c.Candidates, c.Seen = c.Candidates[:len(shown)], len(shown)
}

// staysWhole reports whether one worker must serve both stages of the request: by its record, or because no member
// computes prompts for others.
func (to *sidePool) staysWhole(c *routing.Choice, model uint64) bool {
	return c.Handover != nil && c.Handover.Why == routing.HandoverWhole ||
		!slices.ContainsFunc(to.Members, func(m routing.Member) bool { return m.Prefills(model) })
}

// sameMembers reports whether the draft keeps all members and their groups.
func (to *sidePool) sameMembers() bool {
	same := func(a, b routing.Member) bool { return a.ID == b.ID && a.Group == b.Group }
	return to.was != nil && slices.EqualFunc(to.was.Members, to.Members, same)
}

// orderByMembers numbers the candidates by their places among the draft's members, if these have
// changed.
func (to *sidePool) orderByMembers(c *routing.Choice) {
	last := int(c.Memory) // round_robin remembers the place of the last worker
	for i := range c.Candidates {
		v := &c.Candidates[i]
		_, at := to.member(v.Worker)
		if at < 0 {
			at = len(to.Members) + v.Index
		}
		v.Index = at
	}
	if was := to.was; was != nil && c.Policy == "round_robin" && last >= 0 && last < len(was.Members) {
		if _, at := to.member(was.Members[last].ID); at >= 0 {
			c.Memory = float64(at)
		}
	}
	slices.SortFunc(c.Candidates, func(a, b routing.Candidate) int { return cmp.Compare(a.Index, b.Index) })
}

// applyDivergence changes a candidate by what the draft placed there and the real gateway did
// not, and the reverse. It reports whether that changes the load in flight there.
func (r *Replay) applyDivergence(p *pick, to *sidePool, v *routing.Candidate) (moved bool) {
	if !r.diverged {
		return false
	}
	current, draft := r.now.pools[p.d.Tier].worker(v.Worker), to.worker(v.Worker)
	v.Inflight = max(0, v.Inflight+draft.inflight-current.inflight)
	v.PendingTokens = max(0, v.PendingTokens+draft.pending-current.pending)
	v.OutputTokens = max(0, v.OutputTokens+draft.output-current.output)
	chain, prompt := p.residency.chain, p.a.Choice.PromptTokens
	more := draft.cache.hit(chain, prompt) - current.cache.hit(chain, prompt)
	v.Overlap = min(max(0, v.Overlap+more), max(0, p.a.Choice.PromptTokens))
	return draft.inflight != current.inflight || draft.tokens != current.tokens
}

// unrecordedCandidate returns a member that the record lacks, with the load that the draft
// placed on it.
func (r *Replay) unrecordedCandidate(
	p *pick, to *sidePool, m *routing.Member, at int,
) (routing.Candidate, routing.Loaded) {
	w := to.worker(m.ID)
	rate := w.rate
	if rate == 0 {
		rate = to.rate()
	}
	return routing.Candidate{Worker: m.ID, Index: at, Weight: m.Weight, Inflight: w.inflight, MaxInflight: m.MaxInflight,
			PendingTokens: w.pending, OutputTokens: w.output, Stages: m.Stages,
			Overlap: w.cache.hit(p.residency.chain, p.a.Choice.PromptTokens), Rate: rate},
		routing.Loaded{Member: *m, Inflight: w.inflight, Tokens: w.tokens}
}

// rate returns the mean prefill rate of the pool's workers, as far as it is recorded.
func (to *sidePool) rate() float64 {
	sum, n := 0.0, 0
	for i := range to.Members { // not the map, which has a random order
		if w := to.workers[to.Members[i].ID]; w != nil && w.rate > 0 {
			sum, n = sum+w.rate, n+1
		}
	}
	if n == 0 {
		return routing.PriorRate
	}
	return sum / float64(n)
}

// otherPoolChoice returns a pick in a pool that the real request did not reach: all members
// that could take it, with the load that the draft placed on them.
func (r *Replay) otherPoolChoice(p *pick, to *sidePool) *routing.Choice {
	was := p.a.Choice
	c := &routing.Choice{Rand: was.Rand, PromptTokens: was.PromptTokens, OutputTokens: was.OutputTokens, Waits: was.Waits,
		Stream: was.Stream, Key: was.Key, KeyOf: was.KeyOf}
	workers := make([]routing.Loaded, len(to.Members))
	c.Candidates = make([]routing.Candidate, len(to.Members))
	for i := range to.Members {
		c.Candidates[i], workers[i] = r.unrecordedCandidate(p, to, &to.Members[i], i)
	}
	to.filterEligible(p, c, stage{}, workers) // the pool's own model, not the recorded one
	return c
}
