package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Reloads counts attempts to read the configuration anew, by how they ended.
type Reloads struct {
	OK        Reload // the file is in force
	Rejected  Reload // it has problems; what was in force stays
	Unchanged Reload // it is what was in force already
}

// Reload counts one way in which a reload can end.
type Reload struct {
	total prometheus.Counter
	last  prometheus.Gauge
	sound float64 // 1 when the file was fit to be in force
}

// Inc counts a reload that ended so.
func (r Reload) Inc() {
	r.total.Inc()
	r.last.Set(r.sound)
}

// plane is the series of limits and of the configuration.
type plane struct {
	refusals    *prometheus.CounterVec
	refused     map[string]prometheus.Counter
	generation  prometheus.Gauge
	lastSuccess prometheus.Gauge
	last        prometheus.Gauge
}

func newPlane(d *definer) (plane, Reloads) {
	d.about("Configuration and build")
	reloads := d.counters("tierway_config_reloads_total", "Attempts to read the configuration anew by result: ok, rejected (the old one stays), unchanged.", "result")
	p := plane{
		refused:     map[string]prometheus.Counter{},
		generation:  d.gauge("tierway_config_generation", "The generation of the configuration in force; 1 is the one that the process started with."),
		lastSuccess: d.gauge("tierway_config_last_success_timestamp_seconds", "When the configuration in force was taken, in seconds since 1970."),
		last:        d.gauge("tierway_config_last_reload_successful", "1 while the file that was read last is in force; 0 when it has problems and an older one stays."),
	}
	d.about("Tenants and limits")
	p.refusals = d.counters("tierway_limit_refusals_total", "Requests refused by a limit of their tenant or key, by the limit.", "limit")
	result := func(name string, sound float64) Reload {
		return Reload{total: reloads.WithLabelValues(name), last: p.last, sound: sound}
	}
	return p, Reloads{OK: result("ok", 1), Rejected: result("rejected", 0), Unchanged: result("unchanged", 1)}
}

// Limits resolves the series of refusals for the names of all limits. It is
// called once, before the first request.
func (m *Metrics) Limits(names []string) {
	for _, n := range names {
		m.plane.refused[n] = m.plane.refusals.WithLabelValues(n)
	}
	m.tenants.setLabels(byLimit, names)
}

// Limited counts a request that a limit refused. A name that Limits was not
// given counts nothing, so that no other label ever comes to be.
func (m *Metrics) Limited(limit string) {
	if c := m.plane.refused[limit]; c != nil {
		c.Inc()
	}
}

// Reloaded says which generation of the configuration is in force and since
// when, and counts the reload that brought it. Generation 1 is the start's and
// no reload.
func (m *Metrics) Reloaded(generation int64, since time.Time) {
	if generation > 1 {
		m.Reloads.OK.Inc()
	}
	m.plane.last.Set(1)
	m.plane.generation.Set(float64(generation))
	m.plane.lastSuccess.Set(float64(since.UnixMilli()) / 1000)
}
