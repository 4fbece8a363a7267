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
	subjects map[subjectID]*state
	sequence atomic.Int64 // of Standings; it grows for as long as the process lives
}

// who is whose state it is.
type subjectID struct{ tenant, key string }

// state is what one subject uses. mu guards all of it; who needs two of them
// takes the tenant's before the key's.
type state struct {
	mu        sync.Mutex
	forgotten bool // forgotten: look it up again
	buckets   buckets
	inflight  int64 // requests under way
	pending   int64 // requests about which another is being asked
	ended     int64 // requests that are over, ever
	days      budgetWindows
	months    budgetWindows
	limits    Limits // as last seen
	share     int    // this gateway is one of so many, as last told
}

// NewLimiter returns a limiter that knows nobody.
func NewLimiter() *Limiter { return &Limiter{subjects: map[subjectID]*state{}} }

// Take admits or refuses a request at c.At. It must pass all limits of all its
// caller's subjects, else nothing is booked. This gateway is one of share and
// enforces so much of each limit, budgets excepted.
func (l *Limiter) Take(c *Charge, share int) Admission {
	var buf [2]*state
	states := l.lockStates(c.Caller.Subjects, share, buf[:0])
	defer unlockStates(states)
	var v Admission
	now := c.At.UnixMicro()
	for i, s := range states {
		s.checkLimits(c, &c.Caller.Subjects[i], now, &v)
	}
	for _, s := range states {
		if v.Refused == "" {
			s.bookCosts(c, now)
			s.inflight++
		}
		s.measureRates(now, &v)
	}
	return v
}

// Settle ends an admitted request: it gives its slot back, corrects the reserved
// tokens by what was really used, and books that to the UTC day and month of
// c.At. It must be called once for each admission.
func (l *Limiter) Settle(c *Charge, u Used, now time.Time) {
	for i := range c.Caller.Subjects {
		sub := &c.Caller.Subjects[i]
		s := l.lockState(subjectID{sub.Tenant, sub.Key})
		s.inflight = max(0, s.inflight-1)
		s.ended++
		s.settleUsage(c, &sub.Limits, u, now.UnixMicro())
		s.mu.Unlock()
	}
}

// Inflight returns how many requests of a tenant, or of one of its keys, are
// under way.
func (l *Limiter) Inflight(tenant, key string) (n int64) {
	l.withState(tenant, key, func(s *state) { n = s.inflight })
	return n
}

// Spent returns what is known as spent in the UTC day and month of a time.
func (l *Limiter) Spent(tenant, key string, at time.Time) (day, month Spent) {
	l.withState(tenant, key, func(s *state) { day, month = s.days.window(Day(at)).spent, s.months.window(Month(at)).spent })
	return day, month
}

// Seed raises what is known as spent in the UTC day and month of a time to at
// least this. It never lowers it.
func (l *Limiter) Seed(tenant, key string, at time.Time, day, month Spent) {
	s := l.lockState(subjectID{tenant, key})
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
		if s.inflight == 0 && s.pending == 0 {
			s.forgotten = true
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
		busy := s.inflight != 0 || s.pending != 0
		s.mu.Unlock()
		if busy {
			return false
		}
	}
	return true
}

// find returns a subject's state.
func (l *Limiter) findState(w subjectID) *state {
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
func (l *Limiter) lockState(w subjectID) *state {
	for {
		s := l.findState(w)
		s.mu.Lock()
		if !s.forgotten {
			return s
		}
		s.mu.Unlock()
	}
}

// lock returns the states of all subjects, locked. They are found before the first
// is locked: who holds one never waits for the map.
func (l *Limiter) lockStates(subjects []Subject, share int, states []*state) []*state {
	for {
		states = states[:0]
		for i := range subjects {
			states = append(states, l.findState(subjectID{subjects[i].Tenant, subjects[i].Key}))
		}
		gone := false
		for i, s := range states {
			s.mu.Lock()
			s.limits, s.share = subjects[i].Limits, share
			gone = gone || s.forgotten
		}
		if !gone {
			return states
		}
		unlockStates(states)
	}
}

func unlockStates(states []*state) {
	for _, s := range states {
		s.mu.Unlock()
	}
}

// look calls f with a subject's state if there is one.
func (l *Limiter) withState(tenant, key string, f func(*state)) {
	l.mu.RLock()
	s := l.subjects[subjectID{tenant, key}]
	l.mu.RUnlock()
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		f(s)
	}
}
