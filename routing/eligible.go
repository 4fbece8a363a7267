package routing

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Errors of Acquire and Offer. See also BackoffError and OpenError.
var (
	// ErrNoWorker means that no worker could take the request: all are down, without
	// weight, without its model, tried before, or refused by their gates.
	ErrNoWorker = errors.New("no worker is up")
	// ErrFull means that all workers that could take the request are full or saturated;
	// a release opens a place.
	ErrFull = errors.New("all workers are full")
	// ErrBestWorkerFull means that the best worker for the request is full, and worth the wait
	// although another is open. It comes of a Planner only, if Request.Wait is set.
	ErrBestWorkerFull = errors.New("the best worker is full")
)

// BackoffError means that every worker that is up rests, and that the first to be back is
// one in backoff.
type BackoffError struct {
	Until time.Time // when that one is back
}

// Error names the time.
func (e *BackoffError) Error() string {
	return fmt.Sprintf("all workers are in backoff until %s", e.Until.Format(time.RFC3339))
}

// OpenError means that every worker that is up rests, and that the first to be back is one
// whose breaker is open.
type OpenError struct {
	Until time.Time // when that one is back
}

// Error names the time.
func (e *OpenError) Error() string {
	return fmt.Sprintf("all workers failed too often and rest until %s", e.Until.Format(time.RFC3339))
}

// SetBackoff keeps new requests from a worker until then, because it asked for less. It never
// shortens a backoff under way.
func (p *Pool) SetBackoff(w *Worker, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until.After(w.backoffUntil) {
		w.backoffUntil = until
		p.extendPauseLocked(until)
	}
}

func (p *Pool) extendPauseLocked(until time.Time) {
	if until.After(p.pausedUntil) {
		p.pausedUntil = until
	}
}

// SetOpen keeps new requests from the worker with that ID and Ref until then,
// because it takes no connection. The last call holds; the zero time ends it.
func (p *Pool) SetOpen(id string, ref any, until time.Time) {
	p.mu.Lock()
	defer p.unlockChanged()
	if w := p.findLocked(id, ref); w != nil {
		w.openUntil = until
		p.extendPauseLocked(until)
		p.publishUpLocked()
	}
}

// restsUntilLocked is until when the worker rests.
func (w *Worker) pausedUntilLocked() time.Time {
	if open := w.openUntilLocked(); open.After(w.backoffUntil) {
		return open
	}
	return w.backoffUntil
}

// restsLocked reports whether the worker is in backoff or its breaker is open.
func (w *Worker) pausedLocked(now time.Time) bool {
	return now.Before(w.backoffUntil) || now.Before(w.openUntilLocked())
}

// serves reports whether a worker of those models has that one. A request that names none
// can go anywhere.
func serves(models []uint64, model uint64) bool {
	return model == 0 || len(models) == 0 || slices.Contains(models, model)
}

// Takes reports whether the member gets requests for that model, as it is configured.
func (m *Member) Takes(model uint64) bool { return m.Weight > 0 && serves(m.Models, model) }

// exclusionLocked says why the worker may not take the request at all; the word is empty if
// it may.
func (w *Worker) exclusionLocked(r *Request, tried []*Worker) (why string) {
	switch {
	case !w.status.Up:
		return ExcludedDown
	case w.weight <= 0:
		return ExcludedNoWeight
	case !serves(w.models, r.Model):
		return ExcludedModel
	case r.Only != nil && w.ref != r.Only:
		return ExcludedOtherWorker
	case slices.Contains(tried, w):
		return ExcludedTried
	}
	return ""
}

// usableLocked reports whether the worker can take the request, now or after a release.
func (p *Pool) usableLocked(w *Worker, r *Request, tried []*Worker) bool {
	return w.exclusionLocked(r, tried) == "" && !(r.Now.Before(p.pausedUntil) && w.pausedLocked(r.Now))
}

// groupLocked returns the lowest group with a usable worker.
func (p *Pool) groupLocked(r *Request, tried []*Worker) (group int, any bool) {
	for _, w := range p.workers {
		if (!any || w.group < group) && p.usableLocked(w, r, tried) {
			group, any = w.group, true
		}
	}
	return group, any
}

// field is the usable workers of the lowest group that has any.
type eligibleSet struct {
	any              bool
	group            int
	views            []View // the open ones, and before a planner the full ones
	full             bool   // one that is not in views is full
	idle             int    // of those that are not in views, the saturated ones without requests in flight
	slowStart        bool   // one in views starts slowly
	inflight, weight int    // of those that do not start slowly, full and saturated ones too
}

// enter reports whether the group of a usable worker is the lowest one so far; a lower one
// begins a new field.
func (f *eligibleSet) enterGroup(group int) bool {
	if !f.any || group < f.group {
		*f = eligibleSet{any: true, group: group, views: f.views[:0]}
	}
	return group == f.group
}

// eligibleLocked returns the workers that may take a request now: of the lowest group
// with a usable worker those that are open, and the full ones too if the request can wait
// and the policy plans. Full and saturated workers hold their group: load does not spill
// into the next one. If metrics alone saturate all workers of the group, those without
// requests in flight are eligible.
func (p *Pool) eligibleLocked(r *Request, tried []*Worker) ([]View, error) {
	f := eligibleSet{views: p.views[:0]}
	plan, tokens := p.plans && r.Wait, booked(r.PromptTokens)+booked(r.OutputTokens)
	resting := r.Now.Before(p.pausedUntil) // perhaps some worker does; mostly none
	for _, w := range p.workers {
		if w.exclusionLocked(r, tried) != "" || resting && w.pausedLocked(r.Now) || !f.enterGroup(w.group) {
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
		f.show(w, r, full)
		f.slowStart = f.slowStart || starting
	}
	if len(f.views) == 0 && f.saturatedByMetricsAlone() {
		for _, w := range p.workers {
			if w.group == f.group && w.idleLocked() && p.usableLocked(w, r, tried) {
				f.show(w, r, false)
			}
		}
	}
	switch {
	case !f.any:
		return nil, p.noneLocked(r, tried)
	case f.slowStart:
		return p.applySlowStartLocked(r, &f)
	case len(f.views) > 0:
		return f.views, nil
	}
	return nil, ErrFull
}

// noneLocked returns why no worker is usable.
func (p *Pool) noneLocked(r *Request, tried []*Worker) error {
	var next *Worker // the first to be back
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

// pass notes a worker that is full or saturated and is not shown.
func (f *eligibleSet) skip(w *Worker, saturated bool) {
	switch {
	case !saturated:
		f.full = true
	case w.idleLocked():
		f.idle++
	}
}

// saturatedByMetricsAlone reports whether metrics alone keep requests from the workers passed, and
// one of them has no request in flight: it will take one.
func (f *eligibleSet) saturatedByMetricsAlone() bool { return f.idle > 0 && !f.full }

func (f *eligibleSet) show(w *Worker, r *Request, full bool) {
	w.endDuePrefillsLocked(r.Now)
	f.views = f.views[:len(f.views)+1]
	w.viewLocked(&f.views[len(f.views)-1], full)
}

// anyOf reports whether any worker is full, or any is not.
func anyOf(ws []View, full bool) bool {
	for i := range ws {
		if ws[i].Full == full {
			return true
		}
	}
	return false
}
