package telemetry

import (
	"cmp"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// overheadSeconds are the buckets of the gateway's own time. They are finest around its
// budget of 60 µs.
var overheadSeconds = []float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .01, .1}

// other is the label value of everything that has no series of its own.
const other = "other"

// Metrics holds all series of one process. It is safe for concurrent use.
type Metrics struct {
	*definer
	withoutTier *Tier // requests that end before a tier is resolved

	Started              *Started             // tierway_requests_started_total
	Overhead             prometheus.Histogram // tierway_overhead_seconds
	Panics               prometheus.Counter   // tierway_panics_total
	RetryBudgetExhausted prometheus.Counter   // tierway_retry_budget_exhausted_total
	BodiesRefused        prometheus.Counter   // tierway_request_bodies_refused_total
	AuthFailures         prometheus.Counter   // tierway_auth_failures_total
	Cache                *ResponseCache       // tierway_response_cache_…

	exhausted counterSet     // tierway_fd_exhausted_total, by operation
	samples   sampleCounters // tierway_learning_samples_total

	requests  *requestCounts
	tiers     tierVectors
	handovers handoverVectors
	hooks     hookVectors

	lmcacheLookups *prometheus.HistogramVec
	workers        workerVectors
	waits          *prometheus.HistogramVec
	streams        counterSet
	tenants        *tenantCounts
	config         configMetrics
	limits         limitMetrics
}

// New returns the metrics of a process that runs the given version.
func New(version string) *Metrics {
	d := &definer{registry: prometheus.NewRegistry(), observed: map[string]*prometheus.Desc{}}
	m := &Metrics{definer: d}
	d.setSubject("Requests")
	m.requests = newRequestCounts(d)
	m.Started = &m.requests.started
	m.Panics = d.counter("tierway_panics_total", "Panics that were recovered, in requests and in background work.")
	m.RetryBudgetExhausted = d.counter("tierway_retry_budget_exhausted_total",
		"Retries that were skipped because the retry budget was spent.")
	ends := d.counters("tierway_stream_end_total", "Ended streams by reason. complete: ended by the engine. "+
		"repaired: complete, but the gateway added the missing terminator. truncated: the engine or its connection "+
		"failed after the first content. client_gone: the client disconnected.", "reason")
	m.streams = resolved(ends,
		[]string{string(EndComplete), string(EndRepaired), string(EndTruncated), string(EndClientGone)})
	m.BodiesRefused = d.counter("tierway_request_bodies_refused_total", "Requests rejected with 503 because "+
		"max_buffered_bytes, or the tenant's share of it, had no room for the request body or the answer.")
	describe[BodyMemory](d)
	m.exhausted = resolved(d.counters("tierway_fd_exhausted_total", "Connections that failed because no file "+
		"descriptor or socket memory was free, by operation: accept (from clients), connect (to workers).",
		"operation"), []string{"accept", "connect"})
	d.setSubject("Routing")
	m.requests.decisions = d.counters("tierway_tier_decisions_total", "Requests by resolved tier or pool and by the "+
		"rule that selected it. tier=removed: a reload removed the tier before the request was counted.", "tier", "rule")
	d.setSubject("Latency")
	m.Overhead = d.histogram("tierway_overhead_seconds", "The gateway's own time per request: from the complete "+
		"request read until the search for a worker begins.", overheadSeconds)
	m.tiers, m.workers, m.handovers = newTierVectors(d), newWorkerVectors(d), newHandoverVectors(d)
	m.hooks = newHookVectors(d)
	m.Cache = newResponseCache(d)
	d.setSubject("Workers")
	describe[WorkerGauges](d)
	describe[IndexMemory](d)
	describe[PredictionGauges](d)
	describe[TokenGauges](d)
	d.setSubject("LMCache")
	m.lmcacheLookups = d.histograms("tierway_lmcache_lookup_seconds",
		"Duration of look-ups in LMCache's controller that were answered.",
		[]float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2}, "tier") // they take 0.2 s at most
	describe[LMCacheGauges](d)
	d.setSubject("Queues")
	m.waits = d.histograms("tierway_queue_wait_seconds", "Total queue time of requests that reached a worker, all "+
		"waits of a request together; 0 if it did not wait.", waitSeconds, "tier", "class")
	describe[QueueGauges](d)
	d.setSubject("Tenants and limits")
	m.AuthFailures = d.counter("tierway_auth_failures_total",
		"Requests rejected for a missing, malformed or unknown key, of tenants and admins.")
	m.tenants = newTenantCounts(d)
	m.limits.vector = d.counters("tierway_limit_refusals_total",
		"Requests rejected by a limit of their tenant or key, by limit.", "limit")
	m.config = newConfigMetrics(d)
	d.setSubject("Redis, database and ledger")
	describe[Stores](d)
	d.setSubject("Decision log")
	describe[DecisionLog](d)
	d.setSubject("Learning")
	describe[LearningFiles](d)
	m.samples = newSampleCounters(d)
	d.setSubject("Traces")
	describe[TraceCounts](d)
	d.setSubject("Logs")
	describe[Logs](d)
	d.setSubject("Configuration and build")
	d.buildInfo(version)
	process := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
	d.registry.MustRegister(collectors.NewGoCollector(), process)
	return m
}

