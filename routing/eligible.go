package routing

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Errors of Acquire and Offer. See also CooledError and OpenError.
var (
	// ErrNoWorker means that no worker is left that could ever take the request:
	// all are down, without weight, without its model, tried before, or refused by
	// their gates.
	ErrNoWorker = errors.New("no worker is up")
	// ErrFull means that workers are up, and all of them are full or saturated:
	// a release opens a place.
	ErrFull = errors.New("all workers are full")
	// ErrHeld means that the best worker for the request is full, and that it
	// should wait for that one, although others may be open. It comes of a Planner
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
// because its breaker is open. The last call holds; the zero time closes it.
func (p *Pool) SetOpen(id string, ref any, until time.Time) {
	p.mu.Lock()
	defer p.unlockChanged()
	if w := p.findLocked(id, ref); w != nil {
		w.openUntil = until
		p.restLocked(until)
	}
}

// The slow start of a worker that is back.
const (
	// rampTime is long enough for an engine to compile, to fill its caches and to
	// fail again before it has its whole share.
	rampTime = 10 * time.Second
	// rampFrom is the share at the start: enough requests to be judged by.
	rampFrom = 0.1
)

// Warm begins a slow start of the worker with that ID and Ref: from then on
// its share grows evenly from a tenth to the whole within ten seconds. A worker
// that is alone takes all the same.
func (p *Pool) Warm(id string, ref any, from time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.findLocked(id, ref); w != nil {
		w.warmFrom = from
	}
}

// shareLocked is the part of its usual load that a worker should get.
func (w *Worker) shareLocked(now time.Time) float64 {
	if w.warmFrom.IsZero() {
		return 1
	}
	past := float64(now.Sub(w.warmFrom)) / float64(rampTime)
	return min(max(rampFrom, rampFrom+(1-rampFrom)*past), 1)
}

// Up tells whether any member could take a request now, after a release or as
// soon as it has cooled. Those that are down, without weight or open could not.
func (p *Pool) Up(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		if w.status.Up && w.weight > 0 && !now.Before(w.openUntil) {
			return true
		}
	}
	return false
}

// restsUntilLocked is when the worker is neither cooling nor open any more.
func (w *Worker) restsUntilLocked() time.Time {
	if w.openUntil.After(w.coolUntil) {
		return w.openUntil
	}
	return w.coolUntil
}

// restsLocked tells whether the worker is cooling or open.
func (w *Worker) restsLocked(now time.Time) bool {
	return now.Before(w.coolUntil) || now.Before(w.openUntil)
}

// servesLocked tells whether the worker has that model. A request that names
// none can go anywhere.
func (w *Worker) servesLocked(model uint64) bool {
	return model == 0 || len(w.models) == 0 || slices.Contains(w.models, model)
}

// eligibleLocked returns the workers that may take a request now, all of the
// lowest group in which anybody can be used at all, and the full ones there too
// when the request can wait and the policy plans. Full and saturated workers
// hold their group: load does not spill into the next one. Workers that are
// cooling, open, tried or refused do not, because they cannot serve this
// request soon.
func (p *Pool) eligibleLocked(r *Request, tried, refused []*Worker) ([]View, error) {
	ws, busy, ramping, group := p.views[:0], false, false, 0
	plan, tokens := p.plans && r.Wait, booked(r.PromptTokens)+booked(r.OutputTokens)
	resting := r.Now.Before(p.restUntil) // somebody, perhaps; mostly nobody
	var next *Worker                     // the first to be back
	for _, w := range p.workers {
		if !w.status.Up || w.weight <= 0 || !w.servesLocked(r.Model) || slices.Contains(tried, w) || slices.Contains(refused, w) {
			continue
		}
		if resting && w.restsLocked(r.Now) {
			if next == nil || w.restsUntilLocked().Before(next.restsUntilLocked()) {
				next = w
			}
			continue
		}
		usable := busy || len(ws) > 0
		if usable && w.group > group {
			continue
		}
		if !usable || w.group < group {
			ws, busy, group = ws[:0], false, w.group
		}
		full := w.fullLocked(tokens)
		if p.saturatedLocked(w, r.Now) || full && !plan {
			busy = true
			continue
		}
		w.expireLocked(r.Now)
		ramping = ramping || !w.warmFrom.IsZero() && w.shareLocked(r.Now) < 1
		ws = ws[:len(ws)+1]
		w.viewLocked(&ws[len(ws)-1], full)
	}
	switch {
	case len(ws) > 0:
		if ramping {
			ws = p.rampLocked(r, ws)
		}
		return ws, nil
	case busy:
		return nil, ErrFull
	case next == nil:
		return nil, ErrNoWorker
	case next.openUntil.After(next.coolUntil):
		return nil, &OpenError{Until: next.openUntil}
	}
	return nil, &CooledError{Until: next.coolUntil}
}

// rampLocked hides the workers that start slowly from all but their share of
// the requests, and while they have more in flight than that share of what the
// others have: a policy that prefers the idle would else flood them. When
// nobody would be left it hides nobody, and where only full ones would be, the
// share of what the others have decides alone: nobody waits for a full worker
// beside an idle one.
func (p *Pool) rampLocked(r *Request, ws []View) []View {
	var inflight, weight float64 // of those that do not start slowly
	full, drawn := false, true
	for i := range ws {
		full = full || ws[i].Full
		if p.workers[ws[i].Index].shareLocked(r.Now) == 1 {
			inflight, weight = inflight+float64(p.workers[ws[i].Index].inflight), weight+float64(ws[i].Weight)
		}
	}
	shown := func(v *View) bool {
		w := p.workers[v.Index]
		share := w.shareLocked(r.Now)
		if share == 1 {
			return true
		}
		if weight > 0 && float64(w.inflight+1) > max(1, math.Ceil(share*float64(v.Weight)*inflight/weight)) {
			return false
		}
		return !drawn || chance(r.Rand, v.Index) < share
	}
	left, open := count(ws, shown)
	if full && open == 0 {
		drawn = false
		left, _ = count(ws, shown)
	}
	if left == 0 || left == len(ws) {
		return ws
	}
	kept := ws[:0]
	for i := range ws {
		if v := ws[i]; shown(&v) {
			kept = append(kept, v)
		}
	}
	return kept
}

// count returns how many of ws are shown, and how many of those are open.
func count(ws []View, shown func(*View) bool) (left, open int) {
	for i := range ws {
		if shown(&ws[i]) {
			left++
			if !ws[i].Full {
				open++
			}
		}
	}
	return left, open
}

// chance returns a number in [0, 1) that the request's random number gives for
// the worker at that index. SplitMix64's finalizer (Steele, Lea, Flood 2014)
// makes it independent of the others' and of what the policy draws.
func chance(rand uint64, index int) float64 {
	z := rand + uint64(index+1)*0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return float64((z^z>>31)>>11) / (1 << 53)
}
