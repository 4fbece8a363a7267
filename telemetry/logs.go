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

// ObserveLogs makes every scrape call read, which must be safe for concurrent use and
// quick. It is called once in a process.
func (m *Metrics) ObserveLogs(read func() Logs) {
	m.observe(func(send send) {
		l := read()
		send(logSeries, []string{"access"}, float64(l.Access))
		send(logSeries, []string{"program"}, float64(l.Program))
	}, logSeries)
}
