package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// plane is the series of limits and of the configuration.
type plane struct {
	refusals    *prometheus.CounterVec
	refused     counterSet
	reloads     counterSet
	generation  prometheus.Gauge
	lastSuccess prometheus.Gauge
	last        prometheus.Gauge
}

func newPlane(d *definer) (p plane) {
	d.about("Configuration and build")
	reloads := d.counters("tierway_config_reloads_total", "Attempts to read the configuration anew by result: ok, rejected (the old one stays), unchanged.", "result")
	p.reloads = resolved(reloads, []string{"ok", "rejected", "unchanged"})
	p.generation = d.gauge("tierway_config_generation", "The generation of the configuration in force; 1 is the one that the process started with.")
	p.lastSuccess = d.gauge("tierway_config_last_success_timestamp_seconds", "When the configuration in force was taken, in seconds since 1970.")
	p.last = d.gauge("tierway_config_last_reload_successful", "1 while the file that was read last is in force; 0 when it has problems and an older one stays.")
	d.about("Tenants and limits")
	p.refusals = d.counters("tierway_limit_refusals_total", "Requests refused by a limit of their tenant or key, by the limit.", "limit")
	return p
}

// Limits resolves the series of refusals for the names of all limits. It is
// called once, before the first request.
func (m *Metrics) Limits(names []string) {
	m.plane.refused = resolved(m.plane.refusals, names)
	m.tenants.setLabels(byLimit, names)
}

// Limited counts a request that a limit refused. A name that Limits was not
// given counts nothing, so that no other label ever comes to be.
func (m *Metrics) Limited(limit string) { m.plane.refused.inc(limit) }

// Reloaded says which generation of the configuration is in force and since
// when, and counts the reload that brought it. Generation 1 is the start's and
// no reload.
func (m *Metrics) Reloaded(generation int64, since time.Time) {
	if generation > 1 {
		m.plane.reloads.inc("ok")
	}
	m.plane.last.Set(1)
	m.plane.generation.Set(float64(generation))
	m.plane.lastSuccess.Set(float64(since.UnixMilli()) / 1000)
}

// ReloadUnchanged counts a reload whose file is what was in force already.
func (m *Metrics) ReloadUnchanged() {
	m.plane.reloads.inc("unchanged")
	m.plane.last.Set(1)
}

// ReloadRejected counts a reload whose file has problems; what was in force stays.
func (m *Metrics) ReloadRejected() {
	m.plane.reloads.inc("rejected")
	m.plane.last.Set(0)
}
