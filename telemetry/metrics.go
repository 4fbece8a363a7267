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

// seconds are the bounds of the histograms of whole waits: 5 ms is a cached
// first token on an idle engine, 600 s the default total timeout.
var seconds = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600}

// overheadSeconds are the bounds of the gateway's own time; its budget is
// 60 µs, so the buckets are finest around it.
var overheadSeconds = []float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .01, .1}

// Metrics holds every series of one process. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	outside  *Tier

	Started              prometheus.Counter   // tierway_requests_started_total
	Inflight             prometheus.Gauge     // tierway_inflight
	Overhead             prometheus.Histogram // tierway_overhead_seconds
	Panics               prometheus.Counter   // tierway_panics_total
	RetryBudgetExhausted prometheus.Counter   // tierway_retry_budget_exhausted_total
	AuthFailures         prometheus.Counter   // tierway_auth_failures_total
	Reloads              Reloads              // tierway_config_reloads_total

	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	ttft      *prometheus.HistogramVec
	attempts  *prometheus.CounterVec
	tokens    *prometheus.CounterVec
	retries   *prometheus.CounterVec
	ends      *prometheus.CounterVec
	breakers  *prometheus.CounterVec
	decisions *prometheus.CounterVec
	waits     *prometheus.HistogramVec

	plane plane
}

// New returns the metrics of a process that runs the given version.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		Started: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tierway_requests_started_total", Help: "Requests whose header was read. Started = ended + in flight."}),
		Inflight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tierway_inflight", Help: "Requests between their first byte and their last."}),
		Overhead: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tierway_overhead_seconds", Help: "The gateway's own time, from the whole request read to the first attempt.", Buckets: overheadSeconds}),
		Panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tierway_panics_total", Help: "Handlers that panicked and were recovered."}),
		RetryBudgetExhausted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tierway_retry_budget_exhausted_total", Help: "Retries that were not made because the retry budget was spent."}),
		AuthFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tierway_auth_failures_total", Help: "Requests refused for a missing, malformed or unknown key."}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tierway_requests_total", Help: "Ended requests by tier, dialect and outcome."}, []string{"tier", "dialect", "outcome"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tierway_request_duration_seconds", Help: "Whole requests by tier, from the first byte in to the last byte out.", Buckets: seconds}, []string{"tier"}),
		ttft: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tierway_time_to_first_token_seconds", Help: "From the attempt's start to its first content event, or to the header of a whole answer.", Buckets: seconds}, []string{"tier", "worker"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tierway_attempts_total", Help: "Requests sent to a worker by result: ok, error (the worker's fault), excluded (nobody's)."}, []string{"tier", "worker", "result"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tierway_tokens_total", Help: "Tokens that engines reported, by kind: prompt, cached (part of prompt), output."}, []string{"tier", "worker", "kind"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tierway_retries_total", Help: "Attempts after the first."}, []string{"tier"}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tierway_stream_end_total", Help: "Ended streams by reason: proven, completed (terminator added), truncated, client_gone, error."}, []string{"reason"}),
		breakers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tierway_breaker_transitions_total", Help: "Changes of a worker's circuit breaker by the state that it took: closed, half_open, open."}, []string{"tier", "worker", "to"}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tierway_tier_decisions_total", Help: "Requests by the tier or pool that they were given and the rule that gave it."}, []string{"tier", "rule"}),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tierway_queue_wait_seconds", Help: "How long requests that had a worker waited for it, once a request: before another attempt too. Who had one at once counts as 0, who had none not at all.", Buckets: waitSeconds}, []string{"tier", "class"}),
	}
	m.plane, m.Reloads = newPlane(m.registry)
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tierway_build_info", Help: "Always 1; the label is the version.", ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	m.registry.MustRegister(m.Started, m.Inflight, m.Overhead, m.Panics, m.RetryBudgetExhausted, m.AuthFailures,
		m.requests, m.durations, m.ttft, m.attempts, m.tokens, m.retries, m.ends, m.breakers, m.decisions, m.waits, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics in the Prometheus text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}) // a scraper or two, not a load
}

// Tier is the resolved series of one tier or pool.
type Tier struct {
	Retries  prometheus.Counter
	Duration prometheus.Observer

	requests [][]prometheus.Counter // by dialect, then outcome
}

