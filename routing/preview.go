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

// Draft is another policy, other members and another saturation for a pool. A member
// with the ID of one that the pool has is that worker, with its load and what was
// learned of it; any other is a new worker that is up and idle.
type Draft struct {
	Policy  Policy // the pool's own, with its memory, or one that nobody else asks meanwhile
	Members []Member
	Limit   Saturation
}

// Preview says where the request would go by the code that books it, and books
// nothing: neither the pool nor its policy remembers anything of it. With a draft
// it says where it would go if the pool were configured so. Its errors are those of
// Acquire; the gate of the worker is not asked. The outlook is complete with an
// error too.
//
// Under the pool's lock it only looks: a policy is asked outside, in a copy of its
// memory, because one that comes to know new workers may take as long as a thousand
// requests do.
func (p *Pool) Preview(r *Request, draft *Draft, tried ...*Worker) (o Outlook, err error) {
	q := *r
	q.Record, q.dry = &o.Choice, true
	s, err := p.sight(&q, draft, tried)
	o.Others = s.others
	if err != nil {
		return o, err
	}
	apart := Pool{policy: s.policy, marks: make([]mark, len(s.views))}
	i, reason := apart.pickLocked(&q, s.views)
	v := &s.views[i]
	o.Worker, o.Ref, o.Reason, o.Held = v.ID, s.workers[v.Index].ref, reason, v.Full
	if o.Held && anyOpen(s.views) {
		return o, ErrHeld
	} else if o.Held {
		return o, ErrFull
	}
	return o, nil
}

// sight is what a preview saw of a pool: its own once the pool is unlocked.
type sight struct {
	policy  Policy
	workers []*Worker // of them only what never changes may be read
	views   []View
	others  []Passed
}

// rememberer is a Policy that remembers.
type rememberer interface {
	// alone returns a copy of the policy, to be asked of that request, and of
	// nothing else, without the pool's lock.
	alone(r *Request) Policy
}

// sight looks at the pool for that request, in time that grows with its members.
func (p *Pool) sight(r *Request, draft *Draft, tried []*Worker) (s sight, err error) {
	var doubles []Worker
	if draft != nil {
		doubles = make([]Worker, len(draft.Members)) // long ones: made before the lock
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if draft != nil {
		present := p.workers
		defer p.standInLocked(draft, doubles, r.Now)()
		tried = p.doublesLocked(tried, present)
	}
	ws, err := p.showLocked(r, tried, nil)
	s.others = p.othersLocked(r, ws, tried)
	s.policy, s.workers, s.views = p.policy, p.workers, slices.Clone(ws)
	if remembers, ok := p.policy.(rememberer); ok && err == nil {
		s.policy, r.dry = remembers.alone(r), false
	}
	return s, err
}

// standInLocked puts a draft in the place of policy, members and limit, and returns
// what puts them back. There is room for a worker for each of its members.
func (p *Pool) standInLocked(d *Draft, room []Worker, now time.Time) (back func()) {
	policy, plans, workers, views, marks, alive, limit := p.policy, p.plans, p.workers, p.views, p.marks, p.chains.alive, p.limit
	next, by := make([]*Worker, len(d.Members)), byID{workers: workers}
	for i := range d.Members {
		next[i] = &room[i]
		next[i].doubleLocked(&d.Members[i], by.find(i, d.Members[i].ID), i, now)
	}
	capEjections(next)
	planner, ok := d.Policy.(Planner)
	p.policy, p.plans, p.workers, p.limit = d.Policy, ok && planner.Plans(), next, d.Limit
	p.views, p.marks = make([]View, 0, len(next)), nil
	p.chains.room(len(next))
	known := p.learned
	p.learned.sorted = make([]float64, 0, len(next))
	for q := range quantities { // who has no samples is taken for a usual one of these
		p.refreshLocked(q)
	}
	p.learned = known
	return func() {
		p.policy, p.plans, p.workers, p.views, p.marks, p.chains.alive, p.limit = policy, plans, workers, views, marks, alive, limit
	}
}

// byID finds workers.
type byID struct {
	workers []*Worker
	known   map[string]*Worker // nil while each was where it was looked for
}

// find returns the worker of that ID, which is probably at that index; nil when
// there is none.
func (b *byID) find(at int, id string) *Worker {
	if at < len(b.workers) && b.workers[at].id == id {
		return b.workers[at]
	}
	if b.known == nil {
		b.known = make(map[string]*Worker, len(b.workers))
		for _, w := range b.workers {
			b.known[w.id] = w
		}
	}
	return b.known[id]
}

// doubleLocked makes w, which is zero, what was would be as a draft's member at that
// index; nil is a new worker.
func (w *Worker) doubleLocked(m *Member, was *Worker, index int, now time.Time) {
	if was != nil {
		was.expireLocked(now)
		*w = *was
	} else {
		w.id, w.ref, w.slot, w.status = m.ID, m.Ref, -1, Status{Up: true}
		w.learned[prefillRate].limits, w.learned[tokenTime].limits = rateLimits, timeLimits
	}
	w.index, w.weight, w.group, w.maxInflight = index, m.Weight, m.Group, m.MaxInflight
	w.maxTokens, w.models, w.firstDue, w.lastDue = m.MaxTokensInflight, m.Models, nil, nil
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
	seen := make([]bool, len(p.workers))
	for i := range shown {
		seen[shown[i].Index] = true
	}
	for i, w := range p.workers {
		if !seen[i] {
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
	case w.restsLocked(r.Now) && w.openUntilLocked().After(w.coolUntil):
		is.Why, is.Until = PassedOpen, w.openUntilLocked()
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
	if w.kept {
		return PassedStarting, time.Time{}
	}
	return PassedStarting, w.slowStartFrom.Add(rampTime)
}
