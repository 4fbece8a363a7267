package tenants

import (
	"math"
	"time"
)

// bucket is a leaky bucket: what is used of a limit runs out at the limit's rate.
// It keeps units, not times, so that a limit that changes finds what is used.
// store's scripts keep the same arithmetic line by line.
type bucket struct {
	used float64
	at   int64 // µs since 1970; what is used is of that time
}

// rate is one limit of a bucket, as it stands when it is asked.
type rate struct {
	limit  float64 // units a period
	period float64 // in µs
	room   float64 // units at once
}

const (
	minute = 60e6
	second = 1e6

	// slack is how much of a unit too much passes: a float64 of a million tokens
	// is exact to a ten-thousandth of it, so that a wait that was told is enough.
	slack = 1e-6

	// horizon is for how long a clock that went back stops a bucket from leaking, in
	// µs: more than clocks of one house differ. What lies further ahead was written
	// by a clock that was wrong, and counts for nothing: else it would stop the
	// bucket until then.
	horizon = 60e6
)

// decayed returns the bucket as it is at a time. Time that goes back stands still.
func (b bucket) decayed(now int64, r rate) bucket {
	if b.at > now+horizon {
		return bucket{at: now}
	}
	gone := max(0, now-b.at)
	return bucket{used: max(0, b.used-float64(gone)*r.limit/r.period), at: max(b.at, now)}
}

// wait returns for how many µs a decayed bucket has no room for the cost; 0: it
// has room now. A cost above all the room waits for an empty bucket.
func (b bucket) wait(cost float64, r rate) int64 {
	over := b.used + min(cost, r.room) - r.room
	if over <= slack {
		return 0
	}
	return int64(min(math.Ceil(over*r.period/r.limit), math.MaxInt64/2048)) // as a Duration it must not overflow
}

// meter returns what x-ratelimit headers say of a decayed bucket.
func (b bucket) meter(limit int64, r rate) Meter {
	return Meter{Set: true, Limit: limit, Remaining: int64(max(0, math.Floor(r.room-b.used+slack))),
		Reset: micros(int64(min(math.Ceil(b.used*r.period/r.limit), math.MaxInt64/2048)))}
}

// micros is a time in µs as a Duration.
func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// rates are the limits of a subject's three buckets; a limit of 0 is none.
type rates struct{ requests, seconds, tokens rate }

// rates returns the buckets' limits of one of so many gateways.
func (l *Limits) rates(share int) rates {
	part := func(n int64) float64 { return float64(portion(n, share)) }
	return rates{
		requests: rate{part(l.RPM), minute, part(l.RequestBurst())},
		seconds:  rate{part(l.RPS), second, part(l.SecondBurst())},
		tokens:   rate{part(l.TPM), minute, part(l.TokensAtOnce())},
	}
}

// portion is one gateway's part of a limit, rounded up: every gateway lets
// somebody in.
func portion(n int64, share int) int64 {
	s := int64(max(1, share))
	if n <= 0 || s == 1 {
		return n
	}
	return (n-1)/s + 1
}

// wins reports whether a refusal is to be told rather than the one found before:
// by the order of the limits, and among rates the one that takes longest.
func (v *Verdict) wins(found Limit, wait time.Duration) bool {
	a, b := found.rank(), v.Refused.rank()
	return a < b || a == b && wait > v.Wait
}

// rank is the place of a limit in the order in which refusals are told. Rates
// share one. The empty limit is last.
func (l Limit) rank() int {
	switch l {
	case LimitDayTokens:
		return 0
	case LimitMonthTokens:
		return 1
	case LimitDayMoney:
		return 2
	case LimitMonthMoney:
		return 3
	case LimitTokenBurst:
		return 4
	case LimitRPM, LimitRPS, LimitTPM:
		return 5
	case LimitConcurrent:
		return 6
	}
	return 7
}

// refuse notes a refusal of a subject's limit if it is the one to be told.
func (v *Verdict) refuse(s *Subject, found Limit, wait time.Duration) {
	if !v.wins(found, wait) {
		return
	}
	v.Refused, v.Wait, v.Whose = found, wait, "tenant"
	if s.Key != "" {
		v.Whose = "key"
	}
}

// least keeps of two meters the one with less left.
func (m *Meter) least(o Meter) {
	if !m.Set || o.Remaining < m.Remaining {
		*m = o
	}
}

// UntilNext returns how long it is from a time until the window of a budget ends:
// its UTC day or month.
func (l Limit) UntilNext(at time.Time) time.Duration {
	at = at.UTC()
	year, month, day := at.Date()
	if l == LimitMonthTokens || l == LimitMonthMoney {
		return time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC).Sub(at)
	}
	return time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC).Sub(at)
}
