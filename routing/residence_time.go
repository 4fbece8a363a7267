package routing

import "time"

// residenceTimeSamples is the number of answers from which Throughput is sure: the mean of eight
// random times has an error of a third.
const residenceTimeSamples = 8

// residenceTimeLimits is the residence time of a request in seconds, from a millisecond to an
// hour. Its prior depends on the requests: see residenceTimePriorLocked.
var residenceTimeLimits = limits{0, 0.001, 3600}

// learnResidenceTimeLocked adds the time from booking to release, unless the answer never began
// or its place was given back before its end.
func (p *Pool) learnResidenceTimeLocked(l *Lease, o Result) {
	if l.booking != nil && (o.Err == nil || !l.firstAt.IsZero()) && !o.At.IsZero() {
		p.learned.residenceTime.learn(o.At.Sub(l.bookedAt).Seconds())
	}
}

// residenceTimePriorLocked predicts the residence time of a request of the mean size of those in
// flight, on a typical worker.
func (p *Pool) residenceTimePriorLocked() float64 {
	n, tokens, output := 0, int64(0), int64(0)
	for _, w := range p.workers {
		n, tokens, output = n+w.inflight, tokens+w.tokens, output+w.output
	}
	token := p.typicalLocked(tokenTime, timeLimits)
	if n == 0 {
		return firstStep.Seconds() + p.learned.output.value(outputLimits.prior)*token
	}
	prefill := float64(tokens-output) / p.typicalLocked(prefillRate, rateLimits)
	return p.learned.residenceTime.clamp(firstStep.Seconds() + (prefill+float64(output)*token)/float64(n))
}

// residenceTimeLocked returns the mean residence time of a request. The prior weighs as much as one answer: it may be
// wrong by a factor of a hundred.
func (p *Pool) residenceTimeLocked() Estimate {
	e, learned := p.learned.residenceTime.estimate(p.residenceTimePriorLocked()), &p.learned.residenceTime
	switch n := float64(e.Count); {
	case e.Count >= residenceTimeSamples:
		e.Value = learned.mean
	case e.Count > 0:
		e.Value = learned.clamp((e.Prior + n*learned.mean) / (1 + n))
	}
	return e
}

// Throughput returns how many requests per second leave the pool: the requests in flight on
// usable workers, divided by their mean residence time. It is sure from eight answers on, and
// then ignores the prior, which may be wrong by a factor of a hundred.
func (p *Pool) Throughput(now time.Time) (perSecond float64, sure bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	inflight := 0
	for _, w := range p.workers {
		if w.status.Up && w.weight > 0 && w.answers() && !w.pausedLocked(now) {
			inflight += w.inflight
		}
	}
	place := p.residenceTimeLocked()
	return float64(inflight) / place.Value, place.Count >= residenceTimeSamples
}
