package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// requestSeconds are the bounds of the histogram of whole requests: 10 ms is an
// embedding, 120 s a long answer of a slow model; 600 s is the default total
// timeout and 1,200 s twice it, for batches that are allowed more.
var requestSeconds = []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 90, 120, 300, 600, 1200}

// selectionSeconds are the bounds of the histogram of choosing a worker: the
// budget under the pool's lock is 2 µs, and 10 ms is a lock that somebody sat on.
var selectionSeconds = []float64{.0000005, .000001, .0000015, .000002, .000003, .000005, .00001, .000025, .00005, .0001, .00025, .001, .01}

// outputSeconds are the bounds of the histogram of the time for one token: those
// of OpenTelemetry's gen_ai.server.time_per_output_token, and three below for
// engines that answer faster than 100 tokens a second.
var outputSeconds = []float64{.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5}

// PrefixResult says what a worker was believed to have of a request's prompt when
// it was chosen.
type PrefixResult int

// The results.
const (
	PrefixHit  PrefixResult = iota // some of it
	PrefixMiss                     // none of it
	PrefixNone                     // the request has no prompt that could be compared
)

// prefixNames are the values of the label result, by PrefixResult.
var prefixNames = [...]string{"hit", "miss", "none"}

// tierVectors hold the series of all tiers and pools.
type tierVectors struct {
	retries *prometheus.CounterVec

	// by policy too
	durations, selections, perToken *prometheus.HistogramVec
	prefixes, believed, cached      *prometheus.CounterVec
}

func newTierVectors(d *definer) (v tierVectors) {
	d.about("Requests")
	v.durations = d.histograms("tierway_request_duration_seconds", "Whole requests by tier and the policy in force at their end, from the first byte in to the last byte out.", requestSeconds, "tier", "policy")
	v.retries = d.counters("tierway_retries_total", "Attempts after the first.", "tier")
	d.about("Routing")
	v.selections = d.histograms("tierway_selection_seconds", "Choosing and booking a worker, under the pool's lock and waiting for it; of picks that were made at once, not of those after a wait in the queue.", selectionSeconds, "tier", "policy")
	v.prefixes = d.counters("tierway_prefix_results_total", "Attempts by what the worker was believed to have of the prompt when it was chosen: hit (some of it), miss (none), none (a request without a prompt that could be compared).", "tier", "policy", "result")
	v.believed = d.counters("tierway_prefix_predicted_tokens_total", "Prompt tokens that the workers were believed to have in their caches, of attempts whose engine reported what it had. Beside tierway_prefix_cached_tokens_total it says what the belief is worth.", "tier", "policy")
	v.cached = d.counters("tierway_prefix_cached_tokens_total", "Prompt tokens that the engines reported as cached, of the same attempts as tierway_prefix_predicted_tokens_total.", "tier", "policy")
	d.about("Latency")
	v.perToken = d.histograms("tierway_time_per_output_token_seconds", "Time between two tokens of an answer: from its first content event to its last, divided by the tokens after the first. Of streams whose engine reported how many there were.", outputSeconds, "tier", "policy")
	return v
}

// underPolicy are the vectors whose series have the label policy.
func (v *tierVectors) underPolicy() []vector {
	return []vector{v.durations, v.selections, v.perToken, v.prefixes, v.believed, v.cached}
}

// Tier is the resolved series of one tier or pool. It is safe for concurrent use.
type Tier struct {
	Retries   prometheus.Counter
	Duration  prometheus.Observer // of a whole request, in seconds
	Selection prometheus.Observer // of choosing a worker at once, in seconds
	TPOT      prometheus.Observer // of one output token, in seconds

	flow   *flow
	ended  []int64 // by dialect, then outcome; those of all removed tiers once it is forgotten; flow guards it
	policy atomic.Pointer[tierPolicy]
}

// tierPolicy is what a Tier has under one policy.
type tierPolicy struct {
	name                          string
	duration, selection, perToken prometheus.Observer
	prefixes                      [len(prefixNames)]prometheus.Counter
	believed, cached              prometheus.Counter
}

