package routing

import (
	"slices"
	"time"
)

// Outlook is where a request would go, were it sent now.
type Outlook struct {
	Worker string // empty when it could go to nobody now
	Ref    any    // its member's
	Reason Reason
	Held   bool   // the worker is full, and the request would wait for it
	Choice Choice // what the policy saw and made of it
	Others []Passed
}

// Passed is a member that the policy was not shown.
type Passed struct {
	Worker string    `json:"worker"`
	Why    string    `json:"why"`            // in one word, see PassedDown
	Until  time.Time `json:"until,omitzero"` // when it is over, of those that rest or start slowly
}

// Why a member was not shown to the policy, beside PassedFull. Of several the first one
// holds.
const (
	PassedDown      = "down"
	PassedNoWeight  = "no_weight"
	PassedModel     = "model"     // it does not serve it
	PassedNotAsked  = "not_asked" // the request is for another worker alone
	PassedTried     = "tried"
	PassedOpen      = "open" // its breaker is
	PassedCooling   = "cooling"
	PassedGroup     = "group" // a lower group has somebody
	PassedSaturated = "saturated"
	PassedStarting  = "starting" // it starts slowly, and has its share
)

// Draft is another policy and other members for a pool. A member with the ID of one
// that the pool has is that worker, with its load and what was learned of it; any
// other is a new worker that is up and idle.
type Draft struct {
	Policy  Policy
	Members []Member
}

// Preview says where the request would go by the code that books it, and books
// nothing: neither the pool nor its policy remembers anything of it. With a draft
// it says where it would go if the pool were configured so. Its errors are those of
// Acquire; the gate of the worker is not asked. The outlook is complete with an
// error too.
func (p *Pool) Preview(r *Request, draft *Draft, tried ...*Worker) (o Outlook, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if draft != nil {
		present := p.workers
		defer p.standInLocked(draft, r.Now)()
		tried = p.doublesLocked(tried, present)
	}
	q := *r
	q.Record, q.dry = &o.Choice, true
	ws, err := p.showLocked(&q, tried, nil)
	o.Others = p.othersLocked(&q, ws, tried)
	if err != nil {
		return o, err
	}
	i, reason := p.pickLocked(&q, ws)
	o.Worker, o.Ref, o.Reason, o.Held = ws[i].ID, p.workers[ws[i].Index].ref, reason, ws[i].Full
	if o.Held && anyOpen(ws) {
		return o, ErrHeld
	} else if o.Held {
		return o, ErrFull
	}
	return o, nil
}

// standInLocked puts a draft in the place of policy and members, and returns what
// puts them back.
func (p *Pool) standInLocked(d *Draft, now time.Time) (back func()) {
	policy, plans, workers, views, marks, alive := p.policy, p.plans, p.workers, p.views, p.marks, p.chains.alive
	next := make([]*Worker, len(d.Members))
	for i := range d.Members {
		next[i] = p.doubleLocked(&d.Members[i], i, now)
	}
	planner, ok := d.Policy.(Planner)
	p.policy, p.plans, p.workers = d.Policy, ok && planner.Plans(), next
	p.views, p.marks = make([]View, 0, len(next)), make([]mark, len(next))
	p.chains.room(len(next))
	known := p.learned
	p.learned.sorted = make([]float64, 0, len(next))
	for q := range quantities { // who has no samples is taken for a usual one of these
		p.refreshLocked(q)
	}
	p.learned = known
	return func() {
		p.policy, p.plans, p.workers, p.views, p.marks, p.chains.alive = policy, plans, workers, views, marks, alive
	}
}

// doubleLocked returns the worker that a draft's member at that index is.
func (p *Pool) doubleLocked(m *Member, index int, now time.Time) *Worker {
	w := &Worker{id: m.ID, ref: m.Ref, slot: -1, status: Status{Up: true}}
	w.learned[prefillRate].limits, w.learned[tokenTime].limits = rateLimits, timeLimits
	if at := slices.IndexFunc(p.workers, func(w *Worker) bool { return w.id == m.ID }); at >= 0 {
		p.workers[at].expireLocked(now)
		same := *p.workers[at]
		w = &same
	}
	w.index, w.weight, w.group, w.maxInflight = index, m.Weight, m.Group, m.MaxInflight
	w.maxTokens, w.models, w.firstDue, w.lastDue = m.MaxTokensInflight, m.Models, nil, nil
	return w
}

// doublesLocked returns who stands in for those of them that are present.
func (p *Pool) doublesLocked(of, present []*Worker) (doubles []*Worker) {
	for _, w := range p.workers {
		if slices.ContainsFunc(of, func(o *Worker) bool { return o.id == w.id && slices.Contains(present, o) }) {
			doubles = append(doubles, w)
		}
	}
	return doubles
}

// othersLocked returns the members that are not among those shown, and why.
func (p *Pool) othersLocked(r *Request, shown []View, tried []*Worker) (others []Passed) {
	round := Round{pool: p, now: r.Now}
	group := round.groupLocked(r, tried)
	for _, w := range p.workers {
		if !slices.ContainsFunc(shown, func(v View) bool { return v.Index == w.index }) {
			is := w.passedLocked(r, tried, w.group == group)
			if is.Why == "" {
				is.Why, is.Until = p.busyLocked(w, r)
			}
			others = append(others, is)
		}
	}
	return others
}

// passedLocked says why the worker may not take the request at all, or not soon; the
// word is empty where it may.
func (w *Worker) passedLocked(r *Request, tried []*Worker, inGroup bool) Passed {
	is := Passed{Worker: w.id}
	switch {
	case !w.status.Up:
		is.Why = PassedDown
	case w.weight <= 0:
		is.Why = PassedNoWeight
	case !w.servesLocked(r.Model):
		is.Why = PassedModel
	case r.Only != nil && w.ref != r.Only:
		is.Why = PassedNotAsked
	case slices.Contains(tried, w):
		is.Why = PassedTried
	case w.restsLocked(r.Now) && w.openUntil.After(w.coolUntil):
		is.Why, is.Until = PassedOpen, w.openUntil
	case w.restsLocked(r.Now):
		is.Why, is.Until = PassedCooling, w.coolUntil
	case !inGroup:
		is.Why = PassedGroup
	}
	return is
}

// busyLocked says why a worker that may take the request is not shown now. Full ones
// are shown to a policy that plans, unless they start slowly.
func (p *Pool) busyLocked(w *Worker, r *Request) (why string, until time.Time) {
	switch saturated, _ := p.metricsLocked(w, r.Now); {
	case saturated:
		return PassedSaturated, time.Time{}
	case w.fullLocked(booked(r.PromptTokens)+booked(r.OutputTokens)) && !(p.plans && r.Wait):
		return PassedFull, time.Time{}
	}
	return PassedStarting, w.warmFrom.Add(rampTime)
}
