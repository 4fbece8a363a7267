package telemetry

import "github.com/prometheus/client_golang/prometheus"

type limitMetrics struct {
	vector   *prometheus.CounterVec
	refusals counterSet // by limit
}

// SetLimitNames resolves the series of rejected requests for the names of all limits. Call it
// once, before the first request.
func (m *Metrics) SetLimitNames(names []string) {
	m.limits.refusals = resolved(m.limits.vector, names)
	m.tenants.setLabels(byLimit, names)
}

// LimitRefused counts a request that a limit rejected. A name that SetLimitNames did not get
// is not counted, so that no other label value appears.
func (m *Metrics) LimitRefused(limit string) { m.limits.refusals.inc(limit) }
