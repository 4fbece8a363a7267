package tenants

// Use is the usage of one limit of a subject, as far as this process knows.
type Use struct {
	Scope    string  // "tenant" or "key"
	Limit    Limit   // any of LimitNames except LimitTokenBurst
	Used     float64 // requests, tokens, or money in nano-units
	Capacity float64 // maximum of Used: the burst of a rate, otherwise the limit
	Rate     int64   // units of a rate that leak per minute, or per second for rps; otherwise 0
	Cost     float64 // reservation of the request; 0 for a budget, which is booked by real usage
}

// Peek returns the admission that TakeCharge would return for a charge, and the usage of each limit
// of the caller. It books nothing and creates no state.
func (l *Limiter) Peek(c *Charge, share int) (Admission, []Use) {
	var v Admission
	var uses []Use
	now := c.At.UnixMicro()
	var states []*state
	for i := range c.Caller.Subjects {
		sub := &c.Caller.Subjects[i]
		s := l.copyState(sub)
		s.limits, s.share = sub.Limits, share
		s.checkLimits(c, sub, now, &v)
		uses = s.uses(uses, c, sub, now)
		states = append(states, s)
	}
	for _, s := range states {
		if v.Refused == "" { // the remaining amounts are those after the booking, as with TakeCharge
			s.bookCosts(c, now)
		}
		s.measureRates(now, &v)
	}
	return v, uses
}

// copyState returns a copy of a subject's current state, empty if there is none.
func (l *Limiter) copyState(sub *Subject) *state {
	copied := &state{}
	l.withState(sub.Tenant, sub.Key, func(s *state) {
		copied.buckets, copied.inflight, copied.days, copied.months = s.buckets, s.inflight, s.days, s.months
	})
	return copied
}

// uses appends the usage of each limit of the subject.
func (s *state) uses(uses []Use, c *Charge, sub *Subject, now int64) []Use {
	l, r, costs := &sub.Limits, s.limits.rates(s.share), c.costs()
	scope := sub.scope()
	for i, b := range s.buckets.decayed(now, r) {
		if r[i].limit > 0 {
			uses = append(uses, Use{scope, rateLimits[i], b.used, r[i].capacity, int64(r[i].limit), costs[i]})
		}
	}
	if l.Concurrent > 0 {
		uses = append(uses, Use{scope, LimitConcurrent, float64(s.inflight), float64(portion(l.Concurrent, s.share)), 0, 1})
	}
	for _, b := range s.budgets(l, c.At) {
		if b.maxSpent > 0 {
			uses = append(uses, Use{Scope: scope, Limit: b.limit, Used: float64(b.spent), Capacity: float64(b.maxSpent)})
		}
	}
	return uses
}

// scope returns "tenant" or "key".
func (s *Subject) scope() string {
	if s.Key == "" {
		return "tenant"
	}
	return "key"
}
