package tenants

import "time"

// judge notes in v what of the subject's limits refuses the request.
func (s *state) judge(c *Charge, sub *Subject, now int64, v *Verdict) {
	l := &sub.Limits
	if l.Budgeted() && !c.IgnoreBudget {
		s.judgeBudgets(c, sub, v)
	}
	r := l.rates(s.share)
	tokens := float64(max(0, c.Tokens))
	if l.TPM > 0 && c.Tokens > l.TokensAtOnce() {
		v.refuse(sub, LimitTokenBurst, 0)
	}
	try := func(name Limit, b bucket, cost float64, r rate) {
		if r.limit > 0 {
			if wait := b.decayed(now, r).wait(cost, r); wait > 0 {
				v.refuse(sub, name, micros(wait))
			}
		}
	}
	try(LimitRPM, s.requests, 1, r.requests)
	try(LimitRPS, s.seconds, 1, r.seconds)
	try(LimitTPM, s.tokens, tokens, r.tokens)
	if l.Concurrent > 0 && s.held >= portion(l.Concurrent, s.share) {
		v.refuse(sub, LimitConcurrent, time.Second) // nobody knows when one ends
	}
}

func (s *state) judgeBudgets(c *Charge, sub *Subject, v *Verdict) {
	l := &sub.Limits
	day, month := s.days.spent(Day(c.At)), s.months.spent(Month(c.At))
	for _, b := range [...]struct {
		name          Limit
		spent, budget int64
	}{
		{LimitDayTokens, day.Tokens, l.DayTokens}, {LimitMonthTokens, month.Tokens, l.MonthTokens},
		{LimitDayMoney, int64(day.Money), int64(l.DayMoney)}, {LimitMonthMoney, int64(month.Money), int64(l.MonthMoney)},
	} {
		if b.budget > 0 && b.spent >= b.budget {
			v.refuse(sub, b.name, b.name.UntilNext(c.At))
		}
	}
}

// book takes what a request costs from the buckets.
func (s *state) book(c *Charge, now int64) {
	r := s.limits.rates(s.share)
	s.requests.correct(1, now, r.requests)
	s.seconds.correct(1, now, r.seconds)
	s.tokens.correct(float64(max(0, c.Tokens)), now, r.tokens)
}

// settle corrects what book took, at the rates of now, where there was a limit
// then too, and books what was used.
func (s *state) settle(c *Charge, then *Limits, u Used, now int64) {
	r := s.limits.rates(max(1, s.share))
	if by := c.excess(u); then.TPM > 0 && by != 0 {
		s.tokens.correct(by, now, r.tokens)
	}
	if u.Refund && then.RPM > 0 {
		s.requests.correct(-1, now, r.requests)
	}
	if u.Refund && then.RPS > 0 {
		s.seconds.correct(-1, now, r.seconds)
	}
	if !then.Budgeted() && !s.limits.Budgeted() {
		return // a budget that is set later begins with what the ledger says
	}
	used := Spent{Tokens: u.Tokens, Money: u.Money}
	s.days.settle(Day(c.At), used)
	s.months.settle(Month(c.At), used)
}

// excess is by how many tokens more was used than reserved.
func (c *Charge) excess(u Used) float64 { return float64(max(0, u.Tokens) - max(0, c.Tokens)) }

// correct adds to what is used at a time, which never falls below nothing. A
// bucket without a limit stays as it is.
func (b *bucket) correct(by float64, now int64, r rate) {
	if r.limit > 0 {
		*b = b.decayed(now, r)
		b.used = max(0, b.used+by)
	}
}

// measure notes in v what is left of the subject's rates.
func (s *state) measure(now int64, v *Verdict) {
	r := s.limits.rates(s.share)
	v.measure(&s.limits, r, s.requests.decayed(now, r.requests), s.seconds.decayed(now, r.seconds), s.tokens.decayed(now, r.tokens))
}

// measure notes in v what decayed buckets have left. Of a subject with both
// request limits, the minute's is told.
func (v *Verdict) measure(l *Limits, r rates, requests, seconds, tokens bucket) {
	switch {
	case l.RPM > 0:
		v.Requests.least(requests.meter(l.RPM, r.requests))
	case l.RPS > 0:
		v.Requests.least(seconds.meter(l.RPS, r.seconds))
	}
	if l.TPM > 0 {
		v.Tokens.least(tokens.meter(l.TPM, r.tokens))
	}
}
