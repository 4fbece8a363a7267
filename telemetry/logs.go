package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Logs counts the lines that could not be written since the start.
type Logs struct {
	Access  int64 // of the access log
	Program int64 // of the program's own log
}

var logSeries = []series{
	{name: "tierway_log_dropped_lines_total",
		help: "Log lines that were dropped, by log (access, program): whatever reads the log is too slow, has left, or its disk is full.",
		kind: prometheus.CounterValue},
}

// logsCollector reads the counts when a scrape comes.
type logsCollector struct {
	read  func() Logs
	descs []*prometheus.Desc
}

// ObserveLogs makes every scrape call read, which must be safe for concurrent use and
// quick. It is called once in a process.
func (m *Metrics) ObserveLogs(read func() Logs) {
	m.registry.MustRegister(&logsCollector{read: read, descs: descsOf(logSeries, "log")})
}

// Describe is part of prometheus.Collector.
func (c *logsCollector) Describe(ch chan<- *prometheus.Desc) { describe(ch, c.descs) }

// Collect is part of prometheus.Collector.
func (c *logsCollector) Collect(ch chan<- prometheus.Metric) {
	l := c.read()
	send(ch, c.descs, logSeries, []string{"access"}, float64(l.Access))
	send(ch, c.descs, logSeries, []string{"program"}, float64(l.Program))
}
