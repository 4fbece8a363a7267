// Package telemetry names every metric that Tierway exports and hands out
// series whose labels were resolved beforehand, so that a request pays for an
// atomic add and nothing else. Label values come from the configuration, never
// from a client.
package telemetry

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// overheadSeconds are the bounds of the gateway's own time; its budget is
// 60 µs, so the buckets are finest around it.
var overheadSeconds = []float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .01, .1}

// other is the label value that stands for all that have none of their own.
const other = "other"

// Metrics holds every series of one process. It is safe for concurrent use.
type Metrics struct {
	*definer
	outside *Tier

	Started              *Started             // tierway_requests_started_total
	Overhead             prometheus.Histogram // tierway_overhead_seconds
	Panics               prometheus.Counter   // tierway_panics_total
	RetryBudgetExhausted prometheus.Counter   // tierway_retry_budget_exhausted_total
	BodiesRefused        prometheus.Counter   // tierway_request_bodies_refused_total
	AuthFailures         prometheus.Counter   // tierway_auth_failures_total

	exhausted counterSet // tierway_fd_exhausted_total, by operation

	flow      *flow
	tiers     tierVectors
	workers   workerVectors
	waits     *prometheus.HistogramVec
	decisions *prometheus.CounterVec
	streams   counterSet
	tenants   *tenantCounts
	plane     plane
}

// New returns the metrics of a process that runs the given version.
func New(version string) *Metrics {
	d := &definer{registry: prometheus.NewRegistry(), observed: map[string]*prometheus.Desc{}}
	m := &Metrics{definer: d}
	d.about("Requests")
	m.flow = newFlow(d)
	m.Started = &m.flow.started
	m.Panics = d.counter("tierway_panics_total", "Panics that were recovered, of requests and of background work.")
	m.RetryBudgetExhausted = d.counter("tierway_retry_budget_exhausted_total", "Retries that were not made because the retry budget was spent.")
	m.streams = resolved(d.counters("tierway_stream_end_total", "Ended streams by reason: complete, repaired (complete, but the gateway added the missing terminator), truncated, client_gone, error.", "reason"),
		[]string{string(EndComplete), string(EndRepaired), string(EndTruncated), string(EndClientGone), string(EndError)})
	m.BodiesRefused = d.counter("tierway_request_bodies_refused_total", "Requests answered 503 because other bodies held the memory of max_buffered_bytes, or their tenant's share of it.")
	describe[BodyMemory](d)
	m.exhausted = resolved(d.counters("tierway_fd_exhausted_total", "Connections that were not made because the gateway "+
		"or its system had no file descriptor or memory free for a socket, by operation: accept (from clients), "+
		"connect (to workers).", "operation"), []string{"accept", "connect"})
	d.about("Routing")
	m.decisions = d.counters("tierway_tier_decisions_total", "Requests by the tier or pool that they were given and the rule that gave it; removed stands for tiers that a reload took away meanwhile.", "tier", "rule")
	d.about("Latency")
	m.Overhead = d.histogram("tierway_overhead_seconds", "The gateway's own time, from the whole request read to the first attempt.", overheadSeconds)
	m.tiers, m.workers = newTierVectors(d), newWorkerVectors(d)
	d.about("Workers")
	describe[WorkerGauges](d)
	d.about("Queues")
	m.waits = d.histograms("tierway_queue_wait_seconds", "How long requests that had a worker waited for it, once a request: before another attempt too. Who had one at once counts as 0, who had none not at all.", waitSeconds, "tier", "class")
	describe[QueueGauges](d)
	d.about("Tenants and limits")
	m.AuthFailures = d.counter("tierway_auth_failures_total", "Requests refused for a missing, malformed or unknown key.")
	m.tenants = newTenants(d)
	m.plane = newPlane(d)
	d.about("Redis, database and ledger")
	describe[Stores](d)
	d.about("Decision log")
	describe[DecisionLog](d)
	d.about("Traces")
	describe[TraceCounts](d)
	d.about("Logs")
	describe[Logs](d)
	d.about("Configuration and build")
	d.build(version)
	d.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics in the Prometheus text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}) // a scraper or two, not a load
}

// vector holds series of one name by their labels.
type vector interface {
	DeletePartialMatch(prometheus.Labels) int
}

// forget drops the series that have the labels.
func forget(gone prometheus.Labels, vectors ...vector) {
	for _, v := range vectors {
		v.DeletePartialMatch(gone)
	}
}

// StreamEnd is why a stream ended, as tierway_stream_end_total counts it.
type StreamEnd string

// The ways in which a stream ends.
const (
	EndComplete   StreamEnd = "complete"
	EndRepaired   StreamEnd = "completed"
	EndTruncated  StreamEnd = "truncated"
	EndClientGone StreamEnd = "client_gone"
	EndError      StreamEnd = "error"
)

// Exhausted counts a connection for which no file descriptor was free. operation is
// accept or connect.
func (m *Metrics) Exhausted(operation string) { m.exhausted.inc(operation) }

// StreamEnded counts one ended stream.
func (m *Metrics) StreamEnded(e StreamEnd) { m.streams.inc(string(e)) }
