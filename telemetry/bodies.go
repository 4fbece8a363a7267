package telemetry

import "github.com/prometheus/client_golang/prometheus"

// bodySeries are in the order of their values in Collect.
var bodySeries = []series{
	{name: "tierway_request_body_bytes", help: "Memory of request bodies that are being read, are queued or may be sent again.", kind: prometheus.GaugeValue},
	{name: "tierway_request_body_limit_bytes", help: "Bound of that memory: max_buffered_bytes, or its default.", kind: prometheus.GaugeValue},
}

// ObserveBodies makes every scrape call read, which must be safe for concurrent use and
// quick. It is called once in a process.
func (m *Metrics) ObserveBodies(read func() (held, limit int64)) {
	m.observe(func(send send) {
		held, limit := read()
		send(bodySeries, nil, float64(held), float64(limit))
	}, bodySeries)
}
