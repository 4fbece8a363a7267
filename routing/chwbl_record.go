package routing

import (
	"maps"
	"slices"
)

// keysOf are the values of Choice.KeyOf.
var keysOf = [...]string{byNothing: "", byPrefix: "prefix", byModel: "model"}

// chwblTerms are the terms of a candidate: its place clockwise from the home, and its requests and
// tokens as shares of their bounds.
func chwblTerms() *[maxTerms]string { return &[maxTerms]string{stepTerm, "requests", "tokens"} }

// recordAssessments records the request's key, and each candidate's distance from the home and from
// its bounds. The score is the place clockwise from the home, which is at s and at. Candidates that
// the bounded walk does not meet share the last place.
func (p *chwbl) recordAssessments(r *Request, ws []View, b *loadBound, squares float64, by int, key uint64, s *slot,
	at int) {
	c := r.Record
	c.Key, c.KeyOf, c.Memory, c.Halved = Hash(key), keysOf[by], squares, p.ring.halved
	waits := anyOf(ws, true)
	p.ring.eachWorker(ws, s, at, func(i, step int) {
		p.assess(&r.assessments[i], &ws[i], b, step, waits || step == 0)
	})
}

// assess fills the assessment of one candidate. An idle home has no bound; if some worker is full,
// no idle worker has one.
func (p *chwbl) assess(m *assessment, v *View, b *loadBound, step int, idle bool) {
	requests := float64(v.Inflight+1) / b.maxRequests(v)
	tokens := 0.0
	if b.slack > 0 {
		tokens = b.tokensWith(v) / b.maxTokens(v)
	}
	m.score, m.excluded = float64(step), exclusionIfFull(v)
	switch {
	case m.excluded != "" || idle && v.Inflight == 0:
	case requests > 1:
		m.excluded = ExcludedRequests
	case tokens > 1:
		m.excluded = ExcludedTokens
	}
	m.terms = Terms{names: p.terms, values: [maxTerms]float64{float64(step), requests, tokens}}
}

// recordRunnerUp records the worker that would take the request without the chosen one, whose
// absence changes the bounds. If some worker is full, the assessments decide.
func (p *chwbl) recordRunnerUp(r *Request, ws []View, squares float64, chosen int) {
	if len(ws) < 2 || anyOf(ws, true) {
		return
	}
	b := p.bound(r, ws, squares, chosen)
	home, fit := -1, -1
	before := func(i, j int) bool { return j < 0 || r.assessments[i].score < r.assessments[j].score }
	for i := range ws {
		if i == chosen {
			continue
		}
		if before(i, home) {
			home = i
		}
		if before(i, fit) && b.admits(&ws[i]) {
			fit = i
		}
	}
	r.runnerUp = home
	if fit >= 0 && ws[home].Inflight > 0 {
		r.runnerUp = fit
	}
}

// clone copies only what the pick needs. For a recorded pick it shares the ring, which depends on
// the workers' IDs and weights only; the key comes with the record.
func (p *chwbl) clone(r *Request) Policy {
	q := *p
	if r.recorded == nil {
		q.ring = p.ring.clone()
	}
	if p.keys != nil && r.recalled(p) == nil {
		q.keys = p.keys.Clone(r.Blocks)
	}
	return &q
}

// clone returns a ring for calls of update that leave g unchanged. The points are shared: a new
// worker causes new ones.
func (g *ring) clone() *ring {
	c := *g
	c.slots, c.slotByIndex, c.byID = slices.Clone(g.slots), slices.Clone(g.slotByIndex), maps.Clone(g.byID)
	return &c
}
