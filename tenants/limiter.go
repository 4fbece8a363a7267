package tenants

import (
	"sync"
	"sync/atomic"
	"time"
)

// Limiter keeps each subject's usage of its limits in this process. It is safe for concurrent
// use and has no clock: time is an argument. Each admitted request must be settled once.
type Limiter struct {
	mu       sync.RWMutex // guards subjects, not the states
	subjects map[subjectID]*state
	sequence atomic.Int64 // last sequence number of a SubjectState; grows for the life of the process
}

// subjectID identifies a subject; key is empty for a tenant.
type subjectID struct{ tenant, key string }

// state is the usage of one subject. mu guards all of it. To lock two states, lock the tenant's
// before the key's.
type state struct {
	mu        sync.Mutex
	forgotten bool // removed from the limiter: look it up again
	buckets   buckets
	inflight  int64 // admitted requests that have not ended
	pending   int64 // requests that wait for a remote decision
	ended     int64 // total of ended requests
	days      budgetWindows
	months    budgetWindows
	limits    Limits // as last seen
	share     int    // number of gateways that divide the limits, as last passed
}

// NewLimiter returns an empty limiter.
func NewLimiter() *Limiter { return &Limiter{subjects: map[subjectID]*state{}} }

// TakeCharge admits or refuses a request at c.At. The request must pass all limits of all subjects of
// its caller; otherwise nothing is booked. share is the number of gateways that divide the limits:
// this one enforces a part of each limit except budgets.
func (l *Limiter) TakeCharge(c *Charge, share int) Admission {
	states := l.lockStates(c)
	defer unlockStates(states)
	c.setLimits(states, share)
	c.setWindows(states)
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

// SettleCharge ends an admitted request. It frees the slot, replaces the reserved tokens by the real
// ones, and books the usage to the UTC day and month of its admission. It must be called once for each
// admission.
func (l *Limiter) SettleCharge(c *Charge, u Used, now time.Time) {
	states := l.lockStates(c)
	defer unlockStates(states)
	for i, s := range states {
		s.inflight = max(0, s.inflight-1)
		s.ended++
		s.settleUsage(c, &c.Caller.Subjects[i].Limits, u, now.UnixMicro())
	}
}

// Inflight returns the number of in-flight requests of a tenant or one of its keys.
func (l *Limiter) Inflight(tenant, key string) (n int64) {
	l.withState(tenant, key, func(s *state) { n = s.inflight })
	return n
}

// Spent returns the known usage in the UTC day and month of a time.
func (l *Limiter) Spent(tenant, key string, at time.Time) (day, month Spent) {
	l.withState(tenant, key, func(s *state) {
		day, month = s.days.window(Day(at)).spent, s.months.window(Month(at)).spent
	})
	return day, month
}

// Seed raises the known usage in the UTC day and month of a time to at least these values. It
// never lowers it.
func (l *Limiter) Seed(tenant, key string, at time.Time, day, month Spent) {
	s := l.lockState(subjectID{tenant, key})
	defer s.mu.Unlock()
	s.days.seed(Day(at), Day(at.Add(maxBack)), day)
	s.months.seed(Month(at), Month(at.Add(maxBack)), month)
}

// Forget removes a tenant or one of its keys, so that the directory bounds the memory. It reports false while requests
// are in flight: then nothing is removed.
func (l *Limiter) Forget(tenant, key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.subjects[subjectID{tenant, key}]
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inflight > 0 || s.pending > 0 {
		return false
	}
	s.forgotten = true
	delete(l.subjects, subjectID{tenant, key})
	return true
}

// Idle reports whether no request is in flight.
func (l *Limiter) Idle() bool {
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

// findState returns a subject's state, and creates it if needed.
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

// lockState returns a subject's locked state.
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

// lockStates returns the locked states of a charge's subjects. It finds them before it locks the first: no goroutine
// waits for the map while it holds a state. The charge keeps them, so that a request reads the map once.
func (l *Limiter) lockStates(c *Charge) []*state {
	for {
		if len(c.states) == 0 {
			l.findStates(c)
		}
		gone := false
		for _, s := range c.states {
			s.mu.Lock()
			gone = gone || s.forgotten
		}
		if !gone {
			return c.states
		}
		unlockStates(c.states)
		c.states = nil
	}
}

// findStates sets the states of a charge's subjects, and creates those that are missing.
func (l *Limiter) findStates(c *Charge) {
	subjects := c.Caller.Subjects
	c.states = c.firstStates[:0]
	l.mu.RLock()
	for i := range subjects {
		c.states = append(c.states, l.subjects[subjectID{subjects[i].Tenant, subjects[i].Key}])
	}
	l.mu.RUnlock()
	for i, s := range c.states {
		if s == nil {
			c.states[i] = l.findState(subjectID{subjects[i].Tenant, subjects[i].Key})
		}
	}
}

func unlockStates(states []*state) {
	for _, s := range states {
		s.mu.Unlock()
	}
}

// withState calls f with a subject's locked state if there is one.
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
