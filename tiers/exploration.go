package tiers

// RuleExploration is the rule of a request that got the first or the last tier at random.
const RuleExploration = "exploration"

// Propensity is the probability of the tier of an explored request, whatever tier the rules select:
//
//	P(tier | explored) = 1/2 for the first and for the last tier.
//
// A request is explored by a draw that depends on nothing else, and only if it can get both tiers. So explored requests
// are a random sample of these requests, in which the tier is independent of the request. The rule is exploration also
// if the rules would have selected the same tier, because without these requests the sample would depend on the rules.
//
// Among all requests the probability is another one: 1 − share/2 of those that the rules send to the tier get it, and
// share/2 of the others. No label has that weight, because only explored requests evaluate.
const Propensity = 0.5

// Exploration selects the first or the last tier for a share of the classified requests, instead of the tier of the
// rules. The answers show what the rules cannot: how the other tier would have answered. The zero value explores none.
type Exploration struct {
	Share float64 // probability that a request is explored, from 0 to 1
	Rand  uint64  // uniform
	// Tier is the tier of a recorded explored request, which it gets again if it exists. Share and Rand are then unused.
	Tier string
}

// draw returns two independent results: the request is explored, and an explored request gets the last tier.
func (e Exploration) draw() (explored, last bool) {
	const low = 1 << 53 // a float64 has 53 bits
	return float64(e.Rand>>1%low) < e.Share*low, e.Rand&1 == 1
}

// explore returns the tier of an explored request, or else at, the tier that the rules selected.
func (k *Catalog) explore(v *Resolution, q *Query, at int) int {
	if q.Report != nil {
		q.Report.Explorable = k.mayExplore(q)
	}
	to, ok := k.drawTier(q)
	switch {
	case !ok:
		return at
	case to != at:
		k.noteMove(q, v, at, RuleExploration)
	default:
		v.AddNote(overridden(v.Rule, k.targets[at].Name))
		v.Rule = RuleExploration
	}
	return to
}

func (k *Catalog) drawTier(q *Query) (int, bool) {
	if q.Explore.Tier != "" {
		to, ok := k.byName[q.Explore.Tier]
		return to, ok && k.targets[to].Tier
	}
	explored, toLast := q.Explore.draw()
	switch {
	case !explored || !k.mayExplore(q):
		return 0, false
	case toLast:
		return k.tiers[len(k.tiers)-1], true
	}
	return k.tiers[0], true
}

// mayExplore reports whether the first and the last tier differ, and both can take the request now.
func (k *Catalog) mayExplore(q *Query) bool {
	n := len(k.tiers)
	return n > 1 && k.canTake(q, k.tiers[0]) && k.canTake(q, k.tiers[n-1])
}

// canTake reports whether a tier can take an explored request now.
func (k *Catalog) canTake(q *Query, tier int) bool {
	name := k.targets[tier].Name
	return permits(q.Allowed, name) && takes(q, name) && (q.Blocked == nil || q.Blocked(name) == "")
}
