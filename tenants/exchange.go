package tenants

import "time"

// Standing is what this process knows of one subject at one moment, to be told
// to those who count for several gateways. A Standing with a higher Sequence is
// newer.
type Standing struct {
	Tenant, Key string
	Limits      Limits // as last seen
	Sequence    int64
	Held        int64      // requests under way
	Pending     int64      // of those that ask elsewhere, without the one that the standing is for
	Left        int64      // requests that are over, since the process began
	Used        [3]float64 // of the requests a minute, a second and the tokens, by what this process has admitted
	Day, Month  Account
}

// Account is what is known of a subject's budgets in one window.
type Account struct {
	Index  int   // the UTC Day or Month
	Shared Spent // as the shared counters were last heard, or else as the ledger says
	Own    Spent // settled by this process
	Told   Spent // of Own, what the shared counters have confirmed
}

// Hearing is what the shared counters have answered to a Standing.
type Hearing struct{ Day, Month Heard }

// Heard is a shared counter: its sum, and how much of it this process has settled.
type Heard struct{ Sum, Own Spent }

// Ask begins asking elsewhere whether a request is admitted. It appends what this
// process knows of the caller's subjects. The caller owes Book or Drop.
func (l *Limiter) Ask(c *Charge, standings []Standing) []Standing {
	var buf [2]*state
	states := l.lock(c.Caller.Subjects, 1, buf[:0])
	defer unlock(states)
	for i, s := range states {
		standings = append(standings, l.standing(&c.Caller.Subjects[i], s, c.At))
		s.pending++
	}
	return standings
}

// Drop ends asking for a request that is not admitted, or about which nobody
// answers.
func (l *Limiter) Drop(c *Charge) { l.endAsking(c, false) }

// Book ends asking for a request that is admitted: it counts here, whatever the limits
// say.
func (l *Limiter) Book(c *Charge) { l.endAsking(c, true) }

func (l *Limiter) endAsking(c *Charge, admitted bool) {
	var buf [2]*state
	states := l.lock(c.Caller.Subjects, 1, buf[:0])
	defer unlock(states)
	for _, s := range states {
		s.pending = max(0, s.pending-1)
		if admitted {
			s.book(c, c.At.UnixMicro())
			s.held++
		}
	}
}

// Standings appends what this process knows of the caller's subjects now, in the
// windows of c.At.
func (l *Limiter) Standings(c *Charge, standings []Standing) []Standing {
	for i := range c.Caller.Subjects {
		sub := &c.Caller.Subjects[i]
		l.look(sub.Tenant, sub.Key, func(s *state) { standings = append(standings, l.standing(sub, s, c.At)) })
	}
	return standings
}

// Owing appends the standings of those subjects of which others must hear again:
// with requests under way, or with spent budgets that nobody has confirmed.
func (l *Limiter) Owing(now time.Time, standings []Standing) []Standing {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for w, s := range l.subjects {
		s.mu.Lock()
		day, month := s.days.account(Day(now)), s.months.account(Month(now))
		unheard := s.limits.Budgeted() && (day.Own != day.Told || month.Own != month.Told)
		if unheard || s.limits.Concurrent > 0 && s.held > 0 {
			standings = append(standings, l.standing(&Subject{Tenant: w.tenant, Key: w.key}, s, now))
		}
		s.mu.Unlock()
	}
	return standings
}

// Hear takes in what the shared counters answered to a standing.
func (l *Limiter) Hear(told *Standing, h Hearing) {
	l.look(told.Tenant, told.Key, func(s *state) {
		s.days.hear(told.Day.Index, h.Day)
		s.months.hear(told.Month.Index, h.Month)
	})
}

// Judged makes a verdict of what was decided elsewhere: the limit that refuses, or
// none, for the subject of that place among the caller's; the wait of a rate;
// and what is used of each subject's requests a minute, a second and tokens.
func Judged(c *Charge, refused Limit, place int, wait time.Duration, used [][3]float64) Verdict {
	var v Verdict
	if refused != "" && 0 <= place && place < len(c.Caller.Subjects) {
		if refused.Budget() {
			wait = refused.UntilNext(c.At)
		}
		v.refuse(&c.Caller.Subjects[place], refused, wait)
	}
	for i := range min(len(used), len(c.Caller.Subjects)) {
		l := &c.Caller.Subjects[i].Limits
		v.measure(l, l.rates(1), buckets{{used: used[i][0]}, {used: used[i][1]}, {used: used[i][2]}})
	}
	return v
}

// standing is a locked state, in the windows of a time. Its number is taken under
// the lock, so that of two standings of a subject the newer has the higher.
func (l *Limiter) standing(sub *Subject, s *state, at time.Time) Standing {
	b := s.buckets.decayed(at.UnixMicro(), s.limits.rates(1))
	return Standing{Tenant: sub.Tenant, Key: sub.Key, Limits: s.limits, Sequence: l.sequence.Add(1),
		Used: [3]float64{b[0].used, b[1].used, b[2].used}, Held: s.held, Pending: s.pending, Left: s.left,
		Day: s.days.account(Day(at)), Month: s.months.account(Month(at))}
}

// account returns what is known of the window of that index.
func (a *account) account(index int) Account {
	w := a.window(index)
	return Account{Index: index, Shared: w.known(), Own: w.own, Told: w.told}
}
