package replay

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"tierway/routing"
)

// edited is the recorded pick as the draft's pool would have shown it: what the
// draft changes against the pool that it was made in, and what the requests before
// it have changed since they went elsewhere.
func (r *Replay) draftChoice(p *pick, to *sidePool) *routing.Choice {
	c := *p.a.Choice
	c.Candidates = make([]routing.Candidate, 0, len(p.a.Choice.Candidates)+1)
	workers := make([]routing.Loaded, 0, cap(c.Candidates))
	model, all := uint64(p.d.Features.Model), true
	for i := range p.a.Choice.Candidates {
		v := p.a.Choice.Candidates[i]
		w, is, known := r.draftCandidate(p, to, &v)
		if is {
			c.Candidates, workers = append(c.Candidates, v), append(workers, w)
		}
		all = all && known
	}
	same := to.sameMembers()
	for i := range to.Members {
		m := &to.Members[i]
		if !m.Takes(model) || p.a.Choice.Of(m.ID) != nil {
			continue
		}
		if !to.addsCandidate(m, model) {
			all = all && !to.mayAdmitUnrecorded(m)
			continue
		}
		v, w := r.unrecordedCandidate(p, to, m, i)
		c.Candidates, workers, same = append(c.Candidates, v), append(workers, w), false
	}
	if same {
		for i := range workers {
			workers[i].Group = 0 // as shown together
		}
	}
	to.filterEligible(p, &c, model, workers)
	if !same {
		to.order(&c)
	}
	if !all {
		r.sums.Unknown.Bounds++
	}
	return &c
}

