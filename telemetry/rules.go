package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// rules are the resolved series of tierway_tier_decisions_total. Which rule gives
// which tier is seen only when it does, so that a series is resolved with the first
// request.
type rules struct {
	vector   *prometheus.CounterVec
	mu       sync.Mutex // of those who write resolved
	resolved atomic.Pointer[map[ruleLabels]prometheus.Counter]
}

type ruleLabels struct{ tier, rule string }

func newRules(d *definer) *rules {
	r := &rules{vector: d.counters("tierway_tier_decisions_total", "Requests by the tier or pool that they were given and the rule that gave it; removed stands for tiers that a reload took away meanwhile.", "tier", "rule")}
	r.resolved.Store(&map[ruleLabels]prometheus.Counter{})
	return r
}

// Decided counts a request that a rule gave to a tier or pool. Both come from
// the configuration.
func (m *Metrics) Decided(tier, rule string) {
	labels := ruleLabels{tier, rule}
	if c := (*m.rules.resolved.Load())[labels]; c != nil {
		c.Inc()
		return
	}
	m.rules.resolve(labels, m.flow.has).Inc()
}

// resolve makes the counter of a tier that there is. One that was forgotten while
// the request came counts as a removed tier: nobody would ever forget it again.
// ForgetTier drops a tier before it takes the lock, so that none slips through.
func (r *rules) resolve(labels ruleLabels, known func(tier string) bool) prometheus.Counter {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !known(labels.tier) {
		return r.vector.WithLabelValues(removedTier, labels.rule)
	}
	c := r.vector.WithLabelValues(labels.tier, labels.rule)
	all := maps.Clone(*r.resolved.Load())
	all[labels] = c
	r.resolved.Store(&all)
	return c
}

// forget drops the series of a tier.
func (r *rules) forget(tier string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := maps.Clone(*r.resolved.Load())
	maps.DeleteFunc(known, func(l ruleLabels, _ prometheus.Counter) bool { return l.tier == tier })
	r.resolved.Store(&known)
	r.vector.DeletePartialMatch(prometheus.Labels{"tier": tier})
}
