package server

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tierway/openai"
)

// liveness is what a worker's answers show of whether its engine still works: the
// requests that are without a byte since the worker last sent one. It is safe for
// concurrent use; the zero liveness knows nothing.
type liveness struct {
	silent atomic.Int64 // requests in waiting, and overdue; read for each piece of an answer

	mu       sync.Mutex // guards the rest
	waiting  []unanswered
	overdue  int       // requests that ended after their patience without a byte
	since    time.Time // when the first of these began
	answered [hangRequests]time.Time
	next     int // in answered
}

// unanswered is one request that has no byte yet.
type unanswered struct {
	attempt *attempt
	began   time.Time
	late    time.Time // the end of its patience
}

const (
	// hangRequests is how many requests must be overdue, and how many later ones
	// other workers must have answered, before a worker counts as hung: one slow
	// request says nothing of its worker.
	hangRequests = 3
	// hangFactor is how many times its predicted time a request may take. The
	// prediction knows the tokens ahead on the worker; a sound engine is not off
	// by four.
	hangFactor = 4
	// hangFloor is the shortest patience: below it, a pause of the machine or of
	// the network would look like a hang.
	hangFloor = 3 * time.Second
	// stalledAfter is how long an engine's step counters may stand still while
	// requests run. One step takes up to a few seconds on the largest models.
	stalledAfter = 10 * time.Second
)

// begin notes a request that is sent to the worker, with its predicted time.
func (l *liveness) begin(a *attempt, expected time.Duration) {
	l.mu.Lock()
	l.waiting = append(l.waiting, unanswered{a, a.started, a.started.Add(max(hangFloor, hangFactor*expected))})
	l.mu.Unlock()
	l.silent.Add(1)
}

// end notes that a request has ended. Without a byte and after its patience, it
// stays a sign of a hang until the worker sends something.
func (l *liveness) end(a *attempt, now time.Time) {
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
	if now.Before(u.late) {
		l.silent.Add(-1)
		return
	}
	if l.overdue == 0 || u.began.Before(l.since) {
		l.since = u.began
	}
	l.overdue++
}

// received notes that the engine has sent a part of an answer.
func (l *liveness) received() {
	if l.silent.Load() == 0 {
		return
	}
	l.mu.Lock()
	clear(l.waiting)
	l.waiting, l.overdue = l.waiting[:0], 0
	l.silent.Store(0)
	l.mu.Unlock()
}

// answer notes that a request which began then has been answered.
func (l *liveness) answer(began time.Time) {
	l.mu.Lock()
	l.answered[l.next] = began
	l.next = (l.next + 1) % len(l.answered)
	l.mu.Unlock()
}

// overdueAt returns how many requests have no byte after their patience, and when
// the first of them began.
func (l *liveness) overdueAt(now time.Time) (n int, since time.Time) {
	if l.silent.Load() < hangRequests {
		return 0, time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n, since = l.overdue, l.since
	for _, u := range l.waiting {
		if now.Before(u.late) {
			continue
		}
		if n == 0 || u.began.Before(since) {
			since = u.began
		}
		n++
	}
	return n, since
}

// answeredSince returns how many of the last answered requests began after that.
func (l *liveness) answeredSince(since time.Time) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, began := range l.answered {
		if began.After(since) {
			n++
		}
	}
	return n
}

// hung tells whether the worker hangs: several of its requests are overdue without
// a byte, while its peers have answered as many that began later; or its engine's
// step counters stand still although requests run.
func (m *member) hung(peers []*member, now time.Time) bool {
	if st := m.worker.Status(); !st.StalledSince.IsZero() && st.LoadAt.Sub(st.StalledSince) >= stalledAfter {
		return true
	}
	n, since := m.live.overdueAt(now)
	if n < hangRequests {
		return false
	}
	answered := 0
	for _, p := range peers {
		if p != m {
			answered += p.live.answeredSince(since)
		}
	}
	return answered >= hangRequests
}

// expectedTime is how long the first byte of the attempt's answer should take. A
// whole answer comes when its last token is there, and may have all the tokens that
// it is allowed.
func (a *attempt) expectedTime() time.Duration {
	x, expected := a.x, a.lease.Expected()
	if x.facts.Stream || x.facts.OutputTokens <= 0 {
		return expected
	}
	most := x.pool.routing.LongAnswer(x.req.MaxTokens)
	return time.Duration(float64(expected) * max(1, float64(most)/float64(x.facts.OutputTokens)))
}

// generates tells whether the answer needs the engine and its time is predicted. Of
// a hung engine, the server may still count tokens or return stored responses.
func (x *exchange) generates() bool {
	switch x.dialect {
	case openai.Chat, openai.Completions, openai.Responses, openai.Messages:
		return x.req != nil && !x.req.Background && x.workerPath != "/v1"+routeCountTokens
	}
	return false
}
