package routing

import (
	"slices"
	"time"
)

// Preview is where a request would go now.
type Preview struct {
	Worker     string // empty after an error other than ErrFull and ErrBestWorkerFull
	Reason     Reason
	WorkerFull bool       // the worker is full: the request would wait for it
	Choice     Choice     // what the policy would see, and its result
	Excluded   []Excluded // the members that the policy would not be shown
	// the same for the policy of the prefill stage; nil without a hand-over
	PrefillExcluded []Excluded
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
	ExcludedRole        = "role"         // it does not serve that stage of requests
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
	Policy   Policy // the pool's own, or one that is not used meanwhile
	Handover *Handover
	Members  []Member
	Limit    Saturation
	Health   HealthWeight
}

// Preview returns where Acquire would book the request now, or under a draft if draft is not
// nil. It changes nothing and calls no gate. Its errors are those of Acquire; the Preview is
// complete with an error too. A clone of the policy picks outside the pool's lock, because
// adding new workers to a ring may take as long as a thousand requests.
func (p *Pool) Preview(r *Request, draft *Draft, tried ...*Worker) (o Preview, err error) {
	q := *r
	q.Record, q.preview = &o.Choice, true
	captured, err := p.capture(&q, draft, tried)
	o.Excluded, o.PrefillExcluded = captured.excluded, captured.prefillExcluded
	if err != nil {
		return o, err
	}
	detached := Pool{policy: captured.policy, assessments: make([]assessment, len(captured.views))}
	i, reason := detached.pickLocked(&q, captured.views)
	v := &captured.views[i]
	o.Worker, o.Reason, o.WorkerFull = v.ID, reason, v.Full
	if o.WorkerFull {
		return o, waitError(captured.views)
	}
	if captured.handover == nil {
		return o, nil
	}
	d, at := captured.handover.decide(&q, captured.views, i, func(Request) prefillPick { return captured.pickPrefill(i) })
	d.Prefill = at.request.Record
	o.Choice.Handover = &d
	if at.err == nil || d.Decision == HandoverLocal {
		return o, nil
	}
	whole := *r // as in bookStagesLocked
	whole.Whole = true
	if w, err := p.Preview(&whole, draft, tried...); err == nil {
		w.Choice.whyWhole()
		return w, nil
	}
	return o, at.err
}

