package tenants

import (
	"sync"
	"sync/atomic"
	"time"
)

// Limiter keeps what every subject uses of its limits, in this process. It is safe
// for concurrent use and has no clock: time is an argument. Each request that it
// admits is owed one Settle.
type Limiter struct {
	mu       sync.RWMutex // guards subjects, not what they point to
	subjects map[who]*state
	sequence atomic.Int64 // of Standings; it grows for as long as the process lives
}

// who is whose state it is.
type who struct{ tenant, key string }

// state is what one subject uses. mu guards all of it; who needs two of them
// takes the tenant's before the key's.
type state struct {
	mu      sync.Mutex
	gone    bool // forgotten: look it up again
	buckets buckets
	held    int64 // requests under way
	pending int64 // requests about which another is being asked
	left    int64 // requests that are over, ever
	days    account
	months  account
	limits  Limits // as last seen
	share   int    // this gateway is one of so many, as last told
}

// NewLimiter returns a limiter that knows nobody.
func NewLimiter() *Limiter { return &Limiter{subjects: map[who]*state{}} }

// Take admits or refuses a request at c.At. It must pass all limits of all its
// caller's subjects, else nothing is booked. This gateway is one of share and
// enforces so much of each limit, budgets excepted.
func (l *Limiter) Take(c *Charge, share int) Verdict {
	var buf [2]*state
	states := l.lock(c.Caller.Subjects, share, buf[:0])
	defer unlock(states)
	var v Verdict
	now := c.At.UnixMicro()
	for i, s := range states {
		s.judge(c, &c.Caller.Subjects[i], now, &v)
	}
	for _, s := range states {
		if v.Refused == "" {
			s.book(c, now)
			s.held++
		}
		s.measure(now, &v)
	}
	return v
}

// Settle ends an admitted request: it gives its slot back, corrects the reserved
// tokens by what was really used, and books that to the UTC day and month of
// c.At. It must be called once for each admission.
func (l *Limiter) Settle(c *Charge, u Used, now time.Time) {
	for i := range c.Caller.Subjects {
		sub := &c.Caller.Subjects[i]
		s := l.get(who{sub.Tenant, sub.Key})
		s.held = max(0, s.held-1)
		s.left++
		s.settle(c, &sub.Limits, u, now.UnixMicro())
		s.mu.Unlock()
	}
}

// Inflight returns how many requests of a tenant, or of one of its keys, are
// under way.
func (l *Limiter) Inflight(tenant, key string) (n int64) {
	l.look(tenant, key, func(s *state) { n = s.held })
	return n
}

// Spent returns what is known as spent in the UTC day and month of a time.
func (l *Limiter) Spent(tenant, key string, at time.Time) (day, month Spent) {
	l.look(tenant, key, func(s *state) { day, month = s.days.window(Day(at)).spent, s.months.window(Month(at)).spent })
	return day, month
}

// Seed raises what is known as spent in the UTC day and month of a time to at
// least this. It never lowers it.
func (l *Limiter) Seed(tenant, key string, at time.Time, day, month Spent) {
	s := l.get(who{tenant, key})
	defer s.mu.Unlock()
	s.days.seed(Day(at), day)
	s.months.seed(Month(at), month)
}

// Forget drops the subjects that keep does not name and that have no request
// under way, so that memory is bounded by the directory.
func (l *Limiter) Forget(keep func(tenant, key string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w, s := range l.subjects {
		if keep(w.tenant, w.key) {
			continue
		}
		s.mu.Lock()
		if s.held == 0 && s.pending == 0 {
			s.gone = true
			delete(l.subjects, w)
		}
		s.mu.Unlock()
	}
}

// Zero reports whether nothing is under way.
func (l *Limiter) Zero() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, s := range l.subjects {
		s.mu.Lock()
		busy := s.held != 0 || s.pending != 0
		s.mu.Unlock()
		if busy {
			return false
		}
	}
	return true
}

// find returns a subject's state.
func (l *Limiter) find(w who) *state {
	l.mu.RLock()
	s := l.subjects[w]
	l.mu.RUnlock()
	if s != nil {
		return s
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s = l.subjects[w]; s == nil {
		s = &state{}
		l.subjects[w] = s
	}
	return s
}

// get returns a subject's state, locked.
func (l *Limiter) get(w who) *state {
	for {
		s := l.find(w)
		s.mu.Lock()
		if !s.gone {
			return s
		}
		s.mu.Unlock()
	}
}

// lock returns the states of all subjects, locked. They are found before the first
// is locked: who holds one never waits for the map.
func (l *Limiter) lock(subjects []Subject, share int, states []*state) []*state {
	for {
		states = states[:0]
		for i := range subjects {
			states = append(states, l.find(who{subjects[i].Tenant, subjects[i].Key}))
		}
		gone := false
		for i, s := range states {
			s.mu.Lock()
			s.limits, s.share = subjects[i].Limits, share
			gone = gone || s.gone
		}
		if !gone {
			return states
		}
		unlock(states)
	}
}

func unlock(states []*state) {
	for _, s := range states {
		s.mu.Unlock()
	}
}

// look calls f with a subject's state if there is one.
func (l *Limiter) look(tenant, key string, f func(*state)) {
	l.mu.RLock()
	s := l.subjects[who{tenant, key}]
	l.mu.RUnlock()
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		f(s)
	}
}
