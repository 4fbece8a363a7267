package routing

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Errors of Acquire and Offer. See also BackoffError and OpenError.
var (
	// ErrNoWorker means that no worker can take the request: each one is down, without weight,
	// without its model, already tried, or refused by its gate.
	ErrNoWorker = errors.New("no worker is up")
	// ErrFull means that all workers that could take the request are full or saturated. A
	// release makes room.
	ErrFull = errors.New("all workers are full")
	// ErrBestWorkerFull means that the best worker for the request is full and worth the wait,
	// although another worker is open. Only a Planner causes it, if Request.Wait is set.
	ErrBestWorkerFull = errors.New("the best worker is full")
)

// BackoffError means that every worker that is up is in backoff or open, and that the first
// one to end its pause is in backoff.
type BackoffError struct {
	Until time.Time // end of that backoff
}

// Error returns a text with the end of the backoff.
func (e *BackoffError) Error() string {
	return fmt.Sprintf("all workers are in backoff until %s", e.Until.Format(time.RFC3339))
}

// OpenError means that every worker that is up is in backoff or open, and that the first one
// to end its pause is open.
type OpenError struct {
	Until time.Time // end of that open state
}

// Error returns a text with the end of the open state.
func (e *OpenError) Error() string {
	return fmt.Sprintf("all workers are open or in backoff until %s", e.Until.Format(time.RFC3339))
}

// SetBackoff keeps new requests from a worker until then, after it returned 429 or reported an
// overload. It never shortens a backoff.
func (p *Pool) SetBackoff(w *Worker, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until.After(w.backoffUntil) {
		w.backoffUntil = until
		p.extendPauseLocked(until)
		p.publishUpLocked()
	}
}

// extendPauseLocked records that some worker is in backoff or open until then.
func (p *Pool) extendPauseLocked(until time.Time) {
	if until.After(p.pausedUntil) {
		p.pausedUntil = until
	}
}

// SetOpen keeps new requests from the worker with that ID and Ref until then, because its
// server accepts no connection. The last call applies; the zero time ends the pause.
func (p *Pool) SetOpen(id string, ref any, until time.Time) {
	p.mu.Lock()
	defer p.unlockChanged()
	if w := p.findLocked(id, ref); w != nil {
		w.openUntil = until
		p.extendPauseLocked(until)
		p.publishUpLocked()
	}
}

// pausedUntilLocked returns the end of the worker's backoff or open state, the later one.
func (w *Worker) pausedUntilLocked() time.Time {
	if open := w.openUntilLocked(); open.After(w.backoffUntil) {
		return open
	}
	return w.backoffUntil
}

func (w *Worker) pausedLocked(now time.Time) bool {
	return now.Before(w.backoffUntil) || now.Before(w.openUntilLocked())
}

// serves reports whether a worker with those models serves that one. A request without a model
// can go to any worker.
func serves(models []uint64, model uint64) bool {
	return model == 0 || len(models) == 0 || slices.Contains(models, model)
}

// Takes reports whether the configured member answers requests for that model.
func (m *Member) Takes(model uint64) bool {
	return m.Weight > 0 && m.Stages != StagePrefill && serves(m.Models, model)
}

// Prefills reports whether the configured member computes prompts of that model for other workers.
func (m *Member) Prefills(model uint64) bool {
	return m.Weight > 0 && m.Stages&StagePrefill != 0 && serves(m.Models, model)
}

// exclusionLocked returns why the worker can never take the request in its present state, or
// "" if it can. Load, backoff and an open breaker are not considered.
func (w *Worker) exclusionLocked(r *Request, tried []*Worker) (why string) {
	switch {
	case !w.status.Up:
		return ExcludedDown
	case w.weight <= 0:
		return ExcludedNoWeight
	case w.stages != 0 && w.stages&r.stages() == 0: // 0: a pool without a hand-over
		return ExcludedRole
	case !serves(w.models, r.Model):
		return ExcludedModel
	case r.Only != nil && w.ref != r.Only:
		return ExcludedOtherWorker
	case slices.Contains(tried, w):
		return ExcludedTried
	}
	return ""
}

// usableLocked reports whether the worker can take the request now or after a release.
func (p *Pool) usableLocked(w *Worker, r *Request, tried []*Worker) bool {
	return w.exclusionLocked(r, tried) == "" && !(r.Now.Before(p.pausedUntil) && w.pausedLocked(r.Now)) &&
		!w.hidden
}

// groupLocked returns the lowest group with a usable worker, or 0 if there is none.
func (p *Pool) groupLocked(r *Request, tried []*Worker) (group int) {
	found := false
	for _, w := range p.workers {
		if (!found || w.group < group) && p.usableLocked(w, r, tried) {
			group, found = w.group, true
		}
	}
	return group
}

