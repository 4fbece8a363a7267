package routing

import "time"

// residenceTimeSamples is how many answers make Throughput sure: the mean of eight random
// times is off by a third.
const residenceTimeSamples = 8

// residenceTimeLimits is seconds that a request holds its place, from a millisecond to an hour. The
// prior depends on the requests: see residenceTimePriorLocked.
var residenceTimeLimits = limits{0, 0.001, 3600}

// learnResidenceTimeLocked enters how long the lease's answer held its place, unless it never began
// or gave its place back before it ended.
func (p *Pool) learnResidenceTimeLocked(l *Lease, o Result) {
	if l.booking != nil && (o.Err == nil || !l.firstAt.IsZero()) && !o.At.IsZero() {
		p.learned.residenceTime.learn(o.At.Sub(l.bookedAt).Seconds())
	}
}

// residenceTimePriorLocked is how long a request of the mean size of those in flight should hold
// its place on a usual worker.
func (p *Pool) residenceTimePriorLocked() float64 {
	n, tokens, output := 0, int64(0), int64(0)
	for _, w := range p.workers {
		n, tokens, output = n+w.inflight, tokens+w.tokens, output+w.output
	}
	token := p.usualLocked(tokenTime, timeLimits)
	if n == 0 {
		return firstStep.Seconds() + p.learned.output.value(outputLimits.prior)*token
	}
	prefill := float64(tokens-output) / p.usualLocked(prefillRate, rateLimits)
	return p.learned.residenceTime.clamp(firstStep.Seconds() + (prefill+float64(output)*token)/float64(n))
}

// residenceTimeLocked is how long a request holds its place.
func (p *Pool) residenceTimeLocked() Estimate {
	e := p.learned.residenceTime.estimate(p.residenceTimePriorLocked())
	if e.Count >= residenceTimeSamples {
		e.Value = p.learned.residenceTime.mean
	}
	return e
}

// Throughput returns how many requests per second leave the pool: those in flight on usable
// workers over the mean time that one holds its place. It is sure once eight answers have
// taught that time, and uses no prior then: that may be off by a hundred times.
func (p *Pool) Throughput(now time.Time) (perSecond float64, sure bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	inflight := 0
	for _, w := range p.workers {
		if w.status.Up && w.weight > 0 && !w.pausedLocked(now) {
			inflight += w.inflight
		}
	}
	place := p.residenceTimeLocked()
	return float64(inflight) / place.Value, place.Count >= residenceTimeSamples
}
