package tenants

import (
	"math"
	"slices"
	"time"
)

// bucket is a leaky bucket: used units leak at the limit's rate. It keeps units, not times, so
// that usage survives a change of the limit. The scripts of package store do the same
// arithmetic line by line.
type bucket struct {
	used float64
	at   int64 // µs since 1970: the time of used
}

// rate is the current limit of a bucket.
type rate struct {
	limit    float64 // units per period
	period   float64 // in µs
	capacity float64 // units at once
}

const (
	minute = 60e6
	second = 1e6

	// slack is the part of a unit that may exceed the capacity. A float64 of a million tokens
	// is exact to a ten-thousandth of it, so that a returned wait is always sufficient.
	slack = 1e-6

	// horizon is the maximum time in µs for which a bucket stops leaking after the clock stepped
	// back: more than the clocks of one site differ. A time further ahead was written by a wrong
	// clock and is discarded; otherwise it would stop the bucket until then.
	horizon = 60e6
)

// decayed returns the bucket at a time. A clock that steps back does not change it.
func (b bucket) decayed(now int64, r rate) bucket {
	if b.at > now+horizon {
		return bucket{at: now}
	}
	gone := max(0, now-b.at)
	return bucket{used: max(0, b.used-float64(gone)*r.limit/r.period), at: max(b.at, now)}
}

// wait returns the µs until a decayed bucket has capacity for the cost; 0 if it has capacity now or
// has no limit. A cost above the whole capacity waits for an empty bucket.
func (b bucket) wait(cost float64, r rate) int64 {
	over := b.used + min(cost, r.capacity) - r.capacity
	if r.limit <= 0 || over <= slack {
		return 0
	}
	return int64(min(math.Ceil(over*r.period/r.limit), math.MaxInt64/2048)) // must not overflow as a Duration
}

// meter returns the values of the x-ratelimit headers for a decayed bucket.
func (b bucket) meter(limit int64, r rate) Meter {
	return Meter{Set: true, Limit: limit, Remaining: int64(max(0, math.Floor(r.capacity-b.used+slack))),
		Reset: micros(int64(min(math.Ceil(b.used*r.period/r.limit), math.MaxInt64/2048)))}
}

// correct adds to the usage at a time. Usage is never negative, and a bucket without a limit
// does not change.
func (b *bucket) correct(by float64, now int64, r rate) {
	if r.limit > 0 {
		*b = b.decayed(now, r)
		b.used = max(0, b.used+by)
	}
}

// micros converts µs to a Duration.
func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// buckets has the buckets of a subject: requests per minute, requests per second, tokens per
// minute.
type buckets [3]bucket

// tokenBucket is the index of the tokens in buckets and rates.
const tokenBucket = 2

// rateLimits has the names of the buckets' limits.
var rateLimits = [3]Limit{LimitRPM, LimitRPS, LimitTPM}

// decayed returns the buckets at a time. Buckets without a limit are empty.
func (b *buckets) decayed(now int64, r rates) (out buckets) {
	for i := range b {
		if r[i].limit > 0 {
			out[i] = b[i].decayed(now, r[i])
		}
	}
	return out
}

// rates has the limits of a subject's buckets; a limit of 0 means none.
type rates [3]rate

// rates returns the part of the bucket limits that one of share gateways enforces.
func (l *Limits) rates(share int) rates {
	part := func(n int64) float64 { return float64(portion(n, share)) }
	return rates{{part(l.RPM), minute, part(l.RequestBurst())}, {part(l.RPS), second, part(l.SecondBurst())},
		{part(l.TPM), minute, part(l.TokensAtOnce())}}
}

// portion returns one gateway's part of a limit, rounded up: every gateway admits at least one.
func portion(n int64, share int) int64 {
	s := int64(max(1, share))
	if n <= 0 || s == 1 {
		return n
	}
	return (n-1)/s + 1
}

// rank returns the place of a limit in the order of precedence of refusals. All rates have the
// same rank. The empty limit is last.
func (l Limit) rank() int {
	switch l {
	case "":
		return len(limitNames)
	case LimitRPS, LimitTPM:
		l = LimitRPM
	}
	return slices.Index(limitNames[:], l)
}

// recordRefusal records a refusal by a subject's limit if it takes precedence: by rank, and among
// rates by the longest wait.
func (v *Admission) recordRefusal(s *Subject, found Limit, wait time.Duration) {
	if a, b := found.rank(), v.Refused.rank(); a < b || a == b && wait > v.Wait {
		v.Refused, v.Wait, v.Scope = found, wait, s.scope()
	}
}

// keepLower keeps the meter with less remaining.
func (m *Meter) keepLower(o Meter) {
	if !m.Set || o.Remaining < m.Remaining {
		*m = o
	}
}

// UntilNext returns the time until the window of a budget ends: its UTC day or month.
func (l Limit) UntilNext(at time.Time) time.Duration {
	at = at.UTC()
	year, month, day := at.Date()
	if l == LimitMonthTokens || l == LimitMonthMoney {
		return time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC).Sub(at)
	}
	return time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC).Sub(at)
}
