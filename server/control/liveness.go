package control

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tierway/breaker"
	"tierway/workers"
)

// liveness is what a worker's answers show of whether its engine still works: the
// streams that have no byte since the worker last sent a part of an answer. It is
// safe for concurrent use; the zero liveness knows nothing.
type liveness struct {
	silent atomic.Int64 // streams in waiting and in ended; read for each piece of an answer
	sentAt atomic.Int64 // when the engine last sent a part of an answer, in Unix nanoseconds

	mu       sync.Mutex // guards the rest
	waiting  []unanswered
	ended    []unanswered // cut after their patience; at most endedKept
	hung     bool         // found by its silence, and still silent
	answered [hangRequests]SentStream
	next     int // in answered
	// tenants are the last streams answered of the last two tenants, so that one
	// tenant's many requests do not hide that another tenant has any.
	tenants [2]SentStream
}

// SentStream identifies a stream that was sent to a worker: its tenant, the hash of its prompt
// and when it began.
type SentStream struct {
	Tenant string
	Prompt uint64
	Began  time.Time
}

// unanswered is one stream that has no byte yet.
type unanswered struct {
	SentStream
	attempt any       // which it is
	late    time.Time // the end of its patience
}

const (
	// hangRequests is how many streams must be overdue, and how many later ones
	// other workers must have answered, before a worker counts as hung: one slow
	// request says nothing of its worker.
	hangRequests = 3
	// hangFactor is how many times its predicted time a stream's first byte may
	// take. The prediction knows the tokens ahead on the worker; a sound engine is
	// not off by four.
	hangFactor = 4
	// hangFloor is the shortest patience: below it, a pause of the machine or of
	// the network would look like a hang.
	hangFloor = 3 * time.Second
	// hangWindow is how old a stream may be to count: long enough for a worker
	// that gets one in 100 s.
	hangWindow = 5 * time.Minute
	// hangAlone is how long the streams of one tenant must be silent while the
	// peers answer other tenants: its prompts may be slow on a sound worker. A tenant
	// may also be the only one whose prompts go to a worker that hangs.
	hangAlone = time.Minute
	// endedKept is how many cut streams are kept of one worker: the last ones, and
	// the first. They have to show two tenants, of which one may send most requests.
	endedKept = 32
	// stalledAfter is how long an engine's step counters may stand still while
	// requests run. One step takes up to a few seconds on the largest models.
	stalledAfter = 10 * time.Second
	// sentLate is how long the last bytes of an engine that stops may be on their
	// way when its counters are read.
	sentLate = time.Second
)

// BeginStream records a stream that is sent to the worker, with the predicted time of its
// first byte.
func (l *liveness) BeginStream(a any, q SentStream, expected time.Duration) {
	l.mu.Lock()
	l.waiting = append(l.waiting, unanswered{q, a, q.Began.Add(max(hangFloor, hangFactor*expected))})
	l.silent.Add(1)
	l.mu.Unlock()
}

// EndStream records the end of a request. cut means that its client or a timeout ended it:
// if it had no byte after its patience, it stays a sign of a hang.
func (l *liveness) EndStream(a any, now time.Time, cut bool) {
	if l.silent.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.waiting, func(u unanswered) bool { return u.attempt == a })
	if i < 0 {
		return
	}
	u := l.waiting[i]
	l.waiting = slices.Delete(l.waiting, i, i+1)
	if cut && !now.Before(u.late) {
		l.ended = slices.DeleteFunc(l.ended, func(u unanswered) bool { return now.Sub(u.Began) >= hangWindow })
		if len(l.ended) == endedKept {
			l.ended = slices.Delete(l.ended, 1, 2)
		}
		u.attempt = nil
		l.ended = append(l.ended, u)
	}
	l.silent.Store(int64(len(l.waiting) + len(l.ended)))
}

// Received records that the engine has sent a part of an answer.
func (l *liveness) Received(now time.Time) {
	l.sentAt.Store(now.UnixNano())
	if l.silent.Load() > 0 {
		l.forget()
	}
}

