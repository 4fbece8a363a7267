package telemetry

import "github.com/prometheus/client_golang/prometheus"

// traceSpanSeries count spans by what became of them.
var traceSpanSeries = []series{
	{"tierway_trace_spans_total", "Spans of ended requests by result: exported (the collector took them), failed (it did not, or could not be asked), dropped (the queue was full). 0 without tracing.", prometheus.CounterValue},
}

// traceQueueSeries is what waits to be exported.
var traceQueueSeries = []series{
	{"tierway_trace_queue", "Spans of ended requests that wait for the collector or are being sent to it; 0 without tracing.", prometheus.GaugeValue},
}

// ObserveTraces makes every scrape call read, which must be safe for concurrent
// use and quick, as Traces.Counts is. It is called once a process.
func (m *Metrics) ObserveTraces(read func() TraceCounts) {
	m.observe(func(send send) {
		n := read()
		send(traceSpanSeries, []string{"exported"}, float64(n.Exported))
		send(traceSpanSeries, []string{"failed"}, float64(n.Failed))
		send(traceSpanSeries, []string{"dropped"}, float64(n.Dropped))
		send(traceQueueSeries, nil, float64(n.Queued))
	}, traceSpanSeries, traceQueueSeries)
}
