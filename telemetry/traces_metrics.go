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

// traceCollector reads the counts when a scrape comes.
type traceCollector struct {
	read         func() TraceCounts
	spans, queue []*prometheus.Desc
}

// ObserveTraces makes every scrape call read, which must be safe for concurrent
// use and quick, as Traces.Counts is. It is called once a process.
func (m *Metrics) ObserveTraces(read func() TraceCounts) {
	m.registry.MustRegister(&traceCollector{read: read, spans: descsOf(traceSpanSeries, "result"), queue: descsOf(traceQueueSeries)})
}

// Describe is part of prometheus.Collector.
func (c *traceCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, all := range [...][]*prometheus.Desc{c.spans, c.queue} {
		for _, d := range all {
			ch <- d
		}
	}
}

// Collect is part of prometheus.Collector.
func (c *traceCollector) Collect(ch chan<- prometheus.Metric) {
	n := c.read()
	send(ch, c.spans, traceSpanSeries, []string{"exported"}, float64(n.Exported))
	send(ch, c.spans, traceSpanSeries, []string{"failed"}, float64(n.Failed))
	send(ch, c.spans, traceSpanSeries, []string{"dropped"}, float64(n.Dropped))
	send(ch, c.queue, traceQueueSeries, nil, float64(n.Queued))
}