// recorded makes a candidate one of the draft's pool, and returns the worker whose
// eligibility is decided; is is false where the draft has removed it. The record knows best
// whether a worker was full: bounds count where the draft changes them or the load. known
// is false if they ask for a number that is not in the records.
func (r *Replay) draftCandidate(p *pick, to *sidePool, v *routing.Candidate) (w routing.Loaded, is, known bool) {
	was, _ := to.was.member(v.Worker)
	m, _ := to.member(v.Worker)
	if m == nil && was != nil {
		return w, false, true
	}
	w = routing.Loaded{Waiting: v.Waiting, KVUsage: v.KVUsage, Reported: v.Inflight}
	known = true
	if to.was != nil && to.was.Saturation.Reached(v.Waiting, v.KVUsage) {
		// It was shown all the same: the metrics were too old, or fewer waited by then.
		w.Waiting, w.KVUsage, known = 0, 0, to.Saturation == to.was.Saturation
	}
	bound := false
	if m != nil {
		w.Group = m.Group
		if was == nil || m.Weight != was.Weight {
			v.Weight = m.Weight
		}
		if was == nil || !slices.Equal(m.Models, was.Models) {
			w.Models = m.Models
		}
		if was == nil || m.MaxInflight != was.MaxInflight || m.MaxTokensInflight != was.MaxTokensInflight {
			v.MaxInflight, bound = m.MaxInflight, true
		}
	}
	bound = r.applyDivergence(p, to, v) || bound
	w.ID, w.Weight, w.Inflight = v.Worker, v.Weight, v.Inflight
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

// tokens returns how many tokens a candidate has in flight, of prompts, cached or not, and
// expected answers. They are known of a worker that was idle, and where as many requests
// were in flight at the pick as the records hold; else they are at least those booked.
func (r *Replay) tokens(p *pick, to *sidePool, v *routing.Candidate, inflight int) (tokens int64, known bool) {
	was, is := &workerState{}, to.of(v.Worker)
	if now := r.now.pools[p.d.Tier]; now != nil {
		was = now.of(v.Worker)
	}
	switch inflight {
	case was.inflight:
		return is.tokens, true
	case 0:
		return max(0, is.tokens-was.tokens), true
	}
	return v.PendingTokens + v.OutputTokens, false
}

// joins tells whether a member takes part that the record does not show: one that is
// new, or that was kept out by what the draft changes. Who was down, full or
// resting then is not known to be otherwise.
func (to *sidePool) addsCandidate(m *routing.Member, model uint64) bool {
	was, _ := to.was.member(m.ID)
	return was == nil || !was.Takes(model) || was.Group != m.Group
}

// looser tells whether a member that the record does not show may have been kept out by a
// bound that the draft raises.
func (to *sidePool) mayAdmitUnrecorded(m *routing.Member) bool {
	was, _ := to.was.member(m.ID)
	before, after := &to.was.Saturation, &to.Saturation
	return raised(was.MaxInflight, m.MaxInflight) || raised(was.MaxTokensInflight, m.MaxTokensInflight) ||
		raised(before.Waiting, after.Waiting) || raised(before.KVUsage, after.KVUsage) || raised(after.StaleAfter, before.StaleAfter)
}

// raised compares two bounds, of which 0 is none.
func raised[N int | int64 | float64 | time.Duration](was, is N) bool {
	return was > 0 && (is <= 0 || is > was)
}

// show leaves the candidates that the pool shows its policy, which workers says of each.
// If all are full or saturated, the request would wait for any of them.
func (to *sidePool) filterEligible(p *pick, c *routing.Choice, model uint64, workers []routing.Loaded) {
	q := routing.Request{Now: p.moment(), Model: model, PromptTokens: c.PromptTokens, OutputTokens: c.OutputTokens, Wait: c.Waits}
	shown, err := routing.Eligible(to.policy, to.Saturation, &q, workers)
	if errors.Is(err, routing.ErrFull) {
		for i := range workers {
			workers[i] = routing.Loaded{Member: workers[i].Member}
		}
		shown, _ = routing.Eligible(to.policy, to.Saturation, &q, workers)
	}
	for i := range shown {
		c.Candidates[i] = c.Candidates[shown[i].Index] // which is i or after it
		c.Candidates[i].Full = shown[i].Full
	}
	c.Candidates, c.Seen = c.Candidates[:len(shown)], len(shown)
}

// sameMembers tells whether the draft leaves all members and their groups as they are.
func (to *sidePool) sameMembers() bool {
	return to.was != nil && slices.EqualFunc(to.was.Members, to.Members, func(a, b routing.Member) bool { return a.ID == b.ID && a.Group == b.Group })
}

// order numbers the candidates by their places among the draft's members, where these
// are others than before.
func (to *sidePool) order(c *routing.Choice) {
	last := int(c.Memory) // a policy of turns remembers the place of who had the last
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

// shift adds to a candidate what the draft has placed on it and the real gateway had
// not, and takes away what is elsewhere. It tells whether that changes what is in flight
// there.
func (r *Replay) applyDivergence(p *pick, to *sidePool, v *routing.Candidate) (moved bool) {
	if !r.diverged {
		return false
	}
	was, is := r.now.pools[p.d.Tier].of(v.Worker), to.of(v.Worker)
	v.Inflight = max(0, v.Inflight+is.inflight-was.inflight)
	v.PendingTokens = max(0, v.PendingTokens+is.pending-was.pending)
	v.OutputTokens = max(0, v.OutputTokens+is.output-was.output)
	more := is.cache.hit(p.residency.chain, p.a.Choice.PromptTokens) - was.cache.hit(p.residency.chain, p.a.Choice.PromptTokens)
	v.Overlap = min(max(0, v.Overlap+more), max(0, p.a.Choice.PromptTokens))
	return is.inflight != was.inflight || is.tokens != was.tokens
}

// idle is a member of which the record says nothing, with what the draft has placed
// on it.
func (r *Replay) unrecordedCandidate(p *pick, to *sidePool, m *routing.Member, at int) (routing.Candidate, routing.Loaded) {
	w := to.of(m.ID)
	rate := w.rate
	if rate == 0 {
		rate = to.rate()
	}
	return routing.Candidate{Worker: m.ID, Index: at, Weight: m.Weight, Inflight: w.inflight, MaxInflight: m.MaxInflight,
			PendingTokens: w.pending, OutputTokens: w.output,
			Overlap: w.cache.hit(p.residency.chain, p.a.Choice.PromptTokens), Rate: rate},
		routing.Loaded{Member: *m, Inflight: w.inflight, Tokens: w.tokens}
}

// rate is the mean prefill rate of the pool's workers, as far as records say.
func (to *sidePool) rate() float64 {
	sum, n := 0.0, 0
	for i := range to.Members { // not the map, whose order is chance
		if w := to.workers[to.Members[i].ID]; w != nil && w.rate > 0 {
			sum, n = sum+w.rate, n+1
		}
	}
	if n == 0 {
		return routing.PriorRate
	}
	return sum / float64(n)
}

// elsewhere is a pick in a pool that the request did not come to: of all members that
// could take it, with what the draft has placed on them.
func (r *Replay) otherPoolChoice(p *pick, to *sidePool) *routing.Choice {
	c := &routing.Choice{Rand: p.a.Choice.Rand, PromptTokens: p.a.Choice.PromptTokens, OutputTokens: p.a.Choice.OutputTokens, Waits: p.a.Choice.Waits}
	workers := make([]routing.Loaded, len(to.Members))
	c.Candidates = make([]routing.Candidate, len(to.Members))
	for i := range to.Members {
		c.Candidates[i], workers[i] = r.unrecordedCandidate(p, to, &to.Members[i], i)
	}
	to.filterEligible(p, c, 0, workers) // it asks for the pool's own model, not for the one of the record
	return c
}
