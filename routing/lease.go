package routing

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Errors of Acquire. See also CooledError.
var (
	// ErrNoWorker means that no worker is left that could ever take the request:
	// all are down, without weight, tried before, or refused by their gates.
	ErrNoWorker = errors.New("no worker is up")
	// ErrFull means that workers are up, and all of them are full or saturated:
	// a release opens a place.
	ErrFull = errors.New("all workers are full")
)

// ErrExcluded marks a result that is nobody's fault, such as a client that
// left or a request that the worker was right to refuse. The pool hands it to
// the gate like any other: the gate decides that it counts neither way.
var ErrExcluded = errors.New("excluded from the verdict")

// CooledError means that every worker that is up asked for less.
type CooledError struct {
	Until time.Time // when the first of them may be asked again
}

// Error tells when to come back.
func (e *CooledError) Error() string {
	return fmt.Sprintf("all workers are cooling until %s", e.Until.Format(time.RFC3339))
}

// maxBooked bounds the tokens that one request books on each account. A client
// may ask for any max_tokens; with 2^40 a million of such requests still sum
// up without overflow.
const maxBooked = 1 << 40

// maxCandidates is how many candidates a lease remembers: enough to explain a
// choice in a log line, few enough to be copied without a thought.
const maxCandidates = 8

// Lease is one request booked on one worker. Who got it owes exactly one
// Release. Its methods are safe for concurrent use on the same Lease; a copy of
// a Lease is not to be used beside it.
type Lease struct {
	pool               *Pool
	worker             *Worker
	gate               Gate
	done               func(error)
	reason             Reason
	prompt, output     int64
	answered, released bool  // guarded by the pool's lock
	verdict            error // guarded by the pool's lock; what the gate was told first
	seen               int
	candidates         [maxCandidates]Candidate
}

// Result is how a leased request ended.
type Result struct {
	Err error // nil when the answer was whole; wraps ErrExcluded when the worker is not to blame
}

// Worker returns the chosen worker, nil of a zero Lease.
func (l *Lease) Worker() *Worker { return l.worker }

// Ref returns the chosen member's Ref, nil of a zero Lease.
func (l *Lease) Ref() any {
	if l.worker == nil {
		return nil
	}
	return l.worker.ref
}

// Reason returns why this worker was chosen.
func (l *Lease) Reason() Reason { return l.reason }

// Candidates returns the workers that could have been chosen, the least loaded
// first and at most eight, the chosen one always among them. The score is the
// booked tokens for each unit of weight, without this request.
func (l *Lease) Candidates() []Candidate { return slices.Clone(l.candidates[:l.seen]) }

// noteCandidates keeps the least loaded of ws, and the chosen one.
func (l *Lease) noteCandidates(ws []View, chosen int) {
	kept := false
	for i := range ws {
		score, at := ws[i].score(), l.seen
		for at > 0 && score < l.candidates[at-1].Score {
			at--
		}
		if at == maxCandidates {
			continue
		}
		l.seen = min(l.seen+1, maxCandidates)
		copy(l.candidates[at+1:l.seen], l.candidates[at:])
		l.candidates[at] = Candidate{Worker: ws[i].ID, Score: score}
	}
	for i := range l.candidates[:l.seen] {
		kept = kept || l.candidates[i].Worker == ws[chosen].ID
	}
	if !kept {
		l.candidates[l.seen-1] = Candidate{Worker: ws[chosen].ID, Score: ws[chosen].score()}
	}
}

// Acquire picks a worker and books the request on it in one step: the prompt's
// tokens until Answered, the output's and one request until Release. Workers in
// tried are passed over. The gate of the chosen worker is asked afterwards,
// outside the lock; when it refuses, the booking is undone and the next best
// worker is picked.
//
// Acquire does not wait. Its errors are ErrNoWorker, ErrFull or a *CooledError.
func (p *Pool) Acquire(r *Request, tried ...*Worker) (Lease, error) {
	var room [16]*Worker // refusals are rare; a usual pool's fit without an allocation
	refused := room[:0]
	for {
		l, err := p.book(r, tried, refused)
		if err != nil || l.gate == nil {
			return l, err
		}
		done, err := l.gate.Allow()
		if err == nil {
			l.done = done
			return l, nil
		}
		refused = append(refused, l.worker)
		p.mu.Lock()
		l.unbookLocked()
		p.mu.Unlock()
	}
}

