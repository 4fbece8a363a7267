package routing

import (
	"slices"
	"sync/atomic"
	"time"
)

// silence describes a request without a byte of its answer.
type silence struct {
	tenant, prompt uint64
	stream         bool
	began          time.Time     // booking
	firstToken     time.Duration // predicted time to the first token
	expected       time.Duration // predicted time to the first byte; for a whole answer the longest time to its end
	overdueAfter   time.Duration // silence after which the request is overdue
}

const (
	// overdueFactor is the ratio of the silence after which a stream is overdue to its predicted time to the first
	// byte. The prediction includes the tokens ahead on the worker; a healthy engine is not off by a factor of 4.
	overdueFactor = 4
	// overdueFloor is the shortest silence of an overdue request. Below it, a pause of the machine or of the network would
	// look like a hang.
	overdueFloor = 3 * time.Second
	// overdueMaxExtra bounds what overdueFactor adds, so that a long prompt is overdue within a minute of its
	// prediction.
	overdueMaxExtra = time.Minute
	// wholeFactor is how often the longest expected time of a whole answer is added. That time is a bound already,
	// so the factor covers only the spread of the engine's speed.
	wholeFactor = 2
	// stepReportMaxAge is the time for which a report shows that the engine makes steps. It is read with each health
	// check, by default every 5 s, and more often while the worker is busy.
	stepReportMaxAge = 6 * time.Second
	// lateFloor is the silence up to which a worker is not late in the cost of kv_aware: a pause of the
	// network, or of one step of the engine.
	lateFloor = time.Second
	// overdueHold is the time for which a worker stays late after an overdue request was cut. Until then, other
	// workers can show whether they answer.
	overdueHold = 30 * time.Second
)

// silences holds a worker's requests without a byte, and the evidence of a hang. The pool's lock guards all but
// lastByte.
type silences struct {
	lastByte *atomic.Int64 // when the worker last sent a part of an answer, in Unix nanoseconds
	// requests that began before restart count from then: the worker was down, or is probed again
	restart  time.Time
	waiting  []*booking
	holdFrom time.Time // when an overdue request was cut last
	due      dueTimes
	hang     hangEvidence
}

// dueTimes caches the earliest predicted time and the earliest overdue time of a worker's requests without a byte.
type dueTimes struct {
	valid             bool
	from              time.Time // beginning of the silence
	expected, overdue time.Time // zero without requests
}

// addSilentLocked counts a request as silent until its answer begins.
func (w *Worker) addSilentLocked(b *booking, s silence) {
	l := &w.silences
	l.waiting = append(l.waiting, b)
	b.silence, b.silentAt = s, len(l.waiting)
	if l.due.valid {
		l.due.include(&b.silence)
	}
}

// removeSilentLocked ends the silence of a request.
func (w *Worker) removeSilentLocked(b *booking) {
	if b.silentAt == 0 {
		return
	}
	l := &w.silences
	last := len(l.waiting) - 1
	moved := l.waiting[last]
	l.waiting[b.silentAt-1], moved.silentAt = moved, b.silentAt
	l.waiting[last] = nil
	l.waiting, l.due.valid, b.silentAt = l.waiting[:last], false, 0
}

// fromLocked returns the beginning of the worker's silence: its last byte or the last restart, whichever is later.
func (l *silences) fromLocked() time.Time {
	if l.lastByte == nil { // a worker of a draft
		return l.restart
	}
	if nanos := l.lastByte.Load(); nanos != 0 {
		if last := time.Unix(0, nanos); last.After(l.restart) {
			return last
		}
	}
	return l.restart
}

// lastByteAt returns when the worker last sent a part of an answer; zero if it never did.
func (l *silences) lastByteAt() time.Time {
	if nanos := l.lastByte.Load(); nanos != 0 {
		return time.Unix(0, nanos)
	}
	return time.Time{}
}

// silentFrom returns since when the request waits for a byte of a worker that has been silent since from. A byte
// of another answer restarts its time, because it shows that the engine works.
func (s *silence) silentFrom(from time.Time) time.Time {
	if s.began.After(from) {
		return s.began
	}
	return from
}

// include adds the due times of a request.
func (d *dueTimes) include(s *silence) {
	from := s.silentFrom(d.from)
	expected, overdue := from.Add(max(lateFloor, s.expected)), from.Add(s.overdueAfter)
	if d.expected.IsZero() || expected.Before(d.expected) {
		d.expected = expected
	}
	if d.overdue.IsZero() || overdue.Before(d.overdue) {
		d.overdue = overdue
	}
}

