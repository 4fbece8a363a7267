package tenants

// Use is how far one limit of a subject is used, as far as this process knows.
type Use struct {
	Scope    string  // tenant or key
	Limit    Limit   // as LimitNames has them, LimitTokenBurst excepted
	Used     float64 // requests, tokens, or money in nano-units
	Capacity float64 // how much may be used at once: of a rate its burst, else the limit itself
	Rate     int64   // of a rate, what is given back a minute, or of rps a second; else 0
	Cost     float64 // what the request takes of it; 0 of a budget, which is booked by what was used
}

// Peek says what Take would say of a charge, and how far each limit of the caller
// is used. It books nothing, and keeps nothing of who asks.
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
		if v.Refused == "" { // what is left is told as Take tells it
			s.bookCosts(c, now)
		}
		s.measureRates(now, &v)
	}
	return v, uses
}

// copyOf returns a subject's state as it is now; an empty one of who has none.
func (l *Limiter) copyState(sub *Subject) *state {
	is := &state{}
	l.withState(sub.Tenant, sub.Key, func(s *state) {
		is.buckets, is.inflight, is.days, is.months = s.buckets, s.inflight, s.days, s.months
	})
	return is
}

// uses appends how far each limit of the subject is used.
func (s *state) uses(uses []Use, c *Charge, sub *Subject, now int64) []Use {
	l, r, costs := &sub.Limits, s.limits.rates(s.share), c.costs()
	whose := sub.scope()
	for i, b := range s.buckets.decayed(now, r) {
		if r[i].limit > 0 {
			uses = append(uses, Use{whose, rateLimits[i], b.used, r[i].capacity, int64(r[i].limit), costs[i]})
		}
	}
	if l.Concurrent > 0 {
		uses = append(uses, Use{whose, LimitConcurrent, float64(s.inflight), float64(portion(l.Concurrent, s.share)), 0, 1})
	}
	for _, b := range s.budgets(l, c.At) {
		if b.most > 0 {
			uses = append(uses, Use{Scope: whose, Limit: b.limit, Used: float64(b.spent), Capacity: float64(b.most)})
		}
	}
	return uses
}

// whose says whether the subject is a tenant or a key.
func (s *Subject) scope() string {
	if s.Key == "" {
		return "tenant"
	}
	return "key"
}
