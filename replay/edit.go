package replay

import (
	"cmp"
	"math"
	"slices"

	"tierway/routing"
)

// edited is the recorded pick as the draft's pool would have shown it: what the
// draft changes against the pool that it was made in, and what the requests before
// it have changed since they went elsewhere.
func (r *Replay) edited(p *pick, to *sidePool) *routing.Choice {
	c := *p.a.Choice
	c.Candidates = make([]routing.Candidate, 0, len(p.a.Choice.Candidates)+1)
	model := uint64(p.d.Features.Model)
	for i := range p.a.Choice.Candidates {
		v := p.a.Choice.Candidates[i]
		if !to.change(&v, model) {
			continue
		}
		r.shift(p, to, &v)
		c.Candidates = append(c.Candidates, v)
	}
	same := to.sameMembers()
	for i := range to.Members {
		if m := &to.Members[i]; to.joins(m, &c, model) {
			c.Candidates, same = append(c.Candidates, r.idle(p, to, m, i)), false
		}
	}
	if !same {
		to.lowestGroup(&c)
		to.order(&c)
	}
	to.openOnes(&c)
	return &c
}

// change makes a candidate one of the draft's pool, and tells whether it is one.
func (to *sidePool) change(v *routing.Candidate, model uint64) bool {
	was, _ := to.was.member(v.Worker)
	is, _ := to.member(v.Worker)
	switch {
	case is == nil:
		return was == nil // gone since, and not by the draft
	case is.Weight <= 0 && (was == nil || was.Weight > 0):
		return false
	case !serves(is, model) && (was == nil || serves(was, model)):
		return false
	}
	if was == nil {
		return true
	}
	if is.Weight != was.Weight {
		v.Weight = is.Weight
	}
	if is.MaxInflight != was.MaxInflight {
		v.MaxInflight = is.MaxInflight
		v.Full = is.MaxInflight > 0 && v.Inflight >= is.MaxInflight
	}
	return true
}

// joins tells whether a member takes part that the record does not show: one that is
// new, or that was kept out by what the draft changes. Who was down, full or
// resting then is not known to be otherwise.
func (to *sidePool) joins(m *routing.Member, c *routing.Choice, model uint64) bool {
	if m.Weight <= 0 || !serves(m, model) || c.Of(m.ID) != nil {
		return false
	}
	was, _ := to.was.member(m.ID)
	return was == nil || was.Weight <= 0 || !serves(was, model) || was.Group != m.Group
}

func serves(m *routing.Member, model uint64) bool {
	return model == 0 || len(m.Models) == 0 || slices.Contains(m.Models, model)
}

// lowestGroup leaves the candidates of the lowest group.
func (to *sidePool) lowestGroup(c *routing.Choice) {
	groupOf := func(v *routing.Candidate) int {
		if m, _ := to.member(v.Worker); m != nil {
			return m.Group
		}
		return 0
	}
	lowest := math.MaxInt
	for i := range c.Candidates {
		lowest = min(lowest, groupOf(&c.Candidates[i]))
	}
	c.Candidates = slices.DeleteFunc(c.Candidates, func(v routing.Candidate) bool { return groupOf(&v) > lowest })
}

// sameMembers tells whether the draft leaves all members and their groups as they are.
func (to *sidePool) sameMembers() bool {
	return to.was != nil && slices.EqualFunc(to.was.Members, to.Members, func(a, b routing.Member) bool { return a.ID == b.ID && a.Group == b.Group })
}

// openOnes leaves the candidates that a policy is shown: full ones only where it
// weighs a wait, or where all are, since the request would wait for any of them.
func (to *sidePool) openOnes(c *routing.Choice) {
	planner, ok := to.policy.(routing.Planner)
	full := func(v routing.Candidate) bool { return v.Full }
	if ok && planner.Plans() && c.Waits || !slices.ContainsFunc(c.Candidates, full) {
		c.Seen = len(c.Candidates)
		return
	}
	if open := slices.DeleteFunc(slices.Clone(c.Candidates), full); len(open) > 0 {
		c.Candidates = open
	}
	for i := range c.Candidates {
		c.Candidates[i].Full = false
	}
	c.Seen = len(c.Candidates)
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
// not, and takes away what is elsewhere.
func (r *Replay) shift(p *pick, to *sidePool, v *routing.Candidate) {
	if !r.parted {
		return
	}
	was, is := r.now.pools[p.d.Tier].of(v.Worker), to.of(v.Worker)
	if more := is.inflight - was.inflight; more != 0 {
		v.Inflight = max(0, v.Inflight+more)
		v.Full = v.MaxInflight > 0 && v.Inflight >= v.MaxInflight
	}
	v.PendingTokens = max(0, v.PendingTokens+is.pending-was.pending)
	v.OutputTokens = max(0, v.OutputTokens+is.output-was.output)
	more := is.cache.hit(p.stay.chain, p.a.Choice.PromptTokens) - was.cache.hit(p.stay.chain, p.a.Choice.PromptTokens)
	v.Overlap = min(max(0, v.Overlap+more), max(0, p.a.Choice.PromptTokens))
}

// idle is a member of which the record says nothing, with what the draft has placed
// on it.
func (r *Replay) idle(p *pick, to *sidePool, m *routing.Member, at int) routing.Candidate {
	w := to.of(m.ID)
	rate := w.rate
	if rate == 0 {
		rate = to.rate()
	}
	return routing.Candidate{Worker: m.ID, Index: at, Weight: m.Weight, Inflight: w.inflight, MaxInflight: m.MaxInflight,
		Full: m.MaxInflight > 0 && w.inflight >= m.MaxInflight, PendingTokens: w.pending, OutputTokens: w.output,
		Overlap: w.cache.hit(p.stay.chain, p.a.Choice.PromptTokens), Rate: rate}
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
func (r *Replay) elsewhere(p *pick, to *sidePool) *routing.Choice {
	c := &routing.Choice{Rand: p.a.Choice.Rand, PromptTokens: p.a.Choice.PromptTokens, OutputTokens: p.a.Choice.OutputTokens, Waits: p.a.Choice.Waits}
	for i := range to.Members {
		if m := &to.Members[i]; m.Weight > 0 { // it asks for the pool's own model, not for the one of the record
			c.Candidates = append(c.Candidates, r.idle(p, to, m, i))
		}
	}
	to.lowestGroup(c)
	to.openOnes(c)
	return c
}