// Tier resolves the series of a tier for the given dialects and outcomes;
// Ended takes indexes into the two.
func (m *Metrics) Tier(name string, dialects, outcomes []string) *Tier {
	t := &Tier{
		Retries:  m.retries.WithLabelValues(name),
		Duration: m.durations.WithLabelValues(name),
		requests: make([][]prometheus.Counter, len(dialects)),
	}
	for i, d := range dialects {
		t.requests[i] = make([]prometheus.Counter, len(outcomes))
		for j, o := range outcomes {
			t.requests[i][j] = m.requests.WithLabelValues(name, d, o)
		}
	}
	return t
}

// EndedOutside counts a request that ended before it had a tier. The indexes are
// those of the dialects and outcomes that Outside was given.
func (m *Metrics) EndedOutside(dialect, outcome int) { m.outside.Ended(dialect, outcome) }

// noTier is the label of requests that end before they have a tier.
const noTier = "none"

// Outside resolves the series of requests that end before they have a tier. It
// is called once, before the first request.
func (m *Metrics) Outside(dialects, outcomes []string) {
	m.outside = m.Tier(noTier, dialects, outcomes)
}

// Ended counts one ended request.
func (t *Tier) Ended(dialect, outcome int) { t.requests[dialect][outcome].Inc() }

// Worker is the resolved series of one worker.
type Worker struct {
	OK, Error, Excluded    prometheus.Counter
	Prompt, Cached, Output prometheus.Counter
	TTFT                   prometheus.Observer

	breaker map[string]prometheus.Counter
}

// Breaker counts that the worker's circuit breaker took a state.
func (w *Worker) Breaker(to string) {
	if c := w.breaker[to]; c != nil {
		c.Inc()
	}
}

// Decided counts a request that a rule gave to a tier or pool. Both come from
// the configuration.
func (m *Metrics) Decided(tier, rule string) { m.decisions.WithLabelValues(tier, rule).Inc() }

// Worker resolves the series of one worker of a tier.
func (m *Metrics) Worker(tier, worker string) *Worker {
	w := &Worker{
		OK:       m.attempts.WithLabelValues(tier, worker, "ok"),
		Error:    m.attempts.WithLabelValues(tier, worker, "error"),
		Excluded: m.attempts.WithLabelValues(tier, worker, "excluded"),
		Prompt:   m.tokens.WithLabelValues(tier, worker, "prompt"),
		Cached:   m.tokens.WithLabelValues(tier, worker, "cached"),
		Output:   m.tokens.WithLabelValues(tier, worker, "output"),
		TTFT:     m.ttft.WithLabelValues(tier, worker),
		breaker:  map[string]prometheus.Counter{},
	}
	for _, to := range [...]string{"closed", "half_open", "open"} {
		w.breaker[to] = m.breakers.WithLabelValues(tier, worker, to)
	}
	return w
}

// StreamEnd is why a stream ended, as tierway_stream_end_total counts it.
type StreamEnd string

// The ends of a stream.
const (
	EndProven     StreamEnd = "proven"
	EndCompleted  StreamEnd = "completed"
	EndTruncated  StreamEnd = "truncated"
	EndClientGone StreamEnd = "client_gone"
	EndError      StreamEnd = "error"
)

// ForgetWorker drops the series of a worker that is gone, so that workers that
// come under ever new names do not add up.
func (m *Metrics) ForgetWorker(worker string) {
	m.forget(prometheus.Labels{"worker": worker}, m.ttft, m.attempts, m.tokens, m.breakers)
}

// ForgetTier drops the series of a tier or pool that is gone, those of its workers
// among them. What ends on it afterwards is counted nowhere; a tier that comes
// back under the name is resolved anew and begins at 0.
func (m *Metrics) ForgetTier(tier string) {
	if tier == noTier { // those that never had one share the label, and stay
		return
	}
	m.forget(prometheus.Labels{"tier": tier}, m.requests, m.durations, m.retries, m.decisions, m.waits,
		m.ttft, m.attempts, m.tokens, m.breakers)
}

// forget drops the series that have the labels.
func (m *Metrics) forget(gone prometheus.Labels, vectors ...interface {
	DeletePartialMatch(prometheus.Labels) int
}) {
	for _, v := range vectors {
		v.DeletePartialMatch(gone)
	}
}

// StreamEnded counts one ended stream.
func (m *Metrics) StreamEnded(e StreamEnd) { m.ends.WithLabelValues(string(e)).Inc() }
