package routing

import (
	"slices"
	"sync/atomic"
	"time"
)

// silence describes a request of which the worker has sent nothing yet.
type silence struct {
	tenant, prompt uint64
	stream         bool
	began          time.Time     // booking
	firstToken     time.Duration // predicted time to the first token
	expected       time.Duration // predicted time to the first byte; for a whole answer the longest time to its end
	patience       time.Duration // time after which the request is overdue
}

const (
	// overdueFactor is the ratio of a stream's patience to its predicted time to the first byte. The
	// prediction includes the tokens ahead on the worker; a healthy engine is not off by a factor of 4.
	overdueFactor = 4
	// overdueFloor is the shortest patience. Below it, a pause of the machine or of the network would
	// look like a hang.
	overdueFloor = 3 * time.Second
	// overdueSpare bounds what overdueFactor adds, so that a long prompt is overdue within a minute of its
	// prediction.
	overdueSpare = time.Minute
	// wholeFactor is the ratio of patience to the longest time of a whole answer's output. That time is a
	// bound already, so that the factor covers only the spread of the engine's speed.
	wholeFactor = 2
	// stepsFor is the time for which a report shows that the engine makes steps. It is read with each health check,
	// by default every 5 s, and more often while the worker is busy.
	stepsFor = 6 * time.Second
	// lateFloor is the silence up to which a worker is not late in the cost of kv_aware: a pause of the
	// network, or of one step of the engine.
	lateFloor = time.Second
	// lateHold is the time for which a worker stays late after an overdue request was cut. Until then, other
	// workers can show whether they answer.
	lateHold = 30 * time.Second
)

// silences are the requests of a worker of which it has sent nothing, and what its answers show about its
// peers. The pool's lock guards them, except for heard.
type silences struct {
	heard *atomic.Int64 // when the worker last sent a part of an answer, in Unix nanoseconds
	// requests that began before restart count from then: the worker was down, or is probed again
	restart  time.Time
	waiting  []*booking
	holdFrom time.Time // when an overdue request was cut last
	due      dueTimes
	hang     hangEvidence
}

// dueTimes caches the earliest ends of a worker's silent requests while it sends nothing.
type dueTimes struct {
	valid             bool
	from              time.Time // the silence that they assume
	expected, overdue time.Time // zero without requests
}

