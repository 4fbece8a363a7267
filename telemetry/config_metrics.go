package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type configMetrics struct {
	reloads       counterSet // by result
	generation    prometheus.Gauge
	lastSuccess   prometheus.Gauge
	lastSucceeded prometheus.Gauge
}

func newConfigMetrics(d *definer) (c configMetrics) {
	d.setSubject("Configuration and build")
	reloads := d.counters("tierway_config_reloads_total", "Reloads of the configuration by result: ok, rejected (the "+
		"file has problems; the old configuration stays in force), unchanged.", "result")
	c.reloads = resolved(reloads, []string{"ok", "rejected", "unchanged"})
	c.generation = d.gauge("tierway_config_generation",
		"Generation of the configuration in force; 1 is the configuration of the start.")
	c.lastSuccess = d.gauge("tierway_config_last_success_timestamp_seconds",
		"Time when the configuration in force was applied, as a Unix timestamp.")
	c.lastSucceeded = d.gauge("tierway_config_last_reload_successful",
		"1 if the file that was read last is in force; 0 if it has problems and an older configuration stays in force.")
	return c
}

// Reloaded counts an applied configuration and sets its generation and the time when it was
// applied. Generation 1 is the start and not counted as a reload.
func (m *Metrics) Reloaded(generation int64, since time.Time) {
	if generation > 1 {
		m.config.reloads.inc("ok")
	}
	m.config.lastSucceeded.Set(1)
	m.config.generation.Set(float64(generation))
	m.config.lastSuccess.Set(float64(since.UnixMilli()) / 1000)
}

// ReloadUnchanged counts a reload of a file that equals the configuration in force.
func (m *Metrics) ReloadUnchanged() {
	m.config.reloads.inc("unchanged")
	m.config.lastSucceeded.Set(1)
}

// ReloadRejected counts a reload of a file with problems. The old configuration stays in force.
func (m *Metrics) ReloadRejected() {
	m.config.reloads.inc("rejected")
	m.config.lastSucceeded.Set(0)
}
