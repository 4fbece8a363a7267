package routing

import "slices"

// weightedRoundRobin gives each worker turns in proportion to its weight and spreads them: weights
// 5, 1, 1 give a a b a c a a, not a a a a a b c. It is nginx's smooth algorithm: at each turn every
// worker earns its weight, and the worker with the most credit pays the sum of all weights. An
// absent worker keeps its credit.
type weightedRoundRobin struct {
	pick     uint64  // number of picks, which marks the purses that took part
	eligible int     // number of workers in the last pick
	purses   []purse // by View.Index
	terms    *[maxTerms]string
}

// purse is the credit of one member.
type purse struct {
	id     string
	weight int
	has    int64  // credit: earned and not spent
	pick   uint64 // the last pick in which it took part
}

func newWeightedRoundRobin() *weightedRoundRobin {
	return &weightedRoundRobin{terms: &[maxTerms]string{hasTerm}}
}

func (*weightedRoundRobin) Name() string { return "weighted_round_robin" }

// Pick returns the worker with the most credit, of equals the first member.
func (p *weightedRoundRobin) Pick(r *Request, ws []View) (int, Reason) {
	if p.enter(ws) {
		p.level(ws)
	}
	p.remember(r, ws)
	best, total := 0, int64(0)
	for i := range ws {
		mine := &p.purses[ws[i].Index]
		mine.has += int64(ws[i].Weight)
		total += int64(ws[i].Weight)
		if mine.has > p.purses[ws[best].Index].has {
			best = i
		}
	}
	p.purses[ws[best].Index].has -= total
	return best, ReasonWeightedRoundRobin
}

func (p *weightedRoundRobin) clone(*Request) Policy {
	q := *p
	q.purses = slices.Clone(p.purses)
	return &q
}

// hasTerm is the only term of a candidate: its credit before this turn's weight.
const hasTerm = "has"

// remember restores the credits of a pick that is decided again, and records the credits of a pick
// that is recorded.
func (p *weightedRoundRobin) remember(r *Request, ws []View) {
	for i := range ws {
		mine := &p.purses[ws[i].Index]
		if was := r.recalled(p); was != nil {
			if c := was.CandidateOf(ws[i].ID); c != nil {
				mine.has = int64(c.Terms.Get(hasTerm))
			}
		}
		if r.assessments != nil {
			r.assess(i, -float64(mine.has+int64(ws[i].Weight)), "")
			r.assessments[i].terms = Terms{names: p.terms, values: [maxTerms]float64{float64(mine.has)}}
		}
	}
}

// enter marks the purses of ws for this pick and makes purses for new members. It reports whether
// the workers or their weights have changed since the last pick.
func (p *weightedRoundRobin) enter(ws []View) (changed bool) {
	changed = len(ws) != p.eligible
	p.pick, p.eligible = p.pick+1, len(ws)
	for i := range ws {
		v := &ws[i]
		for v.Index >= len(p.purses) {
			p.purses = append(p.purses, purse{})
		}
		mine := &p.purses[v.Index]
		if mine.id != v.ID {
			*mine = purse{id: v.ID, has: p.middle(ws)}
		}
		changed = changed || mine.pick != p.pick-1 || mine.weight != v.Weight
		mine.pick, mine.weight = p.pick, v.Weight
	}
	return changed
}

// middle returns the mean credit of the workers of the last pick. A new worker begins with it,
// neither first nor last.
func (p *weightedRoundRobin) middle(ws []View) int64 {
	sum, n := int64(0), int64(0)
	for i := range ws {
		if at := ws[i].Index; at < len(p.purses) && p.purses[at].id == ws[i].ID && p.purses[at].pick+1 >= p.pick &&
			p.purses[at].pick > 0 {
			sum, n = sum+p.purses[at].has, n+1
		}
	}
	if n == 0 {
		return 0
	}
	return sum / n
}

// level bounds every debt to twice the sum of the weights, the largest difference between present
// workers. A debt from a time of higher weights would otherwise cost as many turns.
func (p *weightedRoundRobin) level(ws []View) {
	total, top := int64(0), p.purses[ws[0].Index].has
	for i := range ws {
		total += int64(ws[i].Weight)
		top = max(top, p.purses[ws[i].Index].has)
	}
	for i := range ws {
		mine := &p.purses[ws[i].Index]
		mine.has = max(mine.has, top-2*total)
	}
}
