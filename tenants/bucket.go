package tenants

import (
	"math"
	"slices"
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
	limit    float64 // units a period
	period   float64 // in µs
	capacity float64 // units at once
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
// has room now, or no limit. A cost above all the room waits for an empty bucket.
func (b bucket) wait(cost float64, r rate) int64 {
	over := b.used + min(cost, r.capacity) - r.capacity
	if r.limit <= 0 || over <= slack {
		return 0
	}
	return int64(min(math.Ceil(over*r.period/r.limit), math.MaxInt64/2048)) // as a Duration it must not overflow
}

// meter returns what x-ratelimit headers say of a decayed bucket.
func (b bucket) meter(limit int64, r rate) Meter {
	return Meter{Set: true, Limit: limit, Remaining: int64(max(0, math.Floor(r.capacity-b.used+slack))),
		Reset: micros(int64(min(math.Ceil(b.used*r.period/r.limit), math.MaxInt64/2048)))}
}

// correct adds to what is used at a time, which never falls below nothing. A
// bucket without a limit stays as it is.
func (b *bucket) correct(by float64, now int64, r rate) {
	if r.limit > 0 {
		*b = b.decayed(now, r)
		b.used = max(0, b.used+by)
	}
}

// micros is a time in µs as a Duration.
func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// buckets are those of a subject: requests a minute, requests a second, tokens a minute.
type buckets [3]bucket

// tokenBucket is the place of the tokens among buckets and rates.
const tokenBucket = 2

// rateLimits are the limits of buckets by name.
var rateLimits = [3]Limit{LimitRPM, LimitRPS, LimitTPM}

// decayed returns the buckets as they are at a time; those without a limit are empty.
func (b *buckets) decayed(now int64, r rates) (out buckets) {
	for i := range b {
		if r[i].limit > 0 {
			out[i] = b[i].decayed(now, r[i])
		}
	}
	return out
}

// rates are the limits of buckets; a limit of 0 is none.
type rates [3]rate

// rates returns the buckets' limits of one of so many gateways.
func (l *Limits) rates(share int) rates {
	part := func(n int64) float64 { return float64(portion(n, share)) }
	return rates{{part(l.RPM), minute, part(l.RequestBurst())}, {part(l.RPS), second, part(l.SecondBurst())},
		{part(l.TPM), minute, part(l.TokensAtOnce())}}
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

// rank is the place of a limit in the order in which refusals are told. Rates
// share one. The empty limit is last.
func (l Limit) rank() int {
	switch l {
	case "":
		return len(limitNames)
	case LimitRPS, LimitTPM:
		l = LimitRPM
	}
	return slices.Index(limitNames[:], l)
}

// refuse notes a refusal of a subject's limit if it is the one to be told: by the order
// of the limits, and among rates the one that takes longest.
func (v *Admission) noteRefusal(s *Subject, found Limit, wait time.Duration) {
	if a, b := found.rank(), v.Refused.rank(); a < b || a == b && wait > v.Wait {
		v.Refused, v.Wait, v.Scope = found, wait, s.scope()
	}
}

// least keeps of two meters the one with less left.
func (m *Meter) keepLower(o Meter) {
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
