package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// sum is the counts of one tenant as a scrape has read them.
type sum struct {
	labels []string // the tenant's, if any
	descs  []*prometheus.Desc
	values [len(tenantLabels)][]int64
}

func (t *tenantCounts) sum(c *counts, descs []*prometheus.Desc, labels ...string) sum {
	s := sum{labels: labels, descs: descs}
	for i, n := range [...][]atomic.Int64{c.requests, c.tokens[:], c.refusals} {
		for j := range n {
			s.values[i] = append(s.values[i], n[j].Load())
		}
	}
	return s
}

// read returns all counts at a moment at which no tenant changes its place.
func (t *tenantCounts) read() (all []sum) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all = append(all, t.sum(t.known[""].counts, t.descs, noTenant), t.sum(t.other, t.descs, other), t.sum(t.former, t.past))
	for name, one := range t.known {
		if one.own {
			all = append(all, t.sum(one.counts, t.descs, name))
		}
	}
	return all
}

// Describe is part of prometheus.Collector.
func (t *tenantCounts) Describe(ch chan<- *prometheus.Desc) { describe(ch, t.descs, t.past) }

// Collect is part of prometheus.Collector.
func (t *tenantCounts) Collect(ch chan<- prometheus.Metric) {
	names := [...][]string{t.outcomes, tokenKinds[:], t.limits}
	for _, s := range t.read() {
		for i, values := range s.values {
			for j, v := range values {
				ch <- prometheus.MustNewConstMetric(s.descs[i], prometheus.CounterValue, float64(v), append(s.labels[:len(s.labels):len(s.labels)], names[i][j])...)
			}
		}
	}
}
