package tenants

import "time"

// costs returns the cost of a request in each bucket.
func (c *Charge) costs() [3]float64 { return [3]float64{1, 1, float64(max(0, c.Tokens))} }

// checkLimits records in v which of the subject's limits refuse the request.
func (s *state) checkLimits(c *Charge, sub *Subject, now int64, v *Admission) {
	l := &sub.Limits
	if !c.IgnoreBudget {
		for _, b := range s.budgets(l, c.At) {
			if b.maxSpent > 0 && b.spent >= b.maxSpent {
				v.recordRefusal(sub, b.limit, b.limit.UntilNext(c.At))
			}
		}
	}
	if l.TPM > 0 && c.Tokens > l.TokensAtOnce() {
		v.recordRefusal(sub, LimitTokenBurst, 0)
	}
	r, costs := l.rates(s.share), c.costs()
	for i, b := range s.buckets.decayed(now, r) {
		if wait := b.wait(costs[i], r[i]); wait > 0 {
			v.recordRefusal(sub, rateLimits[i], micros(wait))
		}
	}
	if l.Concurrent > 0 && s.inflight >= portion(l.Concurrent, s.share) {
		v.recordRefusal(sub, LimitConcurrent, time.Second) // the next end of a request is unknown
	}
}

// budget is the usage of one budget.
type budget struct {
	limit           Limit
	spent, maxSpent int64 // maxSpent is 0 without a budget
}

// budgets returns the usage of the budgets in the current windows of a time.
func (s *state) budgets(l *Limits, at time.Time) (all [4]budget) {
	if !l.Budgeted() {
		return all
	}
	day, month := s.days.window(s.currentDay(at)).spent, s.months.window(s.currentMonth(at)).spent
	return [4]budget{{LimitDayTokens, day.Tokens, l.DayTokens}, {LimitMonthTokens, month.Tokens, l.MonthTokens},
		{LimitDayMoney, int64(day.Money), int64(l.DayMoney)}, {LimitMonthMoney, int64(month.Money), int64(l.MonthMoney)}}
}

// bookCosts takes the costs of a request from the buckets.
func (s *state) bookCosts(c *Charge, now int64) {
	r := s.limits.rates(s.share)
	for i, cost := range c.costs() {
		s.buckets[i].correct(cost, now, r[i])
	}
}

// settleUsage replaces the booked costs by the real ones, at the current rates, where the
// limits of the admission had a rate too. It books the usage to the budgets.
func (s *state) settleUsage(c *Charge, then *Limits, u Used, now int64) {
	r := s.limits.rates(max(1, s.share))
	excess := float64(max(0, u.Tokens) - max(0, c.Tokens))
	for i, was := range then.rates(1) {
		switch {
		case was.limit <= 0:
		case i == tokenBucket && excess != 0:
			s.buckets[i].correct(excess, now, r[i])
		case i != tokenBucket && u.Refund:
			s.buckets[i].correct(-1, now, r[i])
		}
	}
	if !then.Budgeted() && !s.limits.Budgeted() {
		return // a budget that is set later starts from the ledger
	}
	used := Spent{Tokens: u.Tokens, Money: u.Money}
	last := time.UnixMicro(now).Add(maxBack)
	s.days.addUsage(c.day(), Day(last), used)
	s.months.addUsage(c.month(), Month(last), used)
}

// measureRates records in v what remains of the subject's rates.
func (s *state) measureRates(now int64, v *Admission) {
	r := s.limits.rates(s.share)
	v.measureRates(&s.limits, r, s.buckets.decayed(now, r))
}

// measureRates records what remains in decayed buckets. For a subject with both request limits,
// the limit per minute is reported.
func (v *Admission) measureRates(l *Limits, r rates, b buckets) {
	switch {
	case l.RPM > 0:
		v.Requests.keepLower(b[0].meter(l.RPM, r[0]))
	case l.RPS > 0:
		v.Requests.keepLower(b[1].meter(l.RPS, r[1]))
	}
	if l.TPM > 0 {
		v.Tokens.keepLower(b[tokenBucket].meter(l.TPM, r[tokenBucket]))
	}
}