// eligibleSet collects the usable workers of the lowest group that has any.
type eligibleSet struct {
	any              bool
	group            int
	views            []View // free workers, and for a Planner full ones too
	full             bool   // some worker that is not in views is full
	idle             int    // saturated workers, not in views, without requests in flight
	slowStart        bool   // some worker in views is in slow start
	inflight, weight int    // sums over workers that are not in slow start, full and saturated ones included
}

// enterGroup reports whether group is the lowest group of a usable worker so far. A lower group
// discards the workers collected before.
func (f *eligibleSet) enterGroup(group int) bool {
	if !f.any || group < f.group {
		*f = eligibleSet{any: true, group: group, views: f.views[:0]}
	}
	return group == f.group
}

// eligibleLocked returns the workers that can take a request now: of the lowest group with a
// usable worker, the free ones. If the request can wait and the policy plans, it returns the
// full ones too. Full and saturated workers keep their group: load does not move to the next
// group. Overdue workers are left out while another worker is usable. If metrics alone saturate all
// workers of the group, the ones without requests in flight are eligible. Of the group, the
// workers of the nearest region with a free worker are returned.
func (p *Pool) eligibleLocked(r *Request, tried []*Worker) ([]View, error) {
	p.markOverdueLocked(r, tried)
	f := eligibleSet{views: p.views[:0]}
	plan, tokens := r.Wait && plans(p.policy, r), booked(r.PromptTokens)+booked(r.OutputTokens)
	anyPaused := r.Now.Before(p.pausedUntil) // usually no worker is paused
	for _, w := range p.workers {
		if w.exclusionLocked(r, tried) != "" || anyPaused && w.pausedLocked(r.Now) || w.hidden ||
			!f.enterGroup(w.group) {
			continue
		}
		starting := w.shareLocked(r.Now) < 1
		if !starting {
			f.inflight, f.weight = f.inflight+w.inflight, f.weight+w.weight
		}
		full := w.fullLocked(tokens)
		if saturated := p.saturatedLocked(w, r); saturated || full && !plan {
			f.skip(w, saturated)
			continue
		}
		p.appendViewLocked(&f, w, r, full)
		f.slowStart = f.slowStart || starting
	}
	if len(f.views) == 0 && f.saturatedByMetricsAlone() {
		for _, w := range p.workers {
			if w.group == f.group && w.idleLocked() && p.usableLocked(w, r, tried) {
				p.appendViewLocked(&f, w, r, false)
			}
		}
	}
	switch {
	case !f.any:
		return nil, p.noWorkerErrorLocked(r, tried)
	case f.slowStart:
		ws, err := p.applySlowStartLocked(r, &f)
		return p.nearestLocked(r, ws), err
	case len(f.views) > 0:
		return p.nearestLocked(r, f.views), nil
	}
	return nil, ErrFull
}

func (p *Pool) noWorkerErrorLocked(r *Request, tried []*Worker) error {
	var next *Worker // the first one to end its pause
	for _, w := range p.workers {
		if w.exclusionLocked(r, tried) == "" && (next == nil || w.pausedUntilLocked().Before(next.pausedUntilLocked())) {
			next = w
		}
	}
	switch {
	case next == nil:
		return ErrNoWorker
	case next.openUntilLocked().After(next.backoffUntil):
		return &OpenError{Until: next.openUntilLocked()}
	}
	return &BackoffError{Until: next.backoffUntil}
}

// skip counts a worker that is not shown because it is full or saturated.
func (f *eligibleSet) skip(w *Worker, saturated bool) {
	switch {
	case !saturated:
		f.full = true
	case w.idleLocked():
		f.idle++
	}
}

// saturatedByMetricsAlone reports whether only metrics keep requests from the skipped workers,
// and one of them has no request in flight, so that it can take one.
func (f *eligibleSet) saturatedByMetricsAlone() bool { return f.idle > 0 && !f.full }

func (p *Pool) appendViewLocked(f *eligibleSet, w *Worker, r *Request, full bool) {
	p.endDuePrefillsLocked(w, r.Now)
	f.views = f.views[:len(f.views)+1]
	v := &f.views[len(f.views)-1]
	w.viewLocked(v, full, p.effectiveWeightLocked(w, r.Now))
	p.addOthersLocked(v, w, r.Now)
	if p.facts&usesLatency != 0 {
		v.Latency = w.latency.facts(r.Now)
	}
	if p.facts&usesSuccess != 0 {
		v.Success = w.success.value(r.Now)
	}
}

// anyOf reports whether any view has that value of Full.
func anyOf(ws []View, full bool) bool {
	for i := range ws {
		if ws[i].Full == full {
			return true
		}
	}
	return false
}
