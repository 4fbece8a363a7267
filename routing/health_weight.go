package routing

import (
	"math"
	"time"
)

// HealthWeight lowers the weight of workers that fail requests. The zero value turns it off.
//
// A worker keeps the share 1 of its weight at a success ratio of at least Healthy, the share Factor at
// Degraded and Factor² at 0. Between these ratios the share is linear.
type HealthWeight struct {
	Healthy, Degraded float64 // success ratios, 0 < Degraded < Healthy ≤ 1
	Factor            float64 // above 0 and at most 1; 0 turns the rule off
}

// share returns the share of its weight that a worker of that success ratio keeps.
func (h *HealthWeight) share(ratio float64) float64 {
	switch {
	case h.Factor <= 0 || ratio >= h.Healthy:
		return 1
	case ratio >= h.Degraded:
		return h.Factor + (1-h.Factor)*(ratio-h.Degraded)/(h.Healthy-h.Degraded)
	}
	return h.Factor * (h.Factor + (1-h.Factor)*ratio/h.Degraded)
}

// SetHealthWeight sets the rule by which weights follow success ratios, from the next pick on.
func (p *Pool) SetHealthWeight(h HealthWeight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.healthWeight = h
}

const (
	// ratioMemory is the number of outcomes over which a success ratio is taken: one failure changes it by 2 %.
	ratioMemory = 50
	// ratioRecovery is the time in which an outcome loses two thirds of its weight. A worker that receives
	// no requests, and so shows no successes, recovers within minutes.
	ratioRecovery = time.Minute
	// leastOutcomes are the outcomes from which a ratio is taken at least; missing ones count as successes.
	// One failure of an idle worker then counts 5 %.
	leastOutcomes = 20
)

// successRatio is the share of a worker's recent requests that succeeded. Older outcomes count less, by
// their number and by time.
type successRatio struct {
	outcomes, failures float64 // weighted numbers at at
	at                 time.Time
}

// decay reduces the weight of all outcomes to that at now.
func (s *successRatio) decay(now time.Time) {
	if now.After(s.at) {
		kept := math.Exp(-now.Sub(s.at).Seconds() / ratioRecovery.Seconds())
		s.outcomes, s.failures, s.at = s.outcomes*kept, s.failures*kept, now
	}
}

// count adds an outcome. An excluded request has none.
func (s *successRatio) count(failed bool, now time.Time) {
	s.decay(now)
	s.outcomes += 1 - s.outcomes/ratioMemory
	s.failures -= s.failures / ratioMemory
	if failed {
		s.failures++
	}
}

// countCut turns a success that was counted into a failure: the answer broke off after a good beginning.
func (s *successRatio) countCut(now time.Time) {
	s.decay(now)
	s.failures = min(s.failures+1, s.outcomes)
}

// value returns the ratio at now, 0 to 1.
func (s successRatio) value(now time.Time) float64 {
	if s.failures == 0 {
		return 1
	}
	s.decay(now)
	return 1 - s.failures/max(s.outcomes, leastOutcomes)
}

// effectiveWeightLocked returns the worker's weight by its success ratio; 0 if it is the whole weight.
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
