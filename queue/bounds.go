package queue

import (
	"time"
)

// admitLocked decides whether a newcomer, which is in the queue already, may
// wait. A queue that displaces evicts other requests for it.
func (q *Queue) admitLocked(t *Ticket, now time.Time) error {
	c := q.config.Load()
	reason := q.wouldLocked(c, t, now)
	if reason == "" {
		return nil
	}
	victims := q.victimsLocked(c, t, reason)
	if len(victims) == 0 {
		return q.shedLocked(t, reason, now)
	}
	for _, v := range victims {
		q.putOutLocked(v, q.shedLocked(v, ShedDisplaced, now), now)
	}
	return nil
}

// wouldLocked returns the bound of c that a newcomer, which is in the queue already,
// exceeds; "" for none.
func (q *Queue) wouldLocked(c *Config, t *Ticket, now time.Time) string {
	switch {
	case !c.waits(t.Class):
		return ShedDepth
	case q.hopelessLocked(c, t, now):
		return ShedDeadline
	case q.classes[t.Class].depth > c.MaxDepth:
		return ShedDepth
	case c.MaxBytes > 0 && q.bytes > c.MaxBytes:
		return ShedBytes
	}
	return ""
}

// Would returns the *ShedError that Enter would return for a ticket that no worker
// takes now, nil if the ticket would wait. It decides under the bounds of c, or under
// those in force if c is nil. Nothing is changed or counted.
func (q *Queue) Would(t *Ticket, c *Config, now time.Time) (err error) {
	if c == nil {
		c = q.config.Load()
	}
	probe := &Ticket{Request: t.Request, Tried: t.Tried, Class: t.Class, Tenant: t.Tenant, Weight: t.Weight,
		Tokens: t.Tokens, Bytes: t.Bytes, Deadline: t.Deadline, seq: q.lastSeq.Load() + 1}
	q.locked(func() {
		flows := q.classes[t.Class].flows
		var tag, weight float64
		f := flows[t.Tenant]
		if f != nil {
			tag, weight = f.tag, f.weight
		}
		probe.began(now)
		q.insertLocked(probe)
		if reason := q.wouldLocked(c, probe, now); reason != "" && len(q.victimsLocked(c, probe, reason)) == 0 {
			err = &ShedError{Reason: reason}
		}
		q.removeLocked(probe, now)
		if f != nil {
			f.tag, f.weight = tag, weight
		} else {
			delete(flows, t.Tenant)
		}
	})
	return err
}

// hopelessLocked tells whether the newcomer's turn would come too late. The
// estimate is good to a few per cent once it is sure: simulated, nobody is
// refused who would have been served, and three quarters of those who would wait
// in vain are spared that.
func (q *Queue) hopelessLocked(c *Config, t *Ticket, now time.Time) bool {
	may := q.untilUnderLocked(c, t).Sub(now)
	if may <= 0 {
		return true
	}
	rate, sure := q.pool.Throughput(now)
	if !sure || rate <= 0 {
		return false
	}
	return float64(q.aheadLocked(t))/rate > may.Seconds()
}

// aheadLocked estimates how many requests go before a newcomer, who waits already: all of the more
// urgent classes, and of its own as many from each tenant as its own tenant has
// waiting.
func (q *Queue) aheadLocked(t *Ticket) int {
	c := &q.classes[t.Class]
	return q.aboveLocked(t.Class) + min(c.depth, t.flow.depth*len(c.waiting)) - 1
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
	// Nobody obeys beyond a minute, so that nothing is kept free after it.
	c.backAt = later(c.backAt, first).Add(seconds(apart / rate))
	if most := now.Add(longestRetryAfter + 1); c.backAt.After(most) {
		c.backAt = most
	}
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
