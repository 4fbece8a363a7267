package routing

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Errors of Acquire and Offer. See also CooledError and OpenError.
var (
	// ErrNoWorker means that no worker is left that could ever take the request:
	// all are down, without weight, without its model, tried before, or refused by
	// their gates.
	ErrNoWorker = errors.New("no worker is up")
	// ErrFull means that workers are up, and that none of those that the request may
	// go to is open: they are full or saturated, and a release opens a place.
	ErrFull = errors.New("all workers are full")
	// ErrHeld means that the best worker for the request is full, and that it
	// should wait for that one, although another is open. It comes of a Planner
	// only, and only when Request.Wait is set.
	ErrHeld = errors.New("the best worker is full")
)

// CooledError means that every worker that is up asked for less, or is kept
// from requests otherwise for longer than the first of those.
type CooledError struct {
	Until time.Time // when the first of them may be asked again
}

// Error tells when to come back.
func (e *CooledError) Error() string {
	return fmt.Sprintf("all workers are cooling until %s", e.Until.Format(time.RFC3339))
}

// OpenError means that every worker that is up is kept from requests, and that
// the first to be back is one whose breaker is open.
type OpenError struct {
	Until time.Time // when that one may be asked again
}

// Error tells when to come back.
func (e *OpenError) Error() string {
	return fmt.Sprintf("all workers failed too often and rest until %s", e.Until.Format(time.RFC3339))
}

// Cool keeps new requests from a worker until then, because it asked for less.
// It never shortens a cooling under way.
func (p *Pool) Cool(w *Worker, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until.After(w.coolUntil) {
		w.coolUntil = until
		p.restLocked(until)
	}
}

// restLocked notes that somebody rests until then.
func (p *Pool) restLocked(until time.Time) {
	if until.After(p.restUntil) {
		p.restUntil = until
	}
}

// SetOpen keeps new requests from the worker with that ID and Ref until then,
// because it takes no connection. The last call holds; the zero time ends it.
func (p *Pool) SetOpen(id string, ref any, until time.Time) {
	p.mu.Lock()
	defer p.unlockChanged()
	if w := p.findLocked(id, ref); w != nil {
		w.openUntil = until
		p.restLocked(until)
		p.publishUpLocked()
	}
}

// restsUntilLocked is when the worker is neither cooling nor open any more.
func (w *Worker) restsUntilLocked() time.Time {
	if open := w.openUntilLocked(); open.After(w.coolUntil) {
		return open
	}
	return w.coolUntil
}

// restsLocked tells whether the worker is cooling or open.
func (w *Worker) restsLocked(now time.Time) bool {
	return now.Before(w.coolUntil) || now.Before(w.openUntilLocked())
}

// servesLocked tells whether the worker has that model. A request that names
// none can go anywhere.
func (w *Worker) servesLocked(model uint64) bool {
	return model == 0 || len(w.models) == 0 || slices.Contains(w.models, model)
}

// mayTakeLocked tells whether the request may be sent to the worker at all: it
// is up, has weight and the model, and is the one that the request asks for.
func (w *Worker) mayTakeLocked(r *Request) bool {
	return w.status.Up && w.weight > 0 && w.servesLocked(r.Model) && (r.Only == nil || w.ref == r.Only)
}

// field is the workers of the lowest group in which a request can be sent to
// anybody at all.
type field struct {
	group            int
	views            []View // the open ones, and before a planner the full ones
	busy             bool   // there are full or saturated ones that are not in views
	full             bool   // one of these is full
	idle             int    // of these, the saturated ones without requests in flight
	starting         bool   // somebody in views starts slowly
	inflight, weight int    // of those that do not start slowly, full and saturated ones too
}

// enter tells whether a worker of that group is in the field, which is another
// one from then on when the group is a lower one.
func (f *field) enter(group int) bool {
	if usable := f.busy || len(f.views) > 0; usable && group >= f.group {
		return group == f.group
	}
	*f = field{group: group, views: f.views[:0]}
	return true
}

// eligibleLocked returns the workers that may take a request now, all of the
// lowest group in which anybody can be used at all, and the full ones there too
// when the request can wait and the policy plans. Full and saturated workers
// hold their group: load does not spill into the next one. Workers that are
// cooling, open, tried or refused do not, because they cannot serve this
// request soon. If metrics alone saturate all workers of the group, those without
// requests in flight are eligible.
func (p *Pool) eligibleLocked(r *Request, tried, refused []*Worker) ([]View, error) {
	f := field{views: p.views[:0]}
	plan, tokens := p.plans && r.Wait, booked(r.PromptTokens)+booked(r.OutputTokens)
	resting := r.Now.Before(p.restUntil) // somebody, perhaps; mostly nobody
	var next *Worker                     // the first to be back
	for _, w := range p.workers {
		if !w.mayTakeLocked(r) || slices.Contains(tried, w) || slices.Contains(refused, w) {
			continue
		}
		if resting && w.restsLocked(r.Now) {
			if next == nil || w.restsUntilLocked().Before(next.restsUntilLocked()) {
				next = w
			}
			continue
		}
		if !f.enter(w.group) {
			continue
		}
		starting := w.shareLocked(r.Now) < 1
		if !starting {
			f.inflight, f.weight = f.inflight+w.inflight, f.weight+w.weight
		}
		full := w.fullLocked(tokens)
		if saturated := p.saturatedLocked(w, r); saturated || full && !plan {
			f.pass(w, saturated)
			continue
		}
		f.add(w, r, full)
		f.starting = f.starting || starting
	}
	if len(f.views) == 0 && f.idle > 0 && !f.full {
		p.addIdleLocked(&f, r, tried, refused)
	}
	switch {
	case f.starting:
		return p.rampLocked(r, &f)
	case len(f.views) > 0:
		return f.views, nil
	case f.busy:
		return nil, ErrFull
	case next == nil:
		return nil, ErrNoWorker
	case next.openUntilLocked().After(next.coolUntil):
		return nil, &OpenError{Until: next.openUntilLocked()}
	}
	return nil, &CooledError{Until: next.coolUntil}
}

// pass notes a worker that is full or saturated and is not shown.
func (f *field) pass(w *Worker, saturated bool) {
	f.busy = true
	switch {
	case !saturated:
		f.full = true
	case w.idleLocked():
		f.idle++
	}
}

// add shows a worker.
func (f *field) add(w *Worker, r *Request, full bool) {
	w.expireLocked(r.Now)
	f.views = f.views[:len(f.views)+1]
	w.viewLocked(&f.views[len(f.views)-1], full)
}

// addIdleLocked shows the saturated workers of the field that have no request in
// flight. It is for a field that metrics alone leave empty: a worker that works
// nothing off will take one request.
func (p *Pool) addIdleLocked(f *field, r *Request, tried, refused []*Worker) {
	for _, w := range p.workers {
		if w.group == f.group && w.idleLocked() && w.mayTakeLocked(r) && !w.restsLocked(r.Now) &&
			!slices.Contains(tried, w) && !slices.Contains(refused, w) {
			f.add(w, r, false)
		}
	}
}

func anyOpen(ws []View) bool {
	for i := range ws {
		if !ws[i].Full {
			return true
		}
	}
	return false
}
