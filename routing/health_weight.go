package routing

import (
	"math"
	"time"
)

// HealthWeight lowers the weight of workers that fail requests. The zero value turns it off.
//
// A worker keeps the share 1 of its weight at a success rate of at least Healthy, the share Factor at
// Degraded and Factor² at 0. Between these rates the share is linear.
type HealthWeight struct {
	Healthy, Degraded float64 // success rates, 0 < Degraded < Healthy ≤ 1
	Factor            float64 // above 0 and at most 1; 0 turns the rule off
}

// share returns the share of its weight that a worker of that success rate keeps.
func (h *HealthWeight) share(rate float64) float64 {
	switch {
	case h.Factor <= 0 || rate >= h.Healthy:
		return 1
	case rate >= h.Degraded:
		return h.Factor + (1-h.Factor)*(rate-h.Degraded)/(h.Healthy-h.Degraded)
	}
	return h.Factor * (h.Factor + (1-h.Factor)*rate/h.Degraded)
}

// SetHealthWeight sets the rule by which weights follow success rates, from the next pick on.
func (p *Pool) SetHealthWeight(h HealthWeight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.healthWeight = h
}

const (
	// rateMemory is the number of outcomes over which a success rate is taken: one failure changes it by 2 %.
	rateMemory = 50
	// rateRecovery is the time in which an outcome loses two thirds of its weight. A worker that receives
	// no requests, and so shows no successes, recovers within minutes.
	rateRecovery = time.Minute
	// leastOutcomes are the outcomes from which a rate is taken at least; missing ones count as successes.
	// One failure of an idle worker then counts 5 %.
	leastOutcomes = 20
)

// successRate is the share of a worker's recent requests that succeeded. Older outcomes count less, by
// their number and by time.
type successRate struct {
	outcomes, failures float64 // weighted numbers at at
	at                 time.Time
}

// decay reduces the weight of all outcomes to that at now.
func (s *successRate) decay(now time.Time) {
	if now.After(s.at) {
		kept := math.Exp(-now.Sub(s.at).Seconds() / rateRecovery.Seconds())
		s.outcomes, s.failures, s.at = s.outcomes*kept, s.failures*kept, now
	}
}

// count adds an outcome. An excluded request has none.
func (s *successRate) count(failed bool, now time.Time) {
	s.decay(now)
	s.outcomes += 1 - s.outcomes/rateMemory
	s.failures -= s.failures / rateMemory
	if failed {
		s.failures++
	}
}

// countCut turns a success that was counted into a failure: the answer broke off after a good beginning.
func (s *successRate) countCut(now time.Time) {
	s.decay(now)
	s.failures = min(s.failures+1, s.outcomes)
}

// value returns the rate at now, 0 to 1.
func (s successRate) value(now time.Time) float64 {
	if s.failures == 0 {
		return 1
	}
	s.decay(now)
	return 1 - s.failures/max(s.outcomes, leastOutcomes)
}

// effectiveWeightLocked returns the worker's weight by its success rate; 0 if it is the whole weight.
func (p *Pool) effectiveWeightLocked(w *Worker, now time.Time) float64 {
	if p.healthWeight.Factor <= 0 || w.success.failures == 0 {
		return 0
	}
	share := p.healthWeight.share(w.success.value(now))
	if share == 1 {
		return 0
	}
	return share * float64(w.weight)
}

// weight returns the weight in force.
func (v *View) weight() float64 {
	if v.Effective > 0 {
		return v.Effective
	}
	return float64(v.Weight)
}

// weightShare returns the share of the configured weight that is in force.
func (v *View) weightShare() float64 {
	if v.Effective > 0 {
		return v.Effective / float64(v.Weight)
	}
	return 1
}
