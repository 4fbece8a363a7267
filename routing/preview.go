package routing

import (
	"slices"
	"time"
)

// Preview is where a request would go now.
type Preview struct {
	Worker     string // empty after an error other than ErrFull and ErrBestWorkerFull
	Ref        any    // the member's Ref
	Reason     Reason
	WorkerFull bool       // the worker is full: the request would wait for it
	Choice     Choice     // what the policy would see, and its result
	Excluded   []Excluded // the members that the policy would not be shown
}

// Excluded is a member that the policy is not shown.
type Excluded struct {
	Worker string    `json:"worker"`
	Why    string    `json:"why"`            // one word, see ExcludedDown
	Until  time.Time `json:"until,omitzero"` // end of the backoff, the open state or the slow start
}

// The reasons why a member is not shown to the policy, besides ExcludedFull. If several apply,
// the first one in this order is given.
const (
	ExcludedDown        = "down"
	ExcludedNoWeight    = "no_weight"
	ExcludedModel       = "model"        // it does not serve the model
	ExcludedOtherWorker = "other_worker" // the request is for another worker only
	ExcludedTried       = "tried"
	ExcludedOpen        = "open" // its breaker is open, or its server accepts no connection
	ExcludedBackoff     = "backoff"
	ExcludedOverdue     = "overdue" // its requests are overdue, and another worker takes requests
	ExcludedGroup       = "group"   // a lower group has a usable worker
	ExcludedSaturated   = "saturated"
	ExcludedRegion      = "region"     // a worker of a nearer region takes requests
	ExcludedSlowStart   = "slow_start" // it is in slow start and has its share
)

// Draft is a configuration of a pool that is evaluated but not applied. A member with the ID and
// Ref of an existing worker is that worker, with its load and learned values. Any other member
// is a new worker that is up and idle.
type Draft struct {
	Policy  Policy // the pool's own, or one that is not used meanwhile
	Members []Member
	Limit   Saturation
	Health  HealthWeight
}

// Preview returns where Acquire would book the request now, or under a draft if draft is not
// nil. It changes nothing and calls no gate. Its errors are those of Acquire; the Preview is
// complete with an error too. A clone of the policy picks outside the pool's lock, because
// adding new workers to a ring may take as long as a thousand requests.
func (p *Pool) Preview(r *Request, draft *Draft, tried ...*Worker) (o Preview, err error) {
	q := *r
	q.Record, q.preview = &o.Choice, true
	captured, err := p.capture(&q, draft, tried)
	o.Excluded = captured.excluded
	if err != nil {
		return o, err
	}
	detached := Pool{policy: captured.policy, assessments: make([]assessment, len(captured.views))}
	i, reason := detached.pickLocked(&q, captured.views)
	v := &captured.views[i]
	o.Worker, o.Ref, o.Reason, o.WorkerFull = v.ID, captured.workers[v.Index].ref, reason, v.Full
	if o.WorkerFull {
		return o, waitError(captured.views)
	}
	return o, nil
}

// poolView is what a preview reads from a pool. It is safe to use after the pool is unlocked.
type poolView struct {
	policy   Policy
	workers  []*Worker // only their immutable fields may be read
	views    []View
	excluded []Excluded
}

// cloner is a Policy with memory.
type cloner interface {
	// clone returns a copy of the policy for one pick of that request. What the copy learns is
	// lost.
	clone(r *Request) Policy
}

// policyCopy returns a policy that picks like p. p learns nothing from its picks.
func policyCopy(p Policy, r *Request) Policy {
	if remembers, ok := p.(cloner); ok {
		return remembers.clone(r)
	}
	return p
}

