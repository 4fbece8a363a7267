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
	Why    string    `json:"why"` // in one word: down, no_weight, model, not_asked, tried, cooling, open, full, saturated, starting or group
	Until  time.Time `json:"until,omitzero"`
}

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
		defer p.standInLocked(draft, r.Now)()
	}
	q := *r
	q.Record, q.dry = &o.Choice, true
	ws, err := p.showLocked(&q, tried, nil)
	for _, w := range p.workers {
		if !slices.ContainsFunc(ws, func(v View) bool { return v.Index == w.index }) {
			o.Others = append(o.Others, w.passedLocked(p, &q, tried))
		}
	}
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
	for i, m := range d.Members {
		w := &Worker{id: m.ID, ref: m.Ref, slot: -1, status: Status{Up: true}, value: p.usualLocked()}
		if at := slices.IndexFunc(workers, func(w *Worker) bool { return w.id == m.ID }); at >= 0 {
			workers[at].expireLocked(now)
			same := *workers[at]
			w = &same
		}
		w.index, w.weight, w.group, w.maxInflight = i, m.Weight, m.Group, m.MaxInflight
		w.maxTokens, w.models, w.firstDue, w.lastDue = m.MaxTokensInflight, m.Models, nil, nil
		next[i] = w
	}
	planner, ok := d.Policy.(Planner)
	p.policy, p.plans, p.workers = d.Policy, ok && planner.Plans(), next
	p.views, p.marks = make([]View, 0, len(next)), make([]mark, len(next))
	p.chains.room(len(next))
	return func() {
		p.policy, p.plans, p.workers, p.views, p.marks, p.chains.alive = policy, plans, workers, views, marks, alive
	}
}

// usualLocked is what is believed of a worker without samples.
func (p *Pool) usualLocked() (value [quantities]float64) {
	for q, l := range [quantities]limits{prefillRate: rateLimits, tokenTime: timeLimits} {
		value[q] = l.prior
		if p.learned.median[q] > 0 {
			value[q] = p.learned.median[q]
		}
	}
	return value
}

// passedLocked says why the worker was not shown to the policy.
func (w *Worker) passedLocked(p *Pool, r *Request, tried []*Worker) Passed {
	is := Passed{Worker: w.id}
	saturated, _ := p.metricsLocked(w, r.Now)
	switch {
	case !w.status.Up:
		is.Why = "down"
	case w.weight <= 0:
		is.Why = "no_weight"
	case !w.servesLocked(r.Model):
		is.Why = "model"
	case r.Only != nil && w.ref != r.Only:
		is.Why = "not_asked"
	case slices.ContainsFunc(tried, func(t *Worker) bool { return t.id == w.id }):
		is.Why = "tried"
	case r.Now.Before(w.openUntil):
		is.Why, is.Until = "open", w.openUntil
	case r.Now.Before(w.coolUntil):
		is.Why, is.Until = "cooling", w.coolUntil
	case saturated:
		is.Why = "saturated"
	case w.fullLocked(booked(r.PromptTokens) + booked(r.OutputTokens)):
		is.Why = PassedFull
	case w.shareLocked(r.Now) < 1:
		is.Why, is.Until = "starting", w.warmFrom.Add(rampTime)
	default:
		is.Why = "group"
	}
	return is
}
