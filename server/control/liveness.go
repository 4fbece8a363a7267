package control

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tierway/breaker"
	"tierway/workers"
)

// liveness detects a worker that accepts requests and sends nothing. It holds the streams without a
// byte since the worker last sent part of an answer. It is safe for concurrent use; the zero liveness
// holds no streams.
type liveness struct {
	silent atomic.Int64 // number of streams in waiting and ended; read for each part of an answer
	sentAt atomic.Int64 // when the engine last sent a part of an answer, in Unix nanoseconds

	mu       sync.Mutex // guards the rest
	waiting  []unanswered
	ended    []unanswered // cut after their deadline; at most endedKept
	hung     bool         // the worker was silent while its peers answered, and has sent nothing since
	answered [hangRequests]SentStream
	next     int // index in answered
	// tenants has the last answered stream of each of the last two tenants. In answered, the streams
	// of one busy tenant can displace those of all others.
	tenants [2]SentStream
}

// SentStream identifies a stream that was sent to a worker, by its tenant, the hash of its prompt and
// the time when it began.
type SentStream struct {
	Tenant string
	Prompt uint64
	Began  time.Time
}

// unanswered is a stream without a byte of its answer.
type unanswered struct {
	SentStream
	attempt  any       // identifies the attempt
	deadline time.Time // the stream is overdue if it has no byte then
}

const (
	// hangRequests is the number of overdue streams, and of later streams that peers answered, from
	// which on a worker counts as hung. A single slow request says nothing about its worker.
	hangRequests = 3
	// hangFactor is the ratio of a stream's deadline to its predicted time to the first byte. The
	// prediction includes the tokens ahead on the worker; a healthy engine is not off by a factor of 4.
	hangFactor = 4
	// hangFloor is the shortest deadline. Below it, a pause of the machine or of the network would
	// look like a hang.
	hangFloor = 3 * time.Second
	// hangWindow is the greatest age of a stream that counts. It suffices for a worker that receives
	// one stream in 100 s.
	hangWindow = 5 * time.Minute
	// hangOneTenant is the time after which the silent streams of a single tenant count although the
	// peers answer only other tenants. Until then the tenant's prompts may be slow on a healthy worker.
	// Later, the tenant may be the only one that uses a worker that hangs.
	hangOneTenant = time.Minute
	// endedKept is the largest number of cut streams that are kept for a worker: the first and the
	// newest. It leaves room for a second tenant beside one that sends most requests.
	endedKept = 32
	// stalledAfter is the time for which an engine's step counters may stand still while requests
	// run. One step takes up to a few seconds on the largest models.
	stalledAfter = 10 * time.Second
	// sentGrace is the time for which bytes may arrive after the engine's counters have stopped: the
	// last bytes were already on their way.
	sentGrace = time.Second
)

// BeginStream records a stream that is sent to the worker. a identifies the attempt, and expected is
// the predicted time to the first byte. The caller must call EndStream with the same a.
func (l *liveness) BeginStream(a any, q SentStream, expected time.Duration) {
	l.mu.Lock()
	l.waiting = append(l.waiting, unanswered{q, a, q.Began.Add(max(hangFloor, hangFactor*expected))})
	l.silent.Add(1)
	l.mu.Unlock()
}

// EndStream records the end of the attempt a. cut means that its client or a timeout ended it. A
// stream that was cut without a byte after its deadline still counts as overdue.
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
	if cut && !now.Before(u.deadline) {
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
		l.clearSilent()
	}
}

// clearSilent removes all silent streams, so that the worker does not count as hung.
func (l *liveness) clearSilent() {
	l.mu.Lock()
	clear(l.waiting)
	clear(l.ended)
	l.waiting, l.ended, l.hung = l.waiting[:0], l.ended[:0], false
	l.silent.Store(0)
	l.mu.Unlock()
}

// AnswerStream records a stream of which the first content has arrived.
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

// overdue returns the streams without a byte after their deadlines, newest first, and whether the
// worker already counts as hung.
func (l *liveness) overdue(now time.Time) (streams []SentStream, hung bool) {
	if l.silent.Load() == 0 {
		return nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range [][]unanswered{l.ended, l.waiting} {
		for _, u := range list {
			if !now.Before(u.deadline) && now.Sub(u.Began) < hangWindow {
				streams = append(streams, u.SentStream)
			}
		}
	}
	slices.SortFunc(streams, func(a, b SentStream) int { return b.Began.Compare(a.Began) })
	return streams, l.hung
}

// hung reports whether the worker hangs: its engine's step counters stand still although requests
// run, or its streams are silent while its peers answer. While its breaker is half-open, the counters
// are ignored, because they may be older than the probes.
func (m *Member) hung(peers []*Member, now time.Time) bool {
	return m.Gate.State() != breaker.HalfOpen && m.Live.stalled(m.Worker.Status()) || m.silentBesidePeers(peers, now)
}

// stalled reports whether the engine's step counters stand still although requests run. If the engine
// has sent part of an answer meanwhile, the counters are stale and prove nothing.
func (l *liveness) stalled(st workers.Status) bool {
	if st.StalledSince.IsZero() || st.LoadAt.Sub(st.StalledSince) < stalledAfter {
		return false
	}
	return l.sentAt.Load() <= st.StalledSince.Add(sentGrace).UnixNano()
}

// silentBesidePeers reports whether several of the worker's streams are overdue while its peers have
// answered as many streams that began later. Only streams count, because an answer in one piece has no
// byte before its end. If the peers answer other tenants, the overdue streams must belong to two
// tenants, or be older than hangOneTenant.
func (m *Member) silentBesidePeers(peers []*Member, now time.Time) bool {
	streams, hung := m.Live.overdue(now)
	if hung || len(streams) < hangRequests {
		return hung
	}
	var answered, tenants []SentStream
	for _, p := range peers {
		if p != m {
			p.Live.mu.Lock()
			answered, tenants = append(answered, p.Live.answered[:]...), append(tenants, p.Live.tenants[:]...)
			p.Live.mu.Unlock()
		}
	}
	var prompts []uint64 // that count
	severalTenants := false
	for _, q := range streams {
		severalTenants = severalTenants || q.Tenant != streams[0].Tenant
		later := func(other SentStream) bool { return other.Began.After(q.Began) }
		same := func(other SentStream) bool { return other.Prompt == q.Prompt && later(other) }
		// A repeated prompt counts once, because the prompt itself may be slow. It counts each time
		// if a peer has answered it.
		if !slices.Contains(prompts, q.Prompt) || slices.ContainsFunc(answered, same) {
			prompts = append(prompts, q.Prompt)
		}
		others := func(other SentStream) bool { return other.Tenant != q.Tenant && later(other) }
		oneTenant := !severalTenants && slices.ContainsFunc(tenants, others)
		if len(prompts) < hangRequests || oneTenant && now.Sub(q.Began) < hangOneTenant {
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

// setHung makes the worker count as hung until it sends something.
func (l *liveness) setHung() {
	l.mu.Lock()
	l.hung = l.silent.Load() > 0
	l.mu.Unlock()
}
