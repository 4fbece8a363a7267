package telemetry

import (
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// firstSeconds are the buckets of the time to first token: 5 ms is a cached prompt on an idle
// engine, 600 s the default total timeout.
var firstSeconds = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600}

type workerVectors struct {
	attempts, tokens, breakers *prometheus.CounterVec

	// with the label policy
	first    *prometheus.HistogramVec
	selected *prometheus.CounterVec
}

func newWorkerVectors(d *definer) (v workerVectors) {
	d.setSubject("Workers")
	v.attempts = d.counters("tierway_attempts_total", "Ended attempts by result. ok: success. error: the worker "+
		"failed. excluded: the worker is not the cause of the end, or the request left a silent worker, for example a client disconnect or an error that "+
		"the request caused.", "tier", "worker", "result")
	v.tokens = d.counters("tierway_tokens_total",
		"Tokens that engines reported, by kind: prompt, cached (part of prompt), output.", "tier", "worker", "kind")
	v.breakers = d.counters("tierway_breaker_transitions_total",
		"Transitions of a worker's circuit breaker by new state: closed, half_open, open.", "tier", "worker", "to")
	d.setSubject("Routing")
	v.selected = d.counters("tierway_route_decisions_total", "Attempts by selected worker, policy and reason. "+
		"reason=other: no policy selected the worker, for example a follow-up that only one worker can answer.",
		"tier", "worker", "policy", "reason")
	d.setSubject("Latency")
	v.first = d.histograms("tierway_time_to_first_token_seconds", "Time from the start of an attempt to its first "+
		"content event. Only streams count: a complete answer does not show when its first token came.",
		firstSeconds, "tier", "worker", "policy")
	return v
}

// withPolicy returns the vectors with the label policy.
func (v *workerVectors) withPolicy() []vector { return []vector{v.first, v.selected} }

// Worker holds the resolved series of one worker. It is safe for concurrent use.
type Worker struct {
	OK, Error, Excluded    prometheus.Counter  // results of attempts
	Prompt, Cached, Output prometheus.Counter  // tokens
	TTFT                   prometheus.Observer // in seconds

	m            *Metrics
	tier, worker string
	policy       atomic.Pointer[workerPolicy]
	breaker      counterSet
}

// workerPolicy holds the series of a Worker under one policy.
type workerPolicy struct {
	name    string
	first   prometheus.Observer
	reasons counterSet
	other   prometheus.Counter
}

// Worker resolves the series of one worker of a tier under the tier's policy. reasons are all
// reasons that the policy can give.
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
	w.SetPolicy(policy, reasons)
	return w
}

// SetPolicy sets the policy of the worker's tier. It returns quickly if the policy is
// unchanged. Otherwise call it after Metrics.Tier, which removes the series of the old policy.
func (w *Worker) SetPolicy(policy string, reasons []string) {
	if p := w.policy.Load(); p != nil && p.name == policy {
		return
	}
	selected := w.m.workers.selected
	w.policy.Store(&workerPolicy{
		name:    policy,
		first:   w.m.workers.first.WithLabelValues(w.tier, w.worker, policy),
		reasons: resolved(selected, reasons, w.tier, w.worker, policy),
		other:   selected.WithLabelValues(w.tier, w.worker, policy, other),
	})
}

// TTFTSeconds returns the upper bounds of the buckets of TTFTCounts, in seconds. The last bucket has no
// upper bound.
func TTFTSeconds() []float64 { return slices.Clone(firstSeconds) }

// TTFTCounts returns the number of times to first token in each bucket, since the worker was added or
// its tier's policy changed. It takes no lock that an observation takes.
func (w *Worker) TTFTCounts() []uint64 {
	h, _ := w.policy.Load().first.(prometheus.Histogram)
	return bucketCounts(h, len(firstSeconds))
}

// bucketCounts returns the number of observations of h in each of its n buckets and beyond them.
func bucketCounts(h prometheus.Histogram, n int) []uint64 {
	var read dto.Metric
	if h == nil || h.Write(&read) != nil {
		return make([]uint64, n+1)
	}
	return bucketsOf(read.GetHistogram(), n)
}

// bucketsOf returns the number of observations in each of the n buckets of h and beyond them.
func bucketsOf(h *dto.Histogram, n int) []uint64 {
	counts := make([]uint64, n+1)
	before := uint64(0)
	for i, b := range h.GetBucket() {
		counts[i], before = b.GetCumulativeCount()-before, b.GetCumulativeCount()
	}
	counts[n] = h.GetSampleCount() - before
	return counts
}

// Selected counts an attempt for which the worker was selected for a reason. A reason that was
// not resolved counts as other, so that no other label value appears.
func (w *Worker) Selected(reason string) {
	p := w.policy.Load()
	if c := p.reasons[reason]; c != nil {
		c.Inc()
		return
	}
	p.other.Inc()
}

// BreakerChanged counts a transition of the worker's circuit breaker to a state.
func (w *Worker) BreakerChanged(state string) { w.breaker.inc(state) }

// RemoveWorker removes the series of a removed worker, so that workers with ever new names do
// not accumulate series.
func (m *Metrics) RemoveWorker(worker string) {
	labels := prometheus.Labels{"worker": worker}
	removeSeries(labels, m.workers.attempts, m.workers.tokens, m.workers.breakers)
	removeSeries(labels, m.workers.withPolicy()...)
}
