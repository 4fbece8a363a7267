package breaker

import "time"

// turnLocked changes the state. Requests under way count no more.
func (b *Breaker) turnLocked(to State, cause string, now time.Time) {
	c := Change{ID: b.id, Ref: b.ref, From: b.state, To: to, Cause: cause}
	b.dropProbesLocked()
	b.generation++
	switch to {
	case Open:
		c.Until = now.Add(spread(b.config.OpenFor, b.group.options.Rand()))
		b.row, b.ended = 0, 0
		b.core = newOpen(b.config)
	case HalfOpen:
		b.tried = now
	case Closed:
		b.slow = false
		b.core = newClosed(b.config, b.ripeLocked)
		b.group.enter(b)
		b.refuted = 0
	}
	b.state, b.cause, b.since, b.until = to, cause, now, c.Until
	b.news = append(b.news, c)
}

// dropProbesLocked ends all probes without a verdict.
func (b *Breaker) dropProbesLocked() {
	for p := range b.probes {
		p.probe.timer.Stop()
	}
	clear(b.probes)
}

// moveLocked makes it half-open when its time has come.
func (b *Breaker) moveLocked(now time.Time) {
	if b.state == Open && !b.retired && !now.Before(b.until) && halved(b.core) {
		b.turnLocked(HalfOpen, CauseTimeout, now)
	}
}

func (b *Breaker) poll(now time.Time) {
	b.mu.Lock()
	b.moveLocked(now)
	b.mu.Unlock()
	b.tell()
}

// healthWait is how long a breaker stays open at least after a probe has shown
// that a good health check says nothing, or a hang has, twice as long after each
// further one: one check more, at the usual interval.
const healthWait = 5 * time.Second

// Healthy says that an active health check which began at started was good. It
// makes a breaker half-open that was open before then, unless it was opened for
// slowness, of which a health check knows nothing. The more probes have failed
// nevertheless, the longer it waits first.
func (b *Breaker) Healthy(started time.Time) {
	if b == nil {
		return
	}
	b.mu.Lock()
	from := b.since
	if b.refuted > 0 {
		from = from.Add(healthWait << min(b.refuted-1, 10))
	}
	if b.state == Open && !b.retired && !b.slow && started.After(from) && halved(b.core) {
		b.turnLocked(HalfOpen, CauseHealthy, time.Now())
	}
	b.mu.Unlock()
	b.tell()
}

// readmit closes it if it may still not be kept out, and tells whether it did.
func (b *Breaker) readmit() bool {
	b.mu.Lock()
	surplus, cause := b.group.surplus()
	ok := surplus == b && !b.retired && b.state != Closed
	if ok {
		b.turnLocked(Closed, cause, time.Now())
	}
	b.mu.Unlock()
	b.tell()
	return ok
}

// configure takes another configuration on.
func (b *Breaker) configure(c Config) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.config
	b.config = c
	switch {
	case b.state == Closed && old.Window != c.Window:
		b.core = newClosed(c, b.ripeLocked)
	case b.state == Open && old.Probes != c.Probes:
		b.core = newOpen(c)
	}
}

// retire ends all that moves by itself.
func (b *Breaker) retire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropProbesLocked()
	b.retired = true
}
