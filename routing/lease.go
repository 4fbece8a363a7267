package routing

import (
	"errors"
	"time"
)

// ErrExcluded marks a result for which the worker is not responsible, such as an invalid request or
// a client that disconnected. The gate receives it like other outcomes.
var ErrExcluded = errors.New("not counted as an outcome of the worker")

// Lease is one request booked on one worker. Its owner owes exactly one Release. Its methods
// are safe for concurrent use. After a Lease is copied, only one of the copies may be used.
type Lease struct {
	pool          *Pool
	worker        *Worker
	gate          Gate
	admitted      bool // by the gate, or in spite of it by the ejection cap
	ticketed      bool // the gate issued a ticket and is owed its outcome
	ticket        uint64
	reason        Reason
	model         uint64 // Request.Model and Request.Only, for HasOtherWorker
	only          any
	stream        bool
	bookedAt      time.Time
	estimate      float64       // prompt tokens before the learned correction
	prompt        int64         // prompt tokens
	prefill       int64         // prompt tokens that were booked
	ahead         int64         // tokens to prefill before its first token, its own included
	assumedCached int64         // tokens that are not in ahead because the history says that they are cached
	level         int           // requests in flight on the worker, this one included
	expected      time.Duration // predicted time from the booking to the outcome
	queueTime     time.Duration // predicted time that it waits inside the engine before its prefill
	overlap       int64         // prompt tokens that the worker should have cached
	// the same by source, before the worker's credit was applied, without prompts in flight
	predicted [sources]int64
	published int64   // of these, by history: tokens whose events must have arrived
	computing int64   // the part of overlap that was in flight
	exact     bool    // overlap follows the worker's cache events
	byEvents  bool    // these events know the prompt
	byLookup  bool    // overlap follows a look-up in LMCache's controller
	unplaced  bool    // Request.Unplaced
	elsewhere float64 // predicted seconds to first token on the best other worker; 0 if unknown

	stages     Stages       // of which the worker must serve one
	isPrefill  bool         // it is the lease of a prefill worker for another lease
	handedOver bool         // the prompt is computed elsewhere
	decode     *decodeStage // nil without a hand-over

	// The rest is guarded by the pool's lock.
	booking  *booking  // nil once everything is given back
	reported bool      // the gate has its outcome, or none is due
	released bool      // Release was called
	outcome  error     // the gate's outcome, once reported
	firstAt  time.Time // first event of a good answer; zero without one
	sample   prefillSample
}

// Result describes how a leased request ended.
type Result struct {
	At           time.Time // when it ended; zero teaches nothing about speed
	Err          error     // nil if the answer is complete; wraps ErrExcluded if the worker is not responsible
	PromptTokens int64     // as the engine reported, like the next two; 0 if it did not
	CachedTokens int64     // the part of PromptTokens that came from the engine's cache
	OutputTokens int64
	Text         bool // the prompt was text only, so its length is a measure of its tokens
}

// Expected returns the predicted time from the booking to a stream's first token, or to the
// end of any other answer.
func (l *Lease) Expected() time.Duration { return l.expected }

// Worker returns the chosen worker, or nil for a zero Lease.
func (l *Lease) Worker() *Worker { return l.worker }

// Ref returns the chosen member's Ref, or nil for a zero Lease.
func (l *Lease) Ref() any {
	if l.worker == nil {
		return nil
	}
	return l.worker.ref
}

// Reason returns why the worker was chosen.
func (l *Lease) Reason() Reason { return l.reason }

// Ticket returns the gate's ticket. It is 0 without a gate, and for a worker that the ejection
// cap keeps in rotation in spite of its gate.
func (l *Lease) Ticket() uint64 { return l.ticket }

// Overlap returns the number of prompt tokens that the worker should have cached.
func (l *Lease) Overlap() int64 { return l.overlap }

// Answered reports that the first event of the answer arrived at at, or that the worker failed
// with err before that. The prefill is no longer booked, and the gate receives the outcome,
// which is ErrSlow for a stream of a worker that is too slow. Only the first call has an
// effect; on a zero Lease Answered does nothing.
func (l *Lease) Answered(at time.Time, err error) {
	if l.pool == nil {
		return
	}
	if outcome, first := l.recordFirstEvent(at, err); first {
		l.reportOutcome(outcome)
	}
}

// reportOutcome gives the gate the outcome of the ticket, if it issued one.
func (l *Lease) reportOutcome(outcome error) {
	if l.ticketed {
		l.gate.Report(l.ticket, outcome)
	}
}