// capture copies what a preview of that request needs. It holds the lock for a time that grows
// with the number of members.
func (p *Pool) capture(r *Request, draft *Draft, tried []*Worker) (v poolView, err error) {
	var draftPool *Pool
	var at map[string]int
	if draft != nil {
		draftPool, at = newDraft(draft) // the slow part runs before the lock
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if draft != nil {
		tried = draftPool.copyLocked(p, at, r.Now, tried)
		draftPool.configureLocked(draft)
		p = draftPool
	}
	ws, err := p.showLocked(r, tried)
	v.workers, v.views, v.excluded = p.workers, slices.Clone(ws), p.allExcludedLocked(r, ws, tried)
	if err == nil {
		v.policy = policyCopy(p.policy, r)
	}
	return v, err
}

// UpUnder returns what Up and Ready would return under the draft.
func (p *Pool) UpUnder(draft *Draft, now time.Time) (up, ready bool) {
	draftPool, at := newDraft(draft)
	p.mu.Lock()
	defer p.mu.Unlock()
	draftPool.copyLocked(p, at, now, nil)
	draftPool.configureLocked(draft)
	return draftPool.Up(now), draftPool.Ready(now)
}

// newDraft returns a temporary pool with one empty worker for each member, and their indexes
// by ID.
func newDraft(d *Draft) (p *Pool, at map[string]int) {
	p = &Pool{
		policy:       d.Policy,
		facts:        usesCosts | factsOf(d.Policy),
		saturation:   d.Limit,
		healthWeight: d.Health,
		workers:      make([]*Worker, len(d.Members)),
		views:        make([]View, 0, len(d.Members)),
	}
	workers := make([]Worker, len(d.Members))
	at = make(map[string]int, len(d.Members))
	for i := range d.Members {
		workers[i].ref = d.Members[i].Ref
		p.workers[i], at[d.Members[i].ID] = &workers[i], i
	}
	return p, at
}

// copyLocked copies the workers of a live pool into a temporary pool, which may then be used
// under the live pool's lock only. It returns the copies of the workers in tried.
func (p *Pool) copyLocked(live *Pool, at map[string]int, now time.Time, tried []*Worker) (copied []*Worker) {
	for _, w := range live.workers {
		live.endDuePrefillsLocked(w, now)
	}
	p.slowness, p.pausedUntil, p.inflightPrefixes, p.caches, p.learned = live.slowness, live.pausedUntil,
		live.inflightPrefixes, live.caches, live.learned
	p.times, p.traffic, p.others, p.pins = live.times, live.traffic, live.others, live.pins
	for _, w := range live.workers {
		i, ok := at[w.id]
		if !ok || p.workers[i].ref != w.ref {
			continue
		}
		*p.workers[i] = *w
		if slices.Contains(tried, w) {
			copied = append(copied, p.workers[i])
		}
	}
	p.inflightPrefixes.reserveRoom(len(p.workers))
	p.learned.sorted = make([]float64, 0, len(p.workers))
	return copied
}

// configureLocked applies the draft's configuration to the workers of a temporary pool.
func (p *Pool) configureLocked(d *Draft) {
	for i, w := range p.workers {
		m := &d.Members[i]
		if w.id == "" {
			w.id, w.idHash, w.column, w.status = m.ID, HashText(m.ID), -1, Status{Up: true}
			p.levelRecentLocked(w)
			w.learned[prefillRate].limits, w.learned[tokenTime].limits = rateLimits, timeLimits
		}
		w.index, w.weight, w.group, w.maxInflight = i, m.Weight, m.Group, m.MaxInflight
		w.maxTokens, w.models, w.region, w.prefillEnds = m.MaxTokensInflight, m.Models, m.Region, nil
	}
	p.capEjectionsLocked()
	for q := range quantities {
		p.refreshLocked(q)
	}
}

// allExcludedLocked returns the members that are not among those shown, each with its reason.
func (p *Pool) allExcludedLocked(r *Request, shown []View, tried []*Worker) (others []Excluded) {
	group, _ := p.groupLocked(r, tried)
	farthest := len(r.Regions) // of the workers shown, if some are
	for i := range shown {
		if d := r.distance(p.workers[shown[i].Index]); i == 0 || d > farthest {
			farthest = d
		}
	}
	for i, w := range p.workers {
		if len(shown) > 0 && shown[0].Index == i { // both are in the order of the members
			shown = shown[1:]
			continue
		}
		others = append(others, p.excludedLocked(w, r, tried, group, farthest))
	}
	return others
}

// excludedLocked returns why the worker is not shown. A policy that plans is shown full workers,
// unless they are in slow start or in a region beyond farthest.
func (p *Pool) excludedLocked(w *Worker, r *Request, tried []*Worker, group, farthest int) Excluded {
	is := Excluded{Worker: w.id, Why: w.exclusionLocked(r, tried)}
	saturated, _ := p.metricsLocked(w, r.Now)
	open := w.openUntilLocked()
	switch {
	case is.Why != "":
	case r.Now.Before(open) && open.After(w.backoffUntil):
		is.Why, is.Until = ExcludedOpen, open
	case w.pausedLocked(r.Now):
		is.Why, is.Until = ExcludedBackoff, w.backoffUntil
	case w.hidden:
		is.Why = ExcludedOverdue
	case w.group != group:
		is.Why = ExcludedGroup
	case saturated:
		is.Why = ExcludedSaturated
	case w.fullLocked(booked(r.PromptTokens)+booked(r.OutputTokens)) && !(r.Wait && plans(p.policy, r)):
		is.Why = ExcludedFull
	case r.distance(w) > farthest:
		is.Why = ExcludedRegion
	case w.ejectionDenied:
		is.Why = ExcludedSlowStart
	default:
		is.Why, is.Until = ExcludedSlowStart, w.slowStartFrom.Add(slowStartTime)
	}
	return is
}