// book picks and books under the lock.
func (p *Pool) book(r *Request, tried, refused []*Worker) (Lease, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ws, err := p.eligibleLocked(r.Now, tried, refused)
	if err != nil {
		return Lease{}, err
	}
	i, reason := p.policy.Pick(r, ws)
	if i < 0 || i >= len(ws) {
		i, reason = leastLoad{}.Pick(r, ws)
	}
	w := p.workers[ws[i].Index]
	l := Lease{
		pool: p, worker: w, gate: w.gate, reason: reason,
		prompt: booked(r.PromptTokens), output: booked(r.OutputTokens),
	}
	l.noteCandidates(ws, i)
	w.inflight++
	w.pending += l.prompt
	w.output += l.output
	return l, nil
}

func booked(tokens int64) int64 { return min(max(tokens, 0), maxBooked) }

// eligibleLocked returns the workers that may take a request now, all of the
// lowest group in which anybody can be used at all. Full and saturated workers
// hold their group: load does not spill into the next one. Workers that are
// cooling, tried or refused do not, because they cannot serve this request soon.
func (p *Pool) eligibleLocked(now time.Time, tried, refused []*Worker) ([]View, error) {
	ws, busy, group := p.views[:0], false, 0
	var coolUntil time.Time // the earliest end of a cooling
	for _, w := range p.workers {
		if !w.status.Up || w.weight <= 0 || slices.Contains(tried, w) || slices.Contains(refused, w) {
			continue
		}
		if now.Before(w.coolUntil) {
			if coolUntil.IsZero() || w.coolUntil.Before(coolUntil) {
				coolUntil = w.coolUntil
			}
			continue
		}
		usable := busy || len(ws) > 0
		if usable && w.group > group {
			continue
		}
		if !usable || w.group < group {
			ws, group = ws[:0], w.group
		}
		if w.status.Saturated || w.fullLocked() {
			busy = true
			continue
		}
		ws = append(ws, w.viewLocked())
	}
	switch {
	case len(ws) > 0:
		return ws, nil
	case busy:
		return nil, ErrFull
	case !coolUntil.IsZero():
		return nil, &CooledError{Until: coolUntil}
	}
	return nil, ErrNoWorker
}

// answerLocked unbooks the prefill, once.
func (l *Lease) answerLocked() {
	if !l.answered {
		l.answered = true
		l.worker.pending -= l.prompt
	}
}

// unbookLocked gives back all that the lease still holds, once.
func (l *Lease) unbookLocked() {
	if !l.released {
		l.answerLocked()
		l.released = true
		l.worker.inflight--
		l.worker.output -= l.output
	}
}

// Answered says that the worker answered, or failed to, at the answer's first
// event: the prefill is off its account and its gate gets its verdict. Only
// the first call counts. On a zero Lease it does nothing.
func (l *Lease) Answered(err error) {
	if l.pool == nil {
		return
	}
	l.pool.mu.Lock()
	first := !l.answered
	l.answerLocked()
	if first {
		l.verdict = err
	}
	l.pool.mu.Unlock()
	if first && l.done != nil {
		l.done(err)
	}
}

// Release gives everything back. It is owed exactly once; further calls, and
// calls on a zero Lease, do nothing. Without an Answered before, its result is
// the gate's verdict. A worker that answered well and then broke off gets a
// second verdict of its own, for which its gate is asked again.
func (l *Lease) Release(o Result) {
	if l.pool == nil {
		return
	}
	l.pool.mu.Lock()
	last, first := !l.released, !l.answered
	verdict := l.verdict
	l.unbookLocked()
	l.pool.mu.Unlock()
	if !last {
		return
	}
	if first {
		if l.done != nil {
			l.done(o.Err)
		}
		return
	}
	if l.gate == nil || verdict != nil || o.Err == nil || errors.Is(o.Err, ErrExcluded) {
		return
	}
	if done, err := l.gate.Allow(); err == nil {
		done(o.Err)
	}
}