// recordFirstEvent records the first event once and returns the outcome. A stream is not too
// slow if the engine's metrics show that it may have waited inside the engine.
func (l *Lease) recordFirstEvent(at time.Time, err error) (outcome error, first bool) {
	p := l.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.reported {
		return nil, false
	}
	l.reported = true
	if !at.IsZero() {
		p.advanceTrafficLocked(at)
	}
	l.endSilenceLocked(at, err)
	if l.booking != nil {
		if l.stream && err == nil && !at.IsZero() {
			l.sample = p.endOfPrefillLocked(l.booking, at)
			p.judgeLocked(l, at)
			p.learnTransferLocked(l, at)
		}
		if !l.stream && err == nil {
			p.endUnstreamedPrefillLocked(l.booking)
		}
		p.endPrefillLocked(l.booking)
		if l.stream && err == nil {
			p.recordPrefixLocked(l.booking, l.timeOr(at))
			if !l.isPrefill {
				l.worker.beginStreamLocked(l.booking)
			}
			l.learnConcurrencyLimitLocked(at)
			if !at.IsZero() {
				l.worker.latency.learn(at.Sub(l.bookedAt), at)
			}
		}
	}
	l.countOutcomeLocked(err)
	if err == nil {
		l.firstAt = at
		if l.stream && !l.handedOver && !at.IsZero() && !l.worker.mayHaveQueuedLocked(l.bookedAt, at) &&
			p.slowLocked(l.worker, l.sampleLocked(at)) {
			err = ErrSlow
		}
	}
	l.outcome = err
	return err, true
}

// sampleLocked returns the stream's time to first token and its ratio to the prediction. The
// prediction uses the pool's rate: by its own rate a slow worker would never be late. Prompts
// ahead are prefilled while a stream waits for its slot. Times below firstStep count as equal,
// because neither one nor three milliseconds are slow.
func (l *Lease) sampleLocked(at time.Time) sample {
	rate := l.pool.typicalLocked(prefillRate, rateLimits)
	predicted := firstStep + max(seconds(float64(l.ahead)/rate), l.queueTime+seconds(float64(l.prefill)/rate))
	observed := max(firstStep, at.Sub(l.bookedAt))
	return sample{began: at.Add(-observed), at: at, ratio: float64(observed) / float64(predicted), observed: observed}
}

// timeOr returns at, or the time of the booking if at is zero.
func (l *Lease) timeOr(at time.Time) time.Time {
	if at.IsZero() {
		return l.bookedAt
	}
	return at
}

// Unbook gives back all booked load. The outcome is still owed, by Answered or Release.
// Further calls, and calls on a zero Lease, do nothing.
func (l *Lease) Unbook() {
	if l.pool == nil {
		return
	}
	if prefill := l.Prefill(); prefill != nil {
		prefill.Unbook()
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

// Release gives back everything, and the pool learns from the result. Without an earlier
// Answered, o.Err is the gate's outcome. If the answer began well and broke off, the gate gets
// a second outcome by ReportCut. Further calls, and calls on a zero Lease, do nothing.
func (l *Lease) Release(o Result) {
	if l.pool == nil {
		return
	}
	if prefill := l.Prefill(); prefill != nil {
		prefill.Release(Result{At: o.At, Err: ErrExcluded}) // without effect after its own Release
	}
	l.pool.mu.Lock()
	last, first, outcome := !l.released, !l.reported, l.outcome
	l.released, l.reported = true, true
	if !o.At.IsZero() {
		l.pool.advanceTrafficLocked(o.At)
	}
	l.endSilenceLocked(o.At, o.Err)
	// The prefix of a stream is recorded at its first event.
	if l.booking != nil && o.Err == nil && (first || !l.stream && outcome == nil) {
		l.pool.recordPrefixLocked(l.booking, l.timeOr(o.At))
	}
	if b := l.booking; b != nil && b.recorded && o.OutputTokens > 0 {
		last := b.blocks[len(b.blocks)-1].hash
		l.pool.caches.recordAnswer(last, o.OutputTokens, l.worker.column)
		if l.pool.journal.on && !b.published {
			l.pool.journal.addAnswer(l.worker, last, o.OutputTokens)
		}
	}
	if last {
		l.pool.learnLocked(l, o)
		switch {
		case first:
			l.countOutcomeLocked(o.Err)
		case outcome == nil && o.Err != nil && !errors.Is(o.Err, ErrExcluded):
			l.worker.success.countCut(l.pool.traffic.at)
		}
	}
	wasBooked := l.booking != nil
	// an excluded request without an event may never have been sent
	if wasBooked && !(first && errors.Is(o.Err, ErrExcluded)) {
		l.worker.concurrencyLimit.ended++
	}
	l.unbookLocked()
	if wasBooked {
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
		l.gate.ReportCut(l.bookedAt, o.Err)
	}
}

// countOutcomeLocked adds the first outcome of the request to its worker's success ratio.
func (l *Lease) countOutcomeLocked(err error) {
	if !errors.Is(err, ErrExcluded) {
		l.worker.success.count(err != nil, l.pool.traffic.at)
	}
}