// dueLocked returns the due times of the waiting requests. It computes them again if from or the requests have
// changed.
func (l *silences) dueLocked(from time.Time) *dueTimes {
	if d := &l.due; !d.valid || !d.from.Equal(from) {
		*d = dueTimes{valid: true, from: from}
		for _, b := range l.waiting {
			d.include(&b.silence)
		}
	}
	return &l.due
}

// latenessLocked returns for how long the worker's present requests are late against their own predictions,
// 0 if none is.
func (w *Worker) latenessLocked(now time.Time) time.Duration {
	l := &w.silences
	if len(l.waiting) == 0 {
		return 0
	}
	from := l.fromLocked()
	if now.Sub(from) < lateFloor {
		return 0
	}
	return max(0, now.Sub(l.dueLocked(from).expected))
}

// isOverdueLocked reports whether a request of the worker is overdue, or an overdue request was cut within
// overdueHold and the worker has sent nothing since.
func (w *Worker) isOverdueLocked(now time.Time) bool {
	l := &w.silences
	if len(l.waiting) == 0 && l.holdFrom.IsZero() {
		return false
	}
	from := l.fromLocked()
	if now.Sub(from) < overdueFloor {
		return false
	}
	if l.holdFrom.After(from) && now.Sub(l.holdFrom) < overdueHold {
		return true
	}
	return len(l.waiting) > 0 && !now.Before(l.dueLocked(from).overdue) && (!w.stepsLocked(now) ||
		slices.ContainsFunc(l.waiting, func(b *booking) bool { return w.requestOverdueLocked(&b.silence, now, from) }))
}

// requestOverdueLocked reports whether a request is overdue if the worker has been silent since from. An engine that
// still makes steps may be generating an answer that is not a stream.
func (w *Worker) requestOverdueLocked(s *silence, now, from time.Time) bool {
	return !now.Before(s.silentFrom(from).Add(s.overdueAfter)) && (s.stream || !w.stepsLocked(now))
}

// stepsLocked reports whether the engine's counters moved until its last report, which is not too old.
func (w *Worker) stepsLocked(now time.Time) bool {
	st := &w.status
	return !st.SteppedAt.IsZero() && st.LoadAt.Sub(st.SteppedAt) < overdueFloor && now.Sub(st.LoadAt) < stepReportMaxAge
}

// excusedLocked reports whether a request explains the silence since from. A prompt with a prefill of overdueFloor
// or more can, because some engines compute it in one step. On an engine without step counters, a whole answer can
// too, because other requests may wait for its slot.
func (w *Worker) excusedLocked(now, from time.Time) bool {
	return slices.ContainsFunc(w.silences.waiting, func(b *booking) bool {
		s := &b.silence
		began := s.silentFrom(from)
		return s.firstToken >= overdueFloor && now.Before(began.Add(firstTokenOverdueAfter(s.firstToken))) ||
			!s.stream && w.status.SteppedAt.IsZero() && now.Before(began.Add(s.overdueAfter))
	})
}

// firstTokenOverdueAfter returns the time after which a first token with that prediction is overdue.
func firstTokenOverdueAfter(first time.Duration) time.Duration {
	return max(overdueFloor, min(overdueFactor*first, first+overdueMaxExtra))
}

// markOverdueLocked hides the overdue workers from picks while another worker can take the request: one of the same
// group, or of any group once a request may leave the worker. If all workers are overdue, a single worker is
// probably not the cause.
func (p *Pool) markOverdueLocked(r *Request, tried []*Worker) {
	overdue := false
	for _, w := range p.workers {
		w.hidden = false
		w.overdue = w.isOverdueLocked(r.Now)
		overdue = overdue || w.overdue
	}
	if !overdue {
		return
	}
	for _, w := range p.workers {
		w.hidden = w.overdue && slices.ContainsFunc(p.workers, func(peer *Worker) bool {
			return !peer.overdue && (peer.group == w.group || w.silences.hang.unanswered) && p.usableLocked(peer, r, tried)
		})
	}
}

// anyLateLocked reports whether a worker is late or overdue. Both states begin and end without a call of the pool's
// watcher.
func (p *Pool) anyLateLocked(now time.Time) bool {
	return slices.ContainsFunc(p.workers, func(w *Worker) bool {
		return w.isOverdueLocked(now) || w.latenessLocked(now) > 0
	})
}

