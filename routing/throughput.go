package routing

import "time"

// throughputSamples is how many answers Throughput takes to be sure: the mean of
// eight times that end by chance is off by a third.
const throughputSamples = 8

// placeLimits is seconds that a request holds its place. What is believed
// without samples depends on the requests, see placePriorLocked; of an answer
// that ends at once, or never, nothing is learned beyond a millisecond and an hour.
var placeLimits = limits{0, 0.001, 3600}

// learnPlaceLocked takes how long the lease's answer held its place. What never
// began, or gave its place back before it ended, says nothing of answers.
func (p *Pool) learnPlaceLocked(l *Lease, o Result) {
	if l.booking != nil && (o.Err == nil || !l.firstAt.IsZero()) && !o.At.IsZero() {
		p.learned.place.learn(o.At.Sub(l.bookedAt).Seconds())
	}
}

// placePriorLocked is how long a request should hold its place by the other
// numbers learned: one of the size of those in flight, on a usual worker.
func (p *Pool) placePriorLocked() float64 {
	n, tokens, output := 0, int64(0), int64(0)
	for _, w := range p.workers {
		n, tokens, output = n+w.inflight, tokens+w.tokens, output+w.output
	}
	perToken := estimator{limits: timeLimits, mean: p.learned.median[tokenTime], count: p.learned.samples[tokenTime]}
	token := perToken.value(timeLimits.prior)
	if n == 0 {
		return firstStep.Seconds() + p.learned.output.value(outputLimits.prior)*token
	}
	prefill := float64(tokens-output) / p.poolRateLocked()
	return p.learned.place.clamp(firstStep.Seconds() + (prefill+float64(output)*token)/float64(n))
}

// placeLocked is how long a request holds its place: what Throughput goes by.
func (p *Pool) placeLocked() Estimate {
	e := p.learned.place.estimate(p.placePriorLocked())
	if e.Count >= throughputSamples {
		e.Value = p.learned.place.mean
	}
	return e
}

// Throughput returns how many requests a second leave the pool and make room
// for others, by what is learned: those in flight on workers that are up, with
// weight, and neither cooling nor open, over the mean time that one holds its
// place. It is sure once eight answers taught that time, and then goes by them
// alone: what is believed beforehand may be off by a hundred times. Before, it
// leans on what the requests in flight should take.
func (p *Pool) Throughput(now time.Time) (perSecond float64, sure bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	inflight := 0
	for _, w := range p.workers {
		if w.status.Up && w.weight > 0 && !w.restsLocked(now) {
			inflight += w.inflight
		}
	}
	place := p.placeLocked()
	return float64(inflight) / place.Value, place.Count >= throughputSamples
}