// Tier resolves the series of a tier under the policy that it has now, for
// dialects and outcomes that are the same at every call; Ended takes indexes into
// the two. A tier has one Tier until it is forgotten. When it is resolved again
// under another policy, those who have it count under the new one, and the series
// of the old one are gone, its workers' among them.
func (m *Metrics) Tier(name, policy string, dialects, outcomes []string) *Tier {
	m.flow.mu.Lock()
	defer m.flow.mu.Unlock()
	t := m.tierLocked(name, dialects, outcomes)
	old := t.policy.Load()
	if old != nil && old.name == policy {
		return t
	}
	t.policy.Store(m.tierPolicy(name, policy))
	if old != nil {
		forget(prometheus.Labels{"tier": name, "policy": old.name}, m.tiers.underPolicy()...)
		forget(prometheus.Labels{"tier": name, "policy": old.name}, m.workers.underPolicy()...)
	}
	return t
}

// tierLocked returns the tier of that name, a new one without a policy yet.
func (m *Metrics) tierLocked(name string, dialects, outcomes []string) *Tier {
	if t := m.flow.tiers[name]; t != nil {
		return t
	}
	if m.flow.dialects == nil {
		m.flow.dialects, m.flow.outcomes = dialects, outcomes
	}
	t := &Tier{Retries: m.tiers.retries.WithLabelValues(name), flow: m.flow, ended: make([]int64, len(dialects)*len(outcomes))}
	t.Duration = prometheus.ObserverFunc(func(v float64) { t.policy.Load().duration.Observe(v) })
	t.Selection = prometheus.ObserverFunc(func(v float64) { t.policy.Load().selection.Observe(v) })
	t.TPOT = prometheus.ObserverFunc(func(v float64) { t.policy.Load().perToken.Observe(v) })
	m.flow.tiers[name] = t
	return t
}

// tierPolicy resolves what a tier has under a policy.
func (m *Metrics) tierPolicy(tier, policy string) *tierPolicy {
	v := &m.tiers
	p := &tierPolicy{
		name:      policy,
		duration:  v.durations.WithLabelValues(tier, policy),
		selection: v.selections.WithLabelValues(tier, policy),
		perToken:  v.perToken.WithLabelValues(tier, policy),
		believed:  v.believed.WithLabelValues(tier, policy),
		cached:    v.cached.WithLabelValues(tier, policy),
	}
	for i, result := range prefixNames {
		p.prefixes[i] = v.prefixes.WithLabelValues(tier, policy, result)
	}
	return p
}

// Ended counts one ended request. It is to be called once for each that Started
// has counted.
func (t *Tier) Ended(dialect, outcome int) { t.flow.end(t, dialect, outcome) }

// Prefix counts what was believed of an attempt's prompt: predicted tokens of it
// in the worker's cache, and cached ones as the engine has reported. A negative
// cached stands for an engine that said nothing; then neither number counts.
func (t *Tier) Prefix(result PrefixResult, predicted, cached int64) {
	p := t.policy.Load()
	p.prefixes[result].Inc()
	if cached >= 0 {
		p.believed.Add(float64(max(predicted, 0)))
		p.cached.Add(float64(cached))
	}
}

// Outside resolves the series of requests that end before they have a tier. It
// is called once, before the first request.
func (m *Metrics) Outside(dialects, outcomes []string) {
	m.flow.mu.Lock()
	m.outside = m.tierLocked(noTier, dialects, outcomes) // no policy has it, and it has no series of any
	m.flow.mu.Unlock()
	m.tenants.setLabels(byOutcome, outcomes)
}

// EndedOutside counts a request that ended before it had a tier. The indexes are
// those of the dialects and outcomes that Outside was given.
func (m *Metrics) EndedOutside(dialect, outcome int) { m.outside.Ended(dialect, outcome) }

// ForgetTier drops the series of a tier or pool that is gone, those of its workers
// among them. Requests that end on it afterwards are counted as those of a removed
// tier; a tier that comes back under the name is resolved anew and begins at 0.
func (m *Metrics) ForgetTier(tier string) {
	if tier == noTier { // those that never had one share the label, and stay
		return
	}
	m.flow.forget(tier) // before its decisions, so that none is counted afterwards
	gone := prometheus.Labels{"tier": tier}
	forget(gone, m.tiers.underPolicy()...)
	forget(gone, m.workers.underPolicy()...)
	forget(gone, m.decisions, m.tiers.retries, m.waits, m.workers.attempts, m.workers.tokens, m.workers.breakers)
}