// silenceOf returns the silence of a request that is booked on the worker now. first is its predicted time to
// the first token, without a wait for a slot: the answers that have the slots are not silent.
func (p *Pool) silenceOf(r *Request, w *Worker, first time.Duration) silence {
	s := silence{tenant: r.Tenant, stream: r.Stream, began: r.Now}
	if n := len(r.Blocks); n > 0 {
		s.prompt = r.Blocks[n-1].Hash
	}
	p.predictSilenceLocked(&s, w, first, r.MaxTokens)
	return s
}

// predictSilenceLocked sets the predicted times of a request without a byte. maxTokens is the longest answer that the
// client accepts; 0 is no bound.
func (p *Pool) predictSilenceLocked(s *silence, w *Worker, first time.Duration, maxTokens int64) {
	s.firstToken, s.expected, s.overdueAfter = first, first, firstTokenOverdueAfter(first)
	if !s.stream {
		longest := p.learned.longest.longestTime(maxTokens, w.value[tokenTime])
		s.expected += longest
		s.overdueAfter += wholeFactor * longest
	}
}

// addFirstToken adds to the predicted time to the first token.
func (s *silence) addFirstToken(d time.Duration) {
	s.overdueAfter += firstTokenOverdueAfter(s.firstToken+d) - firstTokenOverdueAfter(s.firstToken)
	s.firstToken += d
	s.expected += d
}

// endSilenceLocked ends the silence of the lease's request, which the worker answered with err.
func (l *Lease) endSilenceLocked(at time.Time, err error) {
	b := l.booking
	if b == nil || b.silentAt == 0 {
		return
	}
	l.worker.removeSilentLocked(b)
	if err == nil {
		l.worker.silences.hang.addAnswer(&b.silence)
		if !at.IsZero() {
			l.Received(at)
		}
	}
}

// Received records that the worker sent a part of the answer at when. It takes no lock and has no effect on a zero
// Lease.
func (l *Lease) Received(when time.Time) {
	if l.worker != nil {
		l.worker.silences.lastByte.Store(when.UnixNano())
	}
}

// Overdue reports whether the lease's request has no byte and is overdue. It is false for a zero Lease.
func (l *Lease) Overdue(now time.Time) bool {
	if l.pool == nil {
		return false
	}
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	b := l.booking
	return b != nil && b.silentAt > 0 && l.worker.requestOverdueLocked(&b.silence, now, l.worker.silences.fromLocked())
}

// HasOtherWorker reports whether another worker can take the lease's request now or after a release.
func (l *Lease) HasOtherWorker(now time.Time) bool {
	if l.pool == nil {
		return false
	}
	r := Request{Now: now, Model: l.model, Only: l.only, Whole: l.stages == StageWhole, prefill: l.isPrefill}
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	return slices.ContainsFunc(l.pool.workers, func(w *Worker) bool {
		return w != l.worker && w.exclusionLocked(&r, nil) == "" && !w.pausedLocked(now) && !w.isOverdueLocked(now)
	})
}

// LastByteAt returns when the worker last sent a part of any answer, or the zero time if it has sent none. It takes
// no lock.
func (l *Lease) LastByteAt() time.Time {
	if l.worker == nil {
		return time.Time{}
	}
	return l.worker.silences.lastByteAt()
}

// SilentSince returns the beginning of the worker's silence: its last byte, or the restart of the measurement.
func (l *Lease) SilentSince() time.Time {
	if l.pool == nil {
		return time.Time{}
	}
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	return l.worker.silences.fromLocked()
}

// Cut records that the attempt ended at when without an answer: by its client, a time limit or a retry elsewhere. An
// overdue request stays evidence of a hang. The caller must call Cut before Unbook and Release.
func (l *Lease) Cut(when time.Time) {
	if l.pool == nil {
		return
	}
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	if b, w := l.booking, l.worker; b != nil && b.silentAt > 0 {
		if w.requestOverdueLocked(&b.silence, when, w.silences.fromLocked()) {
			w.silences.hang.addEnded(b.silence, when)
			w.silences.holdFrom = when
		}
		w.removeSilentLocked(b)
	}
}

// RestartSilence measures the silence of the worker with that ID and Ref from when on, because the worker is probed
// or was down. Earlier silence is no evidence. It has no effect on an unknown worker.
func (p *Pool) RestartSilence(id string, ref any, when time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.findLocked(id, ref); w != nil {
		w.silences.restartLocked(when)
	}
}

func (l *silences) restartLocked(at time.Time) {
	l.restart, l.holdFrom, l.due.valid = at, time.Time{}, false
	l.hang.ended, l.hang.found = l.hang.ended[:0], time.Time{}
}
