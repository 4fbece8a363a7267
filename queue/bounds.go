package queue

import (
	"slices"
	"time"
)

// admitLocked decides whether a new ticket, which is in the queue already, may wait. It evicts
// other requests for it if the queue displaces.
func (q *Queue) admitLocked(t *Ticket, now time.Time) error {
	c := q.config.Load()
	reason := q.exceededBoundLocked(c, t, now)
	if reason == "" {
		return nil
	}
	victims := q.victimsLocked(c, t, reason)
	if len(victims) == 0 {
		return q.shedLocked(t, reason, now)
	}
	for _, v := range victims {
		q.evictLocked(v, q.shedLocked(v, ShedDisplaced, now), now)
	}
	return nil
}

// exceededBoundLocked returns the bound of c that a new ticket exceeds, "" if none. The ticket
// is in the queue already.
func (q *Queue) exceededBoundLocked(c *Config, t *Ticket, now time.Time) string {
	switch {
	case !c.Waits(t.Class):
		return ShedDepth
	case q.wouldBeLateLocked(c, t, now):
		return ShedDeadline
	case q.classes[t.Class].depth > c.MaxDepth:
		return ShedDepth
	case c.MaxBytes > 0 && q.bytes > c.MaxBytes:
		return ShedBytes
	}
	return ""
}

// wouldBeLateLocked reports whether a new ticket would be dispatched after its wait limit. The
// estimate is accurate to a few per cent once it is sure. In simulations it refuses three
// quarters of the requests that would time out, and no other.
func (q *Queue) wouldBeLateLocked(c *Config, t *Ticket, now time.Time) bool {
	may := q.waitLimitUnderLocked(c, t).Sub(now)
	if may <= 0 {
		return true
	}
	rate, sure := q.pool.Throughput(now)
	if !sure || rate <= 0 {
		return false
	}
	return float64(q.aheadLocked(t))/rate > may.Seconds()
}

// aheadLocked estimates how many requests are dispatched before a new ticket, which is in the
// queue already: all requests of more urgent classes, and from each tenant of its class as many
// as its own tenant has waiting.
func (q *Queue) aheadLocked(t *Ticket) int {
	c := &q.classes[t.Class]
	return q.aboveLocked(t.Class) + min(c.depth, t.flow.depth*len(c.waiting)) - 1
}

// aboveLocked returns the number of waiting requests of more urgent classes.
func (q *Queue) aboveLocked(class int) int {
	n := 0
	for i := range class {
		n += q.classes[i].depth
	}
	return n
}

const (
	// longestRetryAfter is the longest Retry-After that the OpenAI SDKs obey. With a longer one
	// they retry within seconds.
	longestRetryAfter = time.Minute
	// unknownRetryAfter is sent while the pool's throughput is unknown.
	unknownRetryAfter = time.Second
	// retrySpacing is the distance between two retries, in intervals between two dispatches.
	// Slots are released in bursts: simulated at 1, 4 of 132 clients with two retries never
	// succeeded; at 1.5 all did.
	retrySpacing = 1.5
	// retrySpacingUnsure is the same while the throughput is mostly the prior. Simulated with engines half as fast as the
	// prior, clients fail at less.
	retrySpacingUnsure = 2.5
	// retryFirst is the distance of the first retry, beside which no other is planned: a slot is free then.
	retryFirst = 1
	// shortestRetryAfter keeps the clients of a fast pool from retrying in a loop.
	shortestRetryAfter = 100 * time.Millisecond
)

// shedLocked counts a shed and returns its error with a Retry-After. Retries are spaced at the
// pool's dispatch rate. The first one is due when a slot for the class should be free; after an
// unsuccessful wait, when the requests ahead should be gone.
func (q *Queue) shedLocked(t *Ticket, reason string, now time.Time) error {
	q.classes[t.Class].counts.Shed[slices.Index(shedReasons[:], reason)]++
	return &ShedError{Reason: reason, RetryAfter: q.retryAfterLocked(t, reason, now)}
}

func (q *Queue) retryAfterLocked(t *Ticket, reason string, now time.Time) time.Duration {
	rate, sure := q.pool.Throughput(now)
	if rate <= 0 {
		return unknownRetryAfter
	}
	spacing := retrySpacing
	if !sure {
		spacing = retrySpacingUnsure
	}
	c := &q.classes[t.Class]
	before := float64(q.aboveLocked(t.Class))
	if reason == ShedWait || reason == ShedDeadline {
		before += float64(c.depth)
	}
	first := now.Add(seconds(before / rate))
	if !sure && !c.nextRetryAt.After(first) {
		spacing = retryFirst
	}
	// No retry is planned beyond a minute, which no SDK obeys.
	c.nextRetryAt = later(c.nextRetryAt, first).Add(seconds(spacing / rate))
	if latest := now.Add(longestRetryAfter + 1); c.nextRetryAt.After(latest) {
		c.nextRetryAt = latest
	}
	after := c.nextRetryAt.Sub(now)
	if after <= longestRetryAfter {
		return max(after, shortestRetryAfter)
	}
	// Retries that do not fit into a minute are spread over its last quarter.
	const spread = longestRetryAfter / 4
	return longestRetryAfter - time.Duration(t.Request.Rand%uint64(spread))
}

// seconds returns a duration of s seconds, at most one day.
func seconds(s float64) time.Duration {
	const day = 24 * 3600
	return time.Duration(min(s, day) * float64(time.Second))
}
