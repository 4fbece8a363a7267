package queue

import (
	"time"
)

// admitLocked tells whether a newcomer may wait. A queue that displaces makes
// room for it first.
func (q *Queue) admitLocked(t *Ticket, now time.Time) error {
	if !q.config.waits(t.Class) {
		return q.shedLocked(t, ShedDepth, now)
	}
	if q.hopelessLocked(t, now) {
		return q.shedLocked(t, ShedDeadline, now)
	}
	for {
		reason := q.overLocked(t)
		if reason == "" {
			return nil
		}
		victim := q.victimLocked(t, reason)
		if victim == nil {
			return q.shedLocked(t, reason, now)
		}
		q.putOutLocked(victim, q.shedLocked(victim, ShedDisplaced, now))
	}
}

// overLocked returns the bound that the newcomer would break, "" for none.
func (q *Queue) overLocked(t *Ticket) string {
	switch {
	case q.classes[t.Class].depth >= q.config.MaxDepth:
		return ShedDepth
	case q.config.MaxBytes > 0 && q.bytes+t.Bytes > q.config.MaxBytes:
		return ShedBytes
	}
	return ""
}

// victimLocked returns who is put out for the newcomer, nil for nobody. Where
// bytes are short it is the newest of the least urgent class below the
// newcomer's. Else it is the newest of that tenant of its class who has the most
// waiting for its weight, if that is more than the newcomer's tenant would have:
// who fills a queue alone makes room for who has nothing in it.
func (q *Queue) victimLocked(t *Ticket, reason string) *Ticket {
	if !q.config.Displace {
		return nil
	}
	if reason == ShedBytes {
		for i := Classes - 1; i > t.Class; i-- {
			if newest := q.classes[i].newest; newest != nil {
				return newest
			}
		}
	}
	c := &q.classes[t.Class]
	var most *flow
	for _, f := range c.waiting {
		if most == nil || float64(f.depth)/f.weight > float64(most.depth)/most.weight {
			most = f
		}
	}
	mine := 1.0
	if f := c.flows[t.Tenant]; f != nil {
		mine += float64(f.depth)
	}
	if most == nil || most.tenant == t.Tenant || float64(most.depth)/most.weight <= mine/t.weight() {
		return nil
	}
	return most.last
}

// hopelessLocked tells whether the newcomer's turn would come too late. The
// estimate is good to a few per cent once it is sure: simulated, nobody is
// refused who would have been served, and three quarters of those who would wait
// in vain are spared that.
func (q *Queue) hopelessLocked(t *Ticket, now time.Time) bool {
	may := q.untilLocked(t, now).Sub(now)
	if may <= 0 {
		return true
	}
	rate, sure := q.pool.Throughput(now)
	if !sure || rate <= 0 {
		return false
	}
	return float64(q.aheadLocked(t))/rate > may.Seconds()
}

// aheadLocked estimates how many requests go before a newcomer: all of the more
// urgent classes, and of its own as many from each tenant as its own tenant has
// waiting.
func (q *Queue) aheadLocked(t *Ticket) int {
	ahead := q.aboveLocked(t.Class)
	c := &q.classes[t.Class]
	mine := 1
	if f := c.flows[t.Tenant]; f != nil {
		mine += f.depth
	}
	return ahead + min(c.depth, mine*max(1, len(c.waiting)))
}

// aboveLocked is how many requests of more urgent classes wait.
func (q *Queue) aboveLocked(class int) int {
	n := 0
	for i := range class {
		n += q.classes[i].depth
	}
	return n
}

const (
	// longestRetryAfter is what the OpenAI SDKs obey at most: told more, they come
	// back within seconds.
	longestRetryAfter = time.Minute
	// unknownRetryAfter is told while nothing is known of the pool's pace.
	unknownRetryAfter = time.Second
	// comeback is how many times the pool's usual pause between two requests lies
	// between two that are told to come back. Places are not given back evenly, and
	// at 1 every burst of them sends some away again: simulated, 4 of 132 clients
	// with two retries never got in; at 1.5 all did.
	comeback = 1.5
	// comebackUnsure is the same where the pace is only what is usual.
	comebackUnsure = 2.5
	// shortestRetryAfter keeps a pool of fast answers from being asked in a loop.
	shortestRetryAfter = 100 * time.Millisecond
)

// shedLocked counts a shed and says when to come again. Those who are shed come
// back one after the other, as fast as the pool takes requests in: the first when
// a place for its class should be free, or, if it has waited in vain, when those
// who wait before it should be gone.
func (q *Queue) shedLocked(t *Ticket, reason string, now time.Time) error {
	c := &q.classes[t.Class]
	c.counts.shed(reason)
	return &ShedError{Reason: reason, RetryAfter: q.retryAfterLocked(t, reason, now)}
}

func (q *Queue) retryAfterLocked(t *Ticket, reason string, now time.Time) time.Duration {
	rate, sure := q.pool.Throughput(now)
	if rate <= 0 {
		return unknownRetryAfter
	}
	apart := comeback
	if !sure {
		apart = comebackUnsure
	}
	c := &q.classes[t.Class]
	before := float64(q.aboveLocked(t.Class))
	if reason == ShedWait || reason == ShedDeadline {
		before += float64(c.depth)
	}
	first := now.Add(seconds(before / rate))
	c.backAt = later(c.backAt, first).Add(seconds(apart / rate))
	after := c.backAt.Sub(now)
	if after <= longestRetryAfter {
		return max(after, shortestRetryAfter)
	}
	// Beyond what SDKs obey, the last quarter of it is as good as any.
	const spread = longestRetryAfter / 4
	return longestRetryAfter - time.Duration(t.Request.Rand%uint64(spread))
}

// seconds is a duration of at most a day.
func seconds(s float64) time.Duration {
	const day = 24 * 3600
	return time.Duration(min(s, day) * float64(time.Second))
}
