package routing

import (
	"errors"
	"time"
)

// ErrExcluded marks a result that is not the worker's fault, such as a client that left or
// an invalid request. The gate gets it like any other outcome.
var ErrExcluded = errors.New("excluded from the verdict")

// Lease is one request booked on one worker. Its owner owes exactly one Release. Its
// methods are safe for concurrent use; a copy must not be used beside it.
type Lease struct {
	pool          *Pool
	worker        *Worker
	gate          Gate
	admitted      bool // by the gate, or by the ejection cap
	ticketed      bool // the gate gave a ticket, and is owed its outcome
	ticket        uint64
	reason        Reason
	stream        bool
	bookedAt      time.Time
	estimate      float64       // the prompt's tokens before the learned correction
	prompt        int64         // its tokens
	prefill       int64         // those of them that were booked
	ahead         int64         // tokens to prefill up to its first one, its own among them
	assumedCached int64         // tokens that are not in ahead because the worker had them lately
	level         int           // requests in flight on the worker, this one among them
	expected      time.Duration // from the booking to the outcome
	queueTime     time.Duration // that it should wait inside the engine before its prefill
	overlap       int64         // tokens of its prompt that the worker is believed to have

	// The rest is guarded by the pool's lock.
	booking  *booking  // nil once all is given back
	reported bool      // the gate got its outcome, at the answer's beginning or at the end
	released bool      // Release was called
	outcome  error     // that it got
	firstAt  time.Time // the first event of an answer that came, else zero
}

// Result is how a leased request ended.
type Result struct {
	At           time.Time // when it ended; the zero time teaches nothing about speed
	Err          error     // nil when the answer was whole; wraps ErrExcluded when the worker is not to blame
	PromptTokens int64     // as the engine reported, like the two below; 0 when it did not
	CachedTokens int64     // part of PromptTokens that came from the engine's cache
	OutputTokens int64
	Text         bool // the prompt was text alone, so that its length says how many tokens it has
}

// Expected returns how long a stream's first token, or a whole answer, should take from
// the booking on.
func (l *Lease) Expected() time.Duration { return l.expected }

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

// Ticket returns the gate's ticket; 0 without a gate, and for a worker that the ejection
// cap keeps in rotation past its gate.
func (l *Lease) Ticket() uint64 { return l.ticket }

// Overlap returns how many tokens of the prompt the worker is believed to have cached.
func (l *Lease) Overlap() int64 { return l.overlap }

// Answered reports the answer's first event, or that the worker failed to answer: the
// prefill is off its account and its gate gets the outcome, which is ErrSlow for a stream
// of a worker that is too slow. Only the first call counts. On a zero Lease it does
// nothing.
func (l *Lease) Answered(at time.Time, err error) {
	if l.pool == nil {
		return
	}
	if outcome, first := l.recordFirstEvent(at, err); first {
		l.reportOutcome(outcome)
	}
}

// report gives the gate the outcome that is owed for the ticket.
func (l *Lease) reportOutcome(outcome error) {
	if l.ticketed {
		l.gate.Report(l.ticket, outcome)
	}
}

// answer notes the answer's beginning, once, and returns the outcome. A stream may be too
// slow unless the engine's metrics show that it may have waited inside the engine.
func (l *Lease) recordFirstEvent(at time.Time, err error) (outcome error, first bool) {
	p := l.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.reported {
		return nil, false
	}
	l.reported = true
	if l.booking != nil {
		l.worker.endPrefillLocked(l.booking)
		if l.stream && err == nil {
			p.recordPrefixLocked(l.booking, l.timeOr(at))
			l.worker.beginStreamLocked(l.booking)
			l.learnConcurrencyLimitLocked(at)
		}
	}
	if err == nil {
		l.firstAt = at
		if l.stream && !at.IsZero() && !l.worker.mayHaveQueuedLocked(l.bookedAt, at) && p.slowLocked(l.worker, l.sampleLocked(at)) {
			err = ErrSlow
		}
	}
	l.outcome = err
	return err, true
}

// sampleLocked is the stream's time to first token beside the predicted one. The
// prediction is by the pool's rate: by its own rate a slow worker would be as fast as
// predicted. Prompts ahead are prefilled while a stream waits for its slot. Times below
// the first step are equal: of one and three milliseconds neither is slow.
func (l *Lease) sampleLocked(at time.Time) sample {
	rate := l.pool.usualLocked(prefillRate, rateLimits)
	predicted := firstStep + max(seconds(float64(l.ahead)/rate), l.queueTime+seconds(float64(l.prefill)/rate))
	observed := max(firstStep, at.Sub(l.bookedAt))
	return sample{began: at.Add(-observed), at: at, ratio: float64(observed) / float64(predicted), observed: observed}
}

// timeOr returns at, or when the request was booked if that is no time.
func (l *Lease) timeOr(at time.Time) time.Time {
	if at.IsZero() {
		return l.bookedAt
	}
	return at
}

// Unbook gives all load back at once and leaves the outcome to Answered and Release, which
// is still owed. Further calls, and calls on a zero Lease, do nothing.
func (l *Lease) Unbook() {
	if l.pool == nil {
		return
	}
	l.pool.mu.Lock()
	if l.booking == nil {
		l.pool.mu.Unlock()
		return
	}
	l.worker.concurrencyLimit.ended++
	l.unbookLocked()
	l.pool.unlockChanged()
}

func (l *Lease) unbookLocked() {
	if l.booking != nil {
		l.pool.removeBookingLocked(l.booking)
		l.booking = nil
	}
}

// Release gives everything back, and the pool learns from the result. Further calls, and
// calls on a zero Lease, do nothing. Without an Answered before, its result is the gate's
// outcome. A worker that answered well and then broke off gets a second one, by Cut.
func (l *Lease) Release(o Result) {
	if l.pool == nil {
		return
	}
	l.pool.mu.Lock()
	last, first, outcome := !l.released, !l.reported, l.outcome
	l.released, l.reported = true, true
	// A stream that began was remembered then.
	if l.booking != nil && o.Err == nil && (first || !l.stream && outcome == nil) {
		l.pool.recordPrefixLocked(l.booking, l.timeOr(o.At))
	}
	if last {
		l.pool.learnLocked(l, o)
	}
	gave := l.booking != nil
	if gave && !(first && errors.Is(o.Err, ErrExcluded)) { // else it may not have been sent
		l.worker.concurrencyLimit.ended++
	}
	l.unbookLocked()
	if gave {
		l.pool.unlockChanged()
	} else {
		l.pool.mu.Unlock()
	}
	if !last {
		return
	}
	switch {
	case first:
		l.reportOutcome(o.Err)
	case l.ticketed && outcome == nil && o.Err != nil && !errors.Is(o.Err, ErrExcluded):
		l.gate.Cut(l.bookedAt, o.Err)
	}
}