// poolView is what a preview reads from a pool. It is safe to use after the pool is unlocked.
type poolView struct {
	policy   Policy
	workers  []*Worker // only their immutable fields may be read
	views    []View
	excluded []Excluded

	// the prefill stage; handover is nil without one
	handover        *handover
	prefill         prefillPick
	prefillExcluded []Excluded
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
// with the number of live members and candidates. The workers of a draft are examined without it.
func (p *Pool) capture(r *Request, draft *Draft, tried []*Worker) (v poolView, err error) {
	if draft != nil {
		return p.captureDraft(r, draft, tried)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	ws, err := p.showLocked(r, tried)
	v.workers, v.views, v.excluded = p.workers, slices.Clone(ws), p.allExcludedLocked(r, ws, tried)
	if err == nil {
		v.policy = policyCopy(p.policy, r)
		v.captureHandoverLocked(p, r, tried)
	}
	return v, err
}

// captureDraft is capture for the pool of a draft. It takes the live pool's lock twice: to copy the live
// workers, and to read what the pool knows of the prompt.
func (p *Pool) captureDraft(r *Request, draft *Draft, tried []*Worker) (v poolView, err error) {
	draftPool, tried := p.draftPool(draft, r.Now, tried)
	ws, err := draftPool.eligibleLocked(r, tried)
	v.workers, v.views, v.excluded = draftPool.workers, ws, draftPool.allExcludedLocked(r, ws, tried)
	if err != nil {
		return v, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	draftPool.inflightPrefixes, draftPool.caches, draftPool.pins = p.inflightPrefixes, p.caches, p.pins
	draftPool.inflightPrefixes.reserveRoom(len(ws))
	draftPool.setPromptFactsLocked(r, ws)
	v.policy = policyCopy(draft.Policy, r) // it may be the live pool's own
	v.captureHandoverLocked(draftPool, r, tried)
	return v, nil
}

// UpUnder returns what Up and Ready would return under the draft.
func (p *Pool) UpUnder(draft *Draft, now time.Time) (up, ready bool) {
	draftPool, _ := p.draftPool(draft, now, nil)
	return draftPool.Up(now), draftPool.Ready(now)
}

// draftPool returns a temporary pool with the draft's configuration, and the copies of the workers in tried.
// It has no facts about prompts. It is safe to use without the live pool's lock, which is held only while the
// live workers are copied.
func (p *Pool) draftPool(draft *Draft, now time.Time, tried []*Worker) (draftPool *Pool, copied []*Worker) {
	draftPool, at := newDraft(draft)
	p.mu.Lock()
	copied = draftPool.copyLocked(p, at, now, tried)
	p.mu.Unlock()
	draftPool.configureDraft(draft)
	return draftPool, copied
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
	if d.Handover != nil {
		p.handover = &handover{Handover: *d.Handover, views: make([]View, 0, len(d.Members)),
			assessments: make([]assessment, len(d.Members))}
		p.facts |= d.Handover.facts()
	}
	workers := make([]Worker, len(d.Members))
	at = make(map[string]int, len(d.Members))
	for i := range d.Members {
		workers[i].ref = d.Members[i].Ref
		p.workers[i], at[d.Members[i].ID] = &workers[i], i
	}
	return p, at
}

// copyLocked copies the workers of a live pool into a temporary pool. It returns the copies of the workers in
// tried.
func (p *Pool) copyLocked(live *Pool, at map[string]int, now time.Time, tried []*Worker) (copied []*Worker) {
	p.slowness, p.pausedUntil, p.learned = live.slowness, live.pausedUntil, live.learned
	p.times, p.traffic, p.others = live.times, live.traffic, live.others
	p.learned.sorted = nil // the live pool's buffer
	if p.handover != nil && live.handover != nil {
		p.handover.transfer = live.handover.transfer
	}
	for _, w := range live.workers {
		live.endDuePrefillsLocked(w, now)
		i, ok := at[w.id]
		if !ok || p.workers[i].ref != w.ref {
			continue
		}
		*p.workers[i] = *w
		p.workers[i].detachLocked(now)
		if slices.Contains(tried, w) {
			copied = append(copied, p.workers[i])
		}
	}
	return copied
}

// detachLocked replaces the bookings of a copied worker, which the live pool changes and reuses, by copies. Only
// the first prefill counts at one moment. Requests without a byte count from the first second of silence on.
func (w *Worker) detachLocked(now time.Time) {
	c, s := &w.costs, &w.silences
	if c.first != nil {
		c.first = &booking{bookedAt: c.first.bookedAt, uncached: c.first.uncached, seconds: c.first.seconds,
			stream: c.first.stream, awaits: true}
	}
	c.last, w.prefillEnds, w.pace = c.first, nil, pace{}
	if now.Sub(s.fromLocked()) < lateFloor {
		s.waiting = nil
		return
	}
	bookings := make([]booking, len(s.waiting))
	waiting := make([]*booking, len(s.waiting))
	for i, b := range s.waiting {
		bookings[i].silence, waiting[i] = b.silence, &bookings[i]
	}
	s.waiting = waiting
}

// configureDraft applies the draft's configuration to the workers of a temporary pool.
func (p *Pool) configureDraft(d *Draft) {
	mean, at := p.meanRecentLocked(nil) // of the live workers: the new ones are not up yet
	for i, w := range p.workers {
		m := &d.Members[i]
		if w.id == "" {
			w.id, w.idHash, w.column, w.status = m.ID, HashText(m.ID), -1, Status{Up: true}
			w.costs.recent, w.costs.recentAt = mean, at
			w.learned[prefillRate].limits, w.learned[tokenTime].limits = rateLimits, timeLimits
		}
		w.index, w.weight, w.group, w.maxInflight = i, m.Weight, m.Group, m.MaxInflight
		w.maxTokens, w.models, w.region = m.MaxTokensInflight, m.Models, m.Region
		w.stages = m.Stages
	}
	p.capEjectionsLocked()
	for q := range quantities {
		p.refreshLocked(q)
	}
}

// allExcludedLocked returns the members that are not among those shown, each with its reason.
func (p *Pool) allExcludedLocked(r *Request, shown []View, tried []*Worker) (others []Excluded) {
	group := p.groupLocked(r, tried)
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
	excluded := Excluded{Worker: w.id, Why: w.exclusionLocked(r, tried)}
	saturated, _ := p.metricsLocked(w, r.Now)
	open := w.openUntilLocked()
	switch {
	case excluded.Why != "":
	case r.Now.Before(open) && open.After(w.backoffUntil):
		excluded.Why, excluded.Until = ExcludedOpen, open
	case w.pausedLocked(r.Now):
		excluded.Why, excluded.Until = ExcludedBackoff, w.backoffUntil
	case w.hidden:
		excluded.Why = ExcludedOverdue
	case w.group != group:
		excluded.Why = ExcludedGroup
	case saturated:
		excluded.Why = ExcludedSaturated
	case w.fullLocked(booked(r.PromptTokens)+booked(r.OutputTokens)) && !(r.Wait && plans(p.policy, r)):
		excluded.Why = ExcludedFull
	case r.distance(w) > farthest:
		excluded.Why = ExcludedRegion
	case w.ejectionDenied:
		excluded.Why = ExcludedSlowStart
	default:
		excluded.Why, excluded.Until = ExcludedSlowStart, w.slowStartFrom.Add(slowStartTime)
	}
	return excluded
}
