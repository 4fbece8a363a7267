package queue

import (
	"time"
)

// Preview is the predicted outcome for a ticket that enters now and finds no worker.
type Preview struct {
	// Err is the error that Enter would finally return: a *ShedError without RetryAfter, or the
	// pool's error if no worker that is up could take the request. Nil: the ticket would wait.
	Err error
	// Wait is the time until its dispatch, estimated from the requests ahead and the pool's
	// throughput; 0: unknown.
	Wait time.Duration
}

// Preview returns what Enter would return for a new ticket after that error of the pool, under
// the bounds of c, or under those in force if c is nil. Nothing is changed or counted.
func (q *Queue) Preview(t *Ticket, c *Config, poolErr error, now time.Time) (o Preview) {
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
		probe.startWait(now)
		q.insertLocked(probe)
		defer func() { // also after a panic
			q.removeLocked(probe, now)
			if f != nil {
				f.tag, f.weight = tag, weight
			} else {
				delete(flows, t.Tenant)
			}
		}()
		o = q.previewLocked(c, probe, poolErr, now)
	})
	return o
}

// previewLocked decides as enter does for a ticket that is in the queue already.
func (q *Queue) previewLocked(c *Config, probe *Ticket, poolErr error, now time.Time) (o Preview) {
	unroutable := isUnroutable(probe, poolErr, q.waitLimitUnderLocked(c, probe))
	if unroutable && c.endsWait(probe, poolErr) {
		return Preview{Err: poolErr}
	}
	if unroutable {
		probe.unroutableSince = now // which may extend its wait limit
		defer func() { probe.unroutableSince = time.Time{} }()
	}
	if reason := q.exceededBoundLocked(c, probe, now); reason != "" && len(q.victimsLocked(c, probe, reason)) == 0 {
		return Preview{Err: &ShedError{Reason: reason}}
	}
	if rate, _ := q.pool.Throughput(now); rate > 0 {
		o.Wait = seconds(float64(q.aheadLocked(probe)+1) / rate)
	}
	return o
}
