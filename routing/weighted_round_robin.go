package routing

import "slices"

// weightedRoundRobin gives each worker turns in proportion to its weight and spreads them: weights
// 5, 1, 1 give a a b a c a a, not a a a a a b c. It is nginx's smooth algorithm: at each turn every
// worker earns its weight, and the worker with the most credit pays the sum of all weights. An
// absent worker keeps its credit.
type weightedRoundRobin struct {
	pick     uint64    // number of picks, which marks the accounts that took part
	eligible int       // number of workers in the last pick
	accounts []account // by View.Index
	terms    *[maxTerms]string
}

// account is the credit of one member.
type account struct {
	id     string
	weight float64
	credit float64 // earned and not spent
	pick   uint64  // the last pick in which it took part
}

func newWeightedRoundRobin() *weightedRoundRobin {
	return &weightedRoundRobin{terms: &[maxTerms]string{hasTerm}}
}

func (*weightedRoundRobin) Name() string { return "weighted_round_robin" }

// Pick returns the worker with the most credit, of equals the first member.
func (p *weightedRoundRobin) Pick(r *Request, ws []View) (int, Reason) {
	if p.markPresent(ws) {
		p.limitDebts(ws)
	}
	p.recordCredits(r, ws)
	best, total := 0, 0.0
	for i := range ws {
		own := &p.accounts[ws[i].Index]
		own.credit += ws[i].weight()
		total += ws[i].weight()
		if own.credit > p.accounts[ws[best].Index].credit {
			best = i
		}
	}
	p.accounts[ws[best].Index].credit -= total
	return best, ReasonWeightedRoundRobin
}

func (p *weightedRoundRobin) clone(*Request) Policy {
	q := *p
	q.accounts = slices.Clone(p.accounts)
	return &q
}

// hasTerm is the only term of a candidate: its credit before this turn's weight.
const hasTerm = "has"

// recordCredits restores the credits of a pick that is decided again, and records the credits of a pick
// that is recorded.
func (p *weightedRoundRobin) recordCredits(r *Request, ws []View) {
	for i := range ws {
		own := &p.accounts[ws[i].Index]
		if was := r.recalled(p); was != nil {
			if c := was.CandidateOf(ws[i].ID); c != nil {
				own.credit = c.Terms.Get(hasTerm)
			}
		}
		if r.assessments != nil {
			r.assess(i, -(own.credit + ws[i].weight()), "")
			r.assessments[i].terms = Terms{names: p.terms, values: [maxTerms]float64{own.credit}}
		}
	}
}

// markPresent marks the accounts of ws for this pick and makes accounts for new members. It reports whether
// the workers or their weights have changed since the last pick.
func (p *weightedRoundRobin) markPresent(ws []View) (changed bool) {
	changed = len(ws) != p.eligible
	p.pick, p.eligible = p.pick+1, len(ws)
	for i := range ws {
		v := &ws[i]
		for v.Index >= len(p.accounts) {
			p.accounts = append(p.accounts, account{})
		}
		own := &p.accounts[v.Index]
		if own.id != v.ID {
			*own = account{id: v.ID, credit: p.meanCredit(ws)}
		}
		changed = changed || own.pick != p.pick-1 || own.weight != v.weight()
		own.pick, own.weight = p.pick, v.weight()
	}
	return changed
}

// meanCredit returns the mean credit of the workers of the last pick. A new worker begins with it,
// neither first nor last.
func (p *weightedRoundRobin) meanCredit(ws []View) float64 {
	sum, n := 0.0, 0.0
	for i := range ws {
		if at := ws[i].Index; at < len(p.accounts) && p.accounts[at].id == ws[i].ID && p.accounts[at].pick+1 >= p.pick &&
			p.accounts[at].pick > 0 {
			sum, n = sum+p.accounts[at].credit, n+1
		}
	}
	if n == 0 {
		return 0
	}
	return sum / n
}

// limitDebts bounds every debt to twice the sum of the weights, the largest difference between present
// workers. A debt from a time of higher weights would otherwise cost as many turns.
func (p *weightedRoundRobin) limitDebts(ws []View) {
	total, top := 0.0, p.accounts[ws[0].Index].credit
	for i := range ws {
		total += ws[i].weight()
		top = max(top, p.accounts[ws[i].Index].credit)
	}
	for i := range ws {
		own := &p.accounts[ws[i].Index]
		own.credit = max(own.credit, top-2*total)
	}
}