// addSilentLocked counts a request as silent until its answer begins.
func (w *Worker) addSilentLocked(b *booking, s silence) {
	l := &w.silences
	l.waiting = append(l.waiting, b)
	b.silence, b.silentAt = s, len(l.waiting)
	if l.due.valid {
		l.due.add(&b.silence)
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

// fromLocked returns since when the worker has been silent at least: its last byte, or the restart.
func (l *silences) fromLocked() time.Time {
	if l.heard == nil { // a worker of a draft
		return l.restart
	}
	if nanos := l.heard.Load(); nanos != 0 {
		if heard := time.Unix(0, nanos); heard.After(l.restart) {
			return heard
		}
	}
	return l.restart
}

// heardAt returns when the worker last sent a part of an answer; zero if it never did.
func (l *silences) heardAt() time.Time {
	if nanos := l.heard.Load(); nanos != 0 {
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

// add includes a request.
func (d *dueTimes) add(s *silence) {
	from := s.silentFrom(d.from)
	expected, overdue := from.Add(max(lateFloor, s.expected)), from.Add(s.patience)
	if d.expected.IsZero() || expected.Before(d.expected) {
		d.expected = expected
	}
	if d.overdue.IsZero() || overdue.Before(d.overdue) {
		d.overdue = overdue
	}
}

// dueLocked returns the ends of the worker's silent requests that silence since from assumes.
func (l *silences) dueLocked(from time.Time) *dueTimes {
	if d := &l.due; !d.valid || !d.from.Equal(from) {
		*d = dueTimes{valid: true, from: from}
		for _, b := range l.waiting {
			d.add(&b.silence)
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

// lateLocked reports whether a request of the worker is overdue and the worker has sent nothing since, or
// whether such a request was cut within lateHold.
func (w *Worker) lateLocked(now time.Time) bool {
	l := &w.silences
	if len(l.waiting) == 0 && l.holdFrom.IsZero() {
		return false
	}
	from := l.fromLocked()
	if now.Sub(from) < overdueFloor {
		return false
	}
	if l.holdFrom.After(from) && now.Sub(l.holdFrom) < lateHold {
		return true
	}
	return len(l.waiting) > 0 && !now.Before(l.dueLocked(from).overdue) && (!w.stepsLocked(now) ||
		slices.ContainsFunc(l.waiting, func(b *booking) bool { return w.overdueLocked(&b.silence, now, from) }))
}

// overdueLocked reports whether a request is overdue if the worker has been silent since from. An engine that
// still makes steps may be generating an answer that is not a stream.
func (w *Worker) overdueLocked(s *silence, now, from time.Time) bool {
	return !now.Before(s.silentFrom(from).Add(s.patience)) && (s.stream || !w.stepsLocked(now))
}

// stepsLocked reports whether the engine's counters moved until its last report, which is not too old.
func (w *Worker) stepsLocked(now time.Time) bool {
	st := &w.status
	return !st.SteppedAt.IsZero() && st.LoadAt.Sub(st.SteppedAt) < overdueFloor && now.Sub(st.LoadAt) < stepsFor
}

// computesLongPromptLocked reports whether the silence since from may be the prefill of a prompt that takes longer
// than overdueFloor. Some engines compute it in one step, in which no other request gets a token.
func (w *Worker) computesLongPromptLocked(now, from time.Time) bool {
	return slices.ContainsFunc(w.silences.waiting, func(b *booking) bool {
		s := &b.silence
		return s.firstToken >= overdueFloor && now.Before(s.silentFrom(from).Add(firstTokenPatience(s.firstToken)))
	})
}

// firstTokenPatience returns the time after which a first token with that prediction is overdue.
func firstTokenPatience(first time.Duration) time.Duration {
	return max(overdueFloor, min(overdueFactor*first, first+overdueSpare))
}

// markLateLocked marks the late workers, and decides whether picks leave them out: only while another worker
// can take the request. If all are late, the cause is likely no single worker.
func (p *Pool) markLateLocked(r *Request, tried []*Worker) {
	p.hideLate = false
	late := false
	for _, w := range p.workers {
		w.late = w.lateLocked(r.Now)
		late = late || w.late
	}
	if late {
		p.hideLate = slices.ContainsFunc(p.workers, func(w *Worker) bool {
			return !w.late && p.usableLocked(w, r, tried)
		})
	}
}

// anyLateLocked reports whether some worker is late now. Without it, lateness and its end are changes of which
// no watcher is notified.
func (p *Pool) anyLateLocked(now time.Time) bool {
	return slices.ContainsFunc(p.workers, func(w *Worker) bool { return w.lateLocked(now) || w.latenessLocked(now) > 0 })
}

// silenceOf returns the silence of a request that is booked on the worker now. first is its predicted time to
// the first token, without a wait for a slot: the answers that have the slots are not silent.
func (p *Pool) silenceOf(r *Request, w *Worker, first time.Duration) silence {
	s := silence{tenant: r.Tenant, stream: r.Stream, began: r.Now, firstToken: first, expected: first,
		patience: firstTokenPatience(first)}
	if n := len(r.Blocks); n > 0 {
		s.prompt = r.Blocks[n-1].Hash
	}
	if !r.Stream {
		longest := p.learned.longest.of(r.MaxTokens, w.value[tokenTime])
		s.expected += longest
		s.patience += wholeFactor * longest
	}
	return s
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

// Received reports at once that the worker has sent a part of the answer at at. It takes no lock; on a zero
// Lease it does nothing.
func (l *Lease) Received(at time.Time) {
	if l.worker != nil {
		l.worker.silences.heard.Store(at.UnixNano())
	}
}

// Overdue reports whether the worker has sent nothing for longer than the patience of the lease's request, and
// nothing of its answer.
func (l *Lease) Overdue(now time.Time) bool {
	if l.pool == nil {
		return false
	}
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	b := l.booking
	return b != nil && b.silentAt > 0 && l.worker.overdueLocked(&b.silence, now, l.worker.silences.fromLocked())
}

// Heard returns when the worker last sent a part of any answer; the zero time if it never did since it is a
// member. It takes no lock.
func (l *Lease) Heard() time.Time {
	if l.worker == nil {
		return time.Time{}
	}
	return l.worker.silences.heardAt()
}

// Cut reports that the client or a time limit ended the attempt at at. A request that was overdue then still
// shows that the worker is silent. Cut must be called before Unbook and Release.
func (l *Lease) Cut(at time.Time) {
	if l.pool == nil {
		return
	}
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	if b, w := l.booking, l.worker; b != nil && b.silentAt > 0 {
		if w.overdueLocked(&b.silence, at, w.silences.fromLocked()) {
			w.silences.hang.addEnded(b.silence, at)
			w.silences.holdFrom = at
		}
		w.removeSilentLocked(b)
	}
}

// RestartSilence makes the silence of the worker with that ID and Ref begin at at, because it is probed or has
// been down: what it did not answer before shows nothing any more.
func (p *Pool) RestartSilence(id string, ref any, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.findLocked(id, ref); w != nil {
		w.silences.restartLocked(at)
	}
}

func (l *silences) restartLocked(at time.Time) {
	l.restart, l.holdFrom, l.due.valid = at, time.Time{}, false
	l.hang.ended, l.hang.found = l.hang.ended[:0], time.Time{}
}
