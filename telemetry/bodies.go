package telemetry

import "github.com/prometheus/client_golang/prometheus"

// bodySeries are in the order of their values in Collect.
var bodySeries = []series{
	{name: "tierway_request_body_bytes", help: "Memory of request bodies that are being read, are queued or may be sent again.", kind: prometheus.GaugeValue},
	{name: "tierway_request_body_limit_bytes", help: "Bound of that memory: max_buffered_bytes, or its default.", kind: prometheus.GaugeValue},
}

// bodyCollector reads the sizes when a scrape comes.
type bodyCollector struct {
	read  func() (held, limit int64)
	descs []*prometheus.Desc
}

// ObserveBodies makes every scrape call read, which must be safe for concurrent use and
// quick. It is called once in a process.
func (m *Metrics) ObserveBodies(read func() (held, limit int64)) {
	m.registry.MustRegister(&bodyCollector{read: read, descs: descsOf(bodySeries)})
}

// Describe is part of prometheus.Collector.
func (c *bodyCollector) Describe(ch chan<- *prometheus.Desc) { describe(ch, c.descs) }

// Collect is part of prometheus.Collector.
func (c *bodyCollector) Collect(ch chan<- prometheus.Metric) {
	held, limit := c.read()
	send(ch, c.descs, bodySeries, nil, float64(held), float64(limit))
}
