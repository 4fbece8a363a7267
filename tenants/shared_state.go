package tenants

import "time"

// SubjectState is what this process knows of one subject at one moment, for the counters that
// several gateways share. Of two states of a subject, the one with the higher Sequence is newer.
type SubjectState struct {
	Tenant, Key string
	Limits      Limits // as last seen
	Sequence    int64
	InFlight    int64      // admitted requests that have not ended
	Pending     int64      // requests that wait for a remote decision, without the one that the state is sent for
	Ended       int64      // requests that have ended since the process started
	Used        [3]float64 // levels of the buckets (requests/min, requests/s, tokens/min), as this process admitted
	Day, Month  WindowUsage
}

// WindowUsage is what this process knows of a subject's budgets in one window.
type WindowUsage struct {
	Index     int   // the UTC Day or Month
	Shared    Spent // the last value of the shared counters; before the first one, derived from the ledger
	Own       Spent // settled by this process
	Confirmed Spent // the part of Own that the shared counters have confirmed
}

// SharedCounters is the reply of the shared counters to a SubjectState.
type SharedCounters struct{ Day, Month SharedCounter }

// SharedCounter is one shared counter: its sum, and the part of it that this process settled.
type SharedCounter struct{ Sum, Own Spent }

// BeginRemote starts the admission of a request by the shared counters. It appends the states
// of the caller's subjects to all. The caller must end it with CommitRemote or AbortRemote.
func (l *Limiter) BeginRemote(c *Charge, all []SubjectState) []SubjectState {
	states := l.lockStates(c)
	defer unlockStates(states)
	c.setLimits(states, 1)
	c.setWindows(states)
	for i, s := range states {
		all = append(all, l.subjectState(&c.Caller.Subjects[i], s, c.At, c.day(), c.month()))
		s.pending++
	}
	return all
}

// AbortRemote ends a remote decision that refused the request or failed. Nothing is booked.
func (l *Limiter) AbortRemote(c *Charge) { l.endRemote(c, false) }

// CommitRemote ends a remote decision that admitted the request. The request is booked here
// too, whatever the local limits allow.
func (l *Limiter) CommitRemote(c *Charge) { l.endRemote(c, true) }

func (l *Limiter) endRemote(c *Charge, admitted bool) {
	states := l.lockStates(c)
	defer unlockStates(states)
	c.setLimits(states, 1)
	for _, s := range states {
		s.pending = max(0, s.pending-1)
		if admitted {
			s.bookCosts(c, c.At.UnixMicro())
			s.inflight++
		}
	}
}

// SubjectStates appends the current states of the caller's subjects to all, in the windows of the
// admission.
func (l *Limiter) SubjectStates(c *Charge, all []SubjectState) []SubjectState {
	for i := range c.Caller.Subjects {
		sub := &c.Caller.Subjects[i]
		l.withState(sub.Tenant, sub.Key, func(s *state) {
			all = append(all, l.subjectState(sub, s, c.At, c.day(), c.month()))
		})
	}
	return all
}

// DirtySubjects appends to all the states that the shared counters need again: those of
// subjects with requests in flight, or with usage that the counters have not confirmed.
func (l *Limiter) DirtySubjects(now time.Time, all []SubjectState) []SubjectState {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for id, s := range l.subjects {
		s.mu.Lock()
		today, thisMonth := s.currentDay(now), s.currentMonth(now)
		day, month := s.days.windowUsage(today), s.months.windowUsage(thisMonth)
		unconfirmed := s.limits.Budgeted() && (day.Own != day.Confirmed || month.Own != month.Confirmed)
		if unconfirmed || s.limits.Concurrent > 0 && s.inflight > 0 {
			all = append(all, l.subjectState(&Subject{Tenant: id.tenant, Key: id.key}, s, now, today, thisMonth))
		}
		s.mu.Unlock()
	}
	return all
}

// UpdateShared applies the reply of the shared counters to a state that was sent.
func (l *Limiter) UpdateShared(sent *SubjectState, c SharedCounters) {
	l.withState(sent.Tenant, sent.Key, func(s *state) {
		s.days.updateShared(sent.Day.Index, c.Day)
		s.months.updateShared(sent.Month.Index, c.Month)
	})
}

// RemoteAdmission returns the admission that the shared counters decided. refused is the limit
// that refuses, or empty; index selects its subject among the caller's subjects; wait applies
// to rates. used has the bucket levels of each subject: requests/min, requests/s, tokens/min.
func RemoteAdmission(c *Charge, refused Limit, index int, wait time.Duration, used [][3]float64) Admission {
	var a Admission
	if refused != "" && 0 <= index && index < len(c.Caller.Subjects) {
		if refused.Budget() {
			wait = refused.UntilNext(c.At)
		}
		a.recordRefusal(&c.Caller.Subjects[index], refused, wait)
	}
	for i := range min(len(used), len(c.Caller.Subjects)) {
		l := &c.Caller.Subjects[i].Limits
		a.measureRates(l, l.rates(1), buckets{{used: used[i][0]}, {used: used[i][1]}, {used: used[i][2]}})
	}
	return a
}

// subjectState returns the state of a locked subject at a time, in two windows. The sequence
// number is taken under the lock, so that the newer of two states has the higher number.
func (l *Limiter) subjectState(sub *Subject, s *state, at time.Time, day, month int) SubjectState {
	b := s.buckets.decayed(at.UnixMicro(), s.limits.rates(1))
	return SubjectState{Tenant: sub.Tenant, Key: sub.Key, Limits: s.limits, Sequence: l.sequence.Add(1),
		Used: [3]float64{b[0].used, b[1].used, b[2].used}, InFlight: s.inflight, Pending: s.pending, Ended: s.ended,
		Day: s.days.windowUsage(day), Month: s.months.windowUsage(month)}
}

// windowUsage returns what is known of the window with that index.
func (a *budgetWindows) windowUsage(index int) WindowUsage {
	w := a.window(index)
	return WindowUsage{Index: index, Shared: w.sharedFloor(), Own: w.own, Confirmed: w.confirmed}
}
