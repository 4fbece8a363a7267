package queue

import (
	"time"
)

// Outlook is what would become of a ticket that enters now and that no worker takes.
type Preview struct {
	// Err is what Enter would return in the end: a *ShedError without RetryAfter, or the pool's
	// error where no worker that is up could take the request. Nil: the ticket would wait.
	Err error
	// Wait is until its turn, by the requests ahead of it and the pool's pace; 0: not known.
	Wait time.Duration
}

// Preview returns what Enter would make of a new ticket to which the pool says so, under the
// bounds of c, or under those in force if c is nil. Nothing is changed or counted.
func (q *Queue) Preview(t *Ticket, c *Config, said error, now time.Time) (o Preview) {
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
		defer func() { // after a panic too
			q.removeLocked(probe, now)
			if f != nil {
				f.tag, f.weight = tag, weight
			} else {
				delete(flows, t.Tenant)
			}
		}()
		o = q.previewLocked(c, probe, said, now)
	})
	return o
}

// outlookLocked decides as enter does for a ticket that is in the queue already.
func (q *Queue) previewLocked(c *Config, probe *Ticket, said error, now time.Time) (o Preview) {
	isLost := isUnroutable(probe, said, q.waitLimitUnderLocked(c, probe))
	if isLost && c.endsWait(probe, said) {
		return Preview{Err: said}
	}
	if isLost {
		probe.unroutableSince = now // by which its time may be longer
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
