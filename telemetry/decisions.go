package telemetry

import "github.com/prometheus/client_golang/prometheus"

// DecisionLog is what a scrape shows of the records of decisions. Totals count
// since the gateway started.
type DecisionLog struct {
	Kept    int   // records in memory
	Bytes   int64 // that they hold, about
	Streams int   // operators' streams that are open
	Written int64 // total of records written to decisions.file
	Dropped int64 // total of records that decisions.file could not take
}

// decisionSeries are in the order of their values in Collect.
var decisionSeries = []series{
	{name: "tierway_decisions_kept", help: "Records of decisions in memory.", kind: prometheus.GaugeValue},
	{name: "tierway_decisions_kept_bytes", help: "Memory that the records of decisions take, about.", kind: prometheus.GaugeValue},
	{name: "tierway_decisions_streams", help: "Open streams of GET /admin/decisions/stream.", kind: prometheus.GaugeValue},
	{name: "tierway_decisions_written_total", help: "Records of decisions written to decisions.file.", kind: prometheus.CounterValue},
	{name: "tierway_decisions_dropped_total", help: "Records of decisions that decisions.file could not take: the disk was full or too slow, or the file could not be opened.", kind: prometheus.CounterValue},
}

// ObserveDecisions makes every scrape call read, which must be safe for concurrent
// use and quick. It is called once a process.
func (m *Metrics) ObserveDecisions(read func() DecisionLog) {
	m.observe(func(send send) {
		l := read()
		send(decisionSeries, nil, float64(l.Kept), float64(l.Bytes), float64(l.Streams), float64(l.Written), float64(l.Dropped))
	}, decisionSeries)
}