// forget drops all silent streams.
func (l *liveness) forget() {
	l.mu.Lock()
	clear(l.waiting)
	clear(l.ended)
	l.waiting, l.ended, l.hung = l.waiting[:0], l.ended[:0], false
	l.silent.Store(0)
	l.mu.Unlock()
}

// AnswerStream records that a stream has its first content.
func (l *liveness) AnswerStream(q SentStream) {
	l.mu.Lock()
	l.answered[l.next] = q
	l.next = (l.next + 1) % len(l.answered)
	if l.tenants[0].Tenant != q.Tenant {
		l.tenants[1] = l.tenants[0]
	}
	l.tenants[0] = q
	l.mu.Unlock()
}

// overdue returns the streams that have no byte after their patience, the last one
// first, and whether the worker was found hung before.
func (l *liveness) overdue(now time.Time) (streams []SentStream, hung bool) {
	if l.silent.Load() == 0 {
		return nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range [][]unanswered{l.ended, l.waiting} {
		for _, u := range of {
			if !now.Before(u.late) && now.Sub(u.Began) < hangWindow {
				streams = append(streams, u.SentStream)
			}
		}
	}
	slices.SortFunc(streams, func(a, b SentStream) int { return b.Began.Compare(a.Began) })
	return streams, l.hung
}

// hung reports whether the worker hangs: its engine's step counters stand still
// although requests run, or its streams are silent while its peers answer. While it
// is tried, only the trial counts: its counters may be wrong.
func (m *Member) hung(peers []*Member, now time.Time) bool {
	return m.Gate.State() != breaker.HalfOpen && m.Live.stalled(m.Worker.Status()) || m.silent(peers, now)
}

// stalled reports whether the engine's step counters stand still although requests
// run. Counters of an engine that has sent part of an answer meanwhile are stale.
func (l *liveness) stalled(st workers.Status) bool {
	if st.StalledSince.IsZero() || st.LoadAt.Sub(st.StalledSince) < stalledAfter {
		return false
	}
	return l.sentAt.Load() <= st.StalledSince.Add(sentLate).UnixNano()
}

// silent reports whether several of the worker's streams are overdue while its peers
// have answered as many that began later. Only streams count, because a whole answer
// has no byte before its end. While the peers answer other tenants, the overdue
// streams must be of two tenants, or of one for longer.
func (m *Member) silent(peers []*Member, now time.Time) bool {
	streams, found := m.Live.overdue(now)
	if found || len(streams) < hangRequests {
		return found
	}
	var answered, tenants []SentStream
	for _, p := range peers {
		if p != m {
			p.Live.mu.Lock()
			answered, tenants = append(answered, p.Live.answered[:]...), append(tenants, p.Live.tenants[:]...)
			p.Live.mu.Unlock()
		}
	}
	var counted []uint64 // prompts
	several := false     // tenants
	for _, q := range streams {
		several = several || q.Tenant != streams[0].Tenant
		later := func(other SentStream) bool { return other.Began.After(q.Began) }
		same := func(other SentStream) bool { return other.Prompt == q.Prompt && later(other) }
		// A prompt counts once, because it may be what is slow; each time, if a peer
		// has answered it.
		if !slices.Contains(counted, q.Prompt) || slices.ContainsFunc(answered, same) {
			counted = append(counted, q.Prompt)
		}
		others := func(other SentStream) bool { return other.Tenant != q.Tenant && later(other) }
		alone := !several && slices.ContainsFunc(tenants, others)
		if len(counted) < hangRequests || alone && now.Sub(q.Began) < hangAlone {
			continue
		}
		n := 0
		for _, other := range answered {
			if later(other) {
				n++
			}
		}
		if n >= hangRequests {
			m.Live.setHung()
			return true
		}
	}
	return false
}

// setHung records that the worker hangs, which holds until it sends something.
func (l *liveness) setHung() {
	l.mu.Lock()
	l.hung = l.silent.Load() > 0
	l.mu.Unlock()
}