// Handler serves the metrics in the Prometheus text format.
func (m *Metrics) Handler() http.Handler {
	// Four scrapes at once are more than Prometheus and a person need.
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// OverheadCounts returns the bounds of the buckets of Overhead in seconds, and the number of observations in each
// bucket; the last one has no bound.
func (m *Metrics) OverheadCounts() (bounds []float64, counts []uint64) {
	return overheadSeconds, bucketCounts(m.Overhead, len(overheadSeconds))
}

// vector holds the series of one metric by their labels.
type vector interface {
	DeletePartialMatch(prometheus.Labels) int
}

func removeSeries(labels prometheus.Labels, vectors ...vector) {
	for _, v := range vectors {
		v.DeletePartialMatch(labels)
	}
}

// StreamEnd is the reason for which a stream ended, as tierway_stream_end_total counts it.
type StreamEnd string

// The reasons.
const (
	EndComplete   StreamEnd = "complete"    // the engine ended the stream
	EndRepaired   StreamEnd = "repaired"    // complete, but the gateway added the terminator
	EndTruncated  StreamEnd = "truncated"   // the engine or its connection failed after the first content
	EndClientGone StreamEnd = "client_gone" // the client disconnected
)

// Exhausted counts a connection that failed because no file descriptor was free. operation
// is accept or connect.
func (m *Metrics) Exhausted(operation string) { m.exhausted.inc(operation) }

// StreamEnded counts one ended stream.
func (m *Metrics) StreamEnded(e StreamEnd) { m.streams.inc(string(e)) }

// waitSeconds are the buckets of queue times. A request below 1 ms did not wait; 600 s is
// the longest default of queue.max_wait.
var waitSeconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600}

// Waits holds the resolved series of tierway_queue_wait_seconds of one tier or pool, by class.
type Waits []prometheus.Observer

// Waits resolves the queue times of a tier for the names of all classes. Dispatched takes
// indexes into classes.
func (m *Metrics) Waits(tier string, classes []string) (w Waits) {
	for _, class := range classes {
		w = append(w, m.waits.WithLabelValues(tier, class))
	}
	return w
}

// Dispatched counts a request that reached a worker. wait is the sum of all its waits; 0 if
// it did not wait. Call it once per request.
func (w Waits) Dispatched(class int, wait time.Duration) { w[class].Observe(wait.Seconds()) }

func (d *definer) buildInfo(version string) {
	const name = "tierway_build_info"
	const help = "Always 1. The labels are the version of the program, the version of Go that built it, and the " +
		"revision of its sources. The revision of a build outside a repository is unknown."
	labels := []string{"version", "goversion", "revision"}
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	g.WithLabelValues(version, runtime.Version(), cmp.Or(sourceRevision(), "unknown")).Set(1)
	define(d, g, name, "gauge", help, labels...)
}

// sourceRevision returns the revision that the Go tool recorded in the binary; "" if there
// is none.
func sourceRevision() (revision string) {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	return revision
}

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

type limitMetrics struct {
	vector   *prometheus.CounterVec
	refusals counterSet // by limit
}

// SetLimitNames resolves the series of rejected requests for the names of all limits. Call it
// once, before the first request.
func (m *Metrics) SetLimitNames(names []string) {
	m.limits.refusals = resolved(m.limits.vector, names)
	m.tenants.setLabels(byLimit, names)
}

// LimitRefused counts a request that a limit rejected. A name that SetLimitNames did not get
// is not counted, so that no other label value appears.
func (m *Metrics) LimitRefused(limit string) { m.limits.refusals.inc(limit) }
