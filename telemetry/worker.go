package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// firstSeconds are the bounds of the histogram of first tokens: 5 ms is a cached
// one on an idle engine, 600 s the default total timeout.
var firstSeconds = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600}

// workerVectors hold the series of all workers.
type workerVectors struct {
	attempts, tokens, breakers *prometheus.CounterVec

	// by policy too
	first  *prometheus.HistogramVec
	chosen *prometheus.CounterVec
}

func newWorkerVectors(d *definer) (v workerVectors) {
	d.about("Workers")
	v.attempts = d.counters("tierway_attempts_total", "Requests sent to a worker by result: ok, error (the worker's fault), excluded (nobody's).", "tier", "worker", "result")
	v.tokens = d.counters("tierway_tokens_total", "Tokens that engines reported, by kind: prompt, cached (part of prompt), output.", "tier", "worker", "kind")
	v.breakers = d.counters("tierway_breaker_transitions_total", "Changes of a worker's circuit breaker by the state that it took: closed, half_open, open.", "tier", "worker", "to")
	d.about("Routing")
	v.chosen = d.counters("tierway_route_decisions_total", "Attempts by the worker that was chosen, the policy that chose it and its reason; other is the reason of those that no policy chose, such as a follow-up that only one worker can answer.", "tier", "worker", "policy", "reason")
	d.about("Latency")
	v.first = d.histograms("tierway_time_to_first_token_seconds", "From the attempt's start to its first content event. Of generated streams: of a whole answer nobody outside the engine sees the first token.", firstSeconds, "tier", "worker", "policy")
	return v
}

// underPolicy are the vectors whose series have the label policy.
func (v *workerVectors) underPolicy() []vector { return []vector{v.first, v.chosen} }

// Worker is the resolved series of one worker. It is safe for concurrent use.
type Worker struct {
	OK, Error, Excluded    prometheus.Counter
	Prompt, Cached, Output prometheus.Counter
	TTFT                   prometheus.Observer // in seconds

	m            *Metrics
	tier, worker string
	policy       atomic.Pointer[workerPolicy]
	breaker      counterSet
}

// workerPolicy is what a Worker has under one policy.
type workerPolicy struct {
	name    string
	first   prometheus.Observer
	reasons counterSet
	other   prometheus.Counter
}

// Worker resolves the series of one worker of a tier under the tier's policy, for
// all reasons that the policy can give.
func (m *Metrics) Worker(tier, worker, policy string, reasons []string) *Worker {
	w := &Worker{
		m: m, tier: tier, worker: worker,
		OK:       m.workers.attempts.WithLabelValues(tier, worker, "ok"),
		Error:    m.workers.attempts.WithLabelValues(tier, worker, "error"),
		Excluded: m.workers.attempts.WithLabelValues(tier, worker, "excluded"),
		Prompt:   m.workers.tokens.WithLabelValues(tier, worker, "prompt"),
		Cached:   m.workers.tokens.WithLabelValues(tier, worker, "cached"),
		Output:   m.workers.tokens.WithLabelValues(tier, worker, "output"),
		breaker:  resolved(m.workers.breakers, []string{"closed", "half_open", "open"}, tier, worker),
	}
	w.TTFT = prometheus.ObserverFunc(func(v float64) { w.policy.Load().first.Observe(v) })
	w.Under(policy, reasons)
	return w
}

// Under says which policy the worker's tier has from now on. It is quick when that
// is the one that it had; else it is to be called after Metrics.Tier, which drops
// the series of the old one.
func (w *Worker) Under(policy string, reasons []string) {
	if p := w.policy.Load(); p != nil && p.name == policy {
		return
	}
	chosen := w.m.workers.chosen
	p := &workerPolicy{name: policy, first: w.m.workers.first.WithLabelValues(w.tier, w.worker, policy),
		reasons: resolved(chosen, reasons, w.tier, w.worker, policy), other: chosen.WithLabelValues(w.tier, w.worker, policy, other)}
	w.policy.Store(p)
}

// Chosen counts that the worker was chosen for a reason. One that it was not
// resolved for counts as other, so that no other label ever comes to be.
func (w *Worker) Chosen(reason string) {
	p := w.policy.Load()
	if c := p.reasons[reason]; c != nil {
		c.Inc()
		return
	}
	p.other.Inc()
}

// Breaker counts that the worker's circuit breaker took a state.
func (w *Worker) Breaker(to string) { w.breaker.inc(to) }

// ForgetWorker drops the series of a worker that is gone, so that workers that
// come under ever new names do not add up.
func (m *Metrics) ForgetWorker(worker string) {
	gone := prometheus.Labels{"worker": worker}
	forget(gone, m.workers.attempts, m.workers.tokens, m.workers.breakers)
	forget(gone, m.workers.underPolicy()...)
}
