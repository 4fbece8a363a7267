package telemetry

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// requestSeconds are the buckets of the request duration: 10 ms is an embedding, 120 s a long
// answer of a slow model, 600 s the default total timeout, 1,200 s a longer timeout for batches.
var requestSeconds = []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 90, 120, 300, 600, 1200}

// selectionSeconds are the buckets of the worker selection. Its budget under the pool's lock is
// 2 µs; 10 ms means that another goroutine held the lock.
var selectionSeconds = []float64{.0000005, .000001, .0000015, .000002, .000003, .000005, .00001, .000025, .00005,
	.0001, .00025, .001, .01}

// outputSeconds are the buckets of the time per output token: those of OpenTelemetry's
// gen_ai.server.time_per_output_token, and three smaller ones for engines that produce more
// than 100 tokens per second.
var outputSeconds = []float64{.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5}

// PrefixResult is the prediction for a request's prompt in the cache of the selected worker.
type PrefixResult int

// The results.
const (
	PrefixHit  PrefixResult = iota // a part of the prompt is in the cache
	PrefixMiss                     // nothing of the prompt is in the cache
	PrefixNone                     // the request has no prompt that can be compared
)

// prefixNames are the values of the label result, by PrefixResult.
var prefixNames = [...]string{"hit", "miss", "none"}

type tierVectors struct {
	retries *prometheus.CounterVec

	// with the label policy
	durations, selections, perToken *prometheus.HistogramVec
	prefixes, predicted, cached     *prometheus.CounterVec
}

func newTierVectors(d *definer) (v tierVectors) {
	d.setSubject("Requests")
	v.durations = d.histograms("tierway_request_duration_seconds", "Duration of requests from the first byte received "+
		"to the last byte sent, by tier and by the policy in force at their end.", requestSeconds, "tier", "policy")
	v.retries = d.counters("tierway_retries_total", "Attempts after the first attempt of a request.", "tier")
	d.setSubject("Routing")
	v.selections = d.histograms("tierway_selection_seconds", "Time to select and book a worker, including the wait "+
		"for the pool's lock. Only requests that did not queue count.", selectionSeconds, "tier", "policy")
	v.prefixes = d.counters("tierway_prefix_results_total", "Attempts by the prediction for the selected worker's "+
		"cache. hit: it has a part of the prompt. miss: it has nothing. none: the request has no prompt that can be "+
		"compared.", "tier", "policy", "result")
	v.predicted = d.counters("tierway_prefix_predicted_tokens_total", "Prompt tokens that were predicted to be in the "+
		"selected worker's cache, for attempts with cached tokens reported by the engine. Compare it with "+
		"tierway_prefix_cached_tokens_total.", "tier", "policy")
	v.cached = d.counters("tierway_prefix_cached_tokens_total", "Prompt tokens that engines reported as cached, for "+
		"the attempts that tierway_prefix_predicted_tokens_total counts.", "tier", "policy")
	d.setSubject("Latency")
	v.perToken = d.histograms("tierway_time_per_output_token_seconds", "Time per output token: from the first to the "+
		"last content event, divided by the tokens after the first. Only streams with a number of "+
		"tokens reported by the engine count.", outputSeconds, "tier", "policy")
	return v
}

// withPolicy returns the vectors with the label policy.
func (v *tierVectors) withPolicy() []vector {
	return []vector{v.durations, v.selections, v.perToken, v.prefixes, v.predicted, v.cached}
}

// Tier holds the resolved series of one tier or pool. It is safe for concurrent use.
type Tier struct {
	Retries   prometheus.Counter
	Duration  prometheus.Observer // of a request, in seconds
	Selection prometheus.Observer // of a worker without queueing, in seconds
	TPOT      prometheus.Observer // time per output token, in seconds

	name     string
	requests *requestCounts
	results  []atomic.Int64 // by outcome; for Results
	ended    []int64        // by dialect, then outcome; shared by all removed tiers; requests.mu guards it
	policy   atomic.Pointer[tierPolicy]
	// by rule, for Resolved; requests.mu guards changes
	resolved atomic.Pointer[map[string]prometheus.Counter]
}

// tierPolicy holds the series of a Tier under one policy.
type tierPolicy struct {
	name                          string
	duration, selection, perToken prometheus.Observer
	prefixes                      [len(prefixNames)]prometheus.Counter
	predicted, cached             prometheus.Counter
}

// Tier resolves the series of a tier under its present policy. dialects and outcomes are the
// same in every call; Ended takes indexes into them. A tier has one Tier until it is removed.
// If the policy has changed, callers that hold the Tier count under the new policy, and the
// series of the old policy are removed, including those of the tier's workers.
func (m *Metrics) Tier(name, policy string, dialects, outcomes []string) *Tier {
	m.requests.mu.Lock()
	defer m.requests.mu.Unlock()
	t := m.tierLocked(name, dialects, outcomes)
	old := t.policy.Load()
	if old != nil && old.name == policy {
		return t
	}
	t.policy.Store(m.tierPolicy(name, policy))
	if old != nil {
		labels := prometheus.Labels{"tier": name, "policy": old.name}
		removeSeries(labels, m.tiers.withPolicy()...)
		removeSeries(labels, m.workers.withPolicy()...)
	}
	return t
}

// tierLocked returns the tier of a name. A new tier has no policy yet.
func (m *Metrics) tierLocked(name string, dialects, outcomes []string) *Tier {
	if t := m.requests.tiers[name]; t != nil {
		return t
	}
	if m.requests.dialects == nil {
		m.requests.dialects, m.requests.outcomes = dialects, outcomes
	}
	t := &Tier{Retries: m.tiers.retries.WithLabelValues(name), name: name, requests: m.requests,
		results: make([]atomic.Int64, len(outcomes)), ended: make([]int64, len(dialects)*len(outcomes))}
	t.Duration = prometheus.ObserverFunc(func(v float64) { t.policy.Load().duration.Observe(v) })
	t.Selection = prometheus.ObserverFunc(func(v float64) { t.policy.Load().selection.Observe(v) })
	t.TPOT = prometheus.ObserverFunc(func(v float64) { t.policy.Load().perToken.Observe(v) })
	t.resolved.Store(&map[string]prometheus.Counter{})
	m.requests.tiers[name] = t
	return t
}

func (m *Metrics) tierPolicy(tier, policy string) *tierPolicy {
	v := &m.tiers
	p := &tierPolicy{
		name:      policy,
		duration:  v.durations.WithLabelValues(tier, policy),
		selection: v.selections.WithLabelValues(tier, policy),
		perToken:  v.perToken.WithLabelValues(tier, policy),
		predicted: v.predicted.WithLabelValues(tier, policy),
		cached:    v.cached.WithLabelValues(tier, policy),
	}
	for i, result := range prefixNames {
		p.prefixes[i] = v.prefixes.WithLabelValues(tier, policy, result)
	}
	return p
}

// Ended counts one ended request. Call it once for each request that Started has counted.
func (t *Tier) Ended(dialect, outcome int) {
	t.results[outcome].Add(1)
	t.requests.mu.Lock()
	t.ended[dialect*len(t.requests.outcomes)+outcome]++
	t.requests.mu.Unlock()
}

// Results returns the number of ended requests by outcome. It takes no lock, so that it may be called
// often; unlike a scrape, it does not add up with other numbers.
func (t *Tier) Results() []int64 {
	all := make([]int64, len(t.results))
	for i := range all {
		all[i] = t.results[i].Load()
	}
	return all
}

// ResultsWithoutTier is Results of the requests that ended before a tier was resolved. It is empty
// before SetRequestLabels.
func (m *Metrics) ResultsWithoutTier() []int64 {
	if m.withoutTier == nil {
		return nil
	}
	return m.withoutTier.Results()
}

// CountPrefix counts the prediction for an attempt's prompt: predicted tokens in the worker's
// cache, and cached tokens as the engine reported them. A negative cached means that the
// engine reported none; then neither number counts.
func (t *Tier) CountPrefix(result PrefixResult, predicted, cached int64) {
	p := t.policy.Load()
	p.prefixes[result].Inc()
	if cached >= 0 {
		p.predicted.Add(float64(max(predicted, 0)))
		p.cached.Add(float64(cached))
	}
}

// SetRequestLabels resolves the series of requests that end before a tier is resolved. Call it
// once, before the first request.
func (m *Metrics) SetRequestLabels(dialects, outcomes []string) {
	m.requests.mu.Lock()
	m.withoutTier = m.tierLocked(noTier, dialects, outcomes) // it has no policy and no series of a policy
	m.requests.mu.Unlock()
	m.tenants.setLabels(byOutcome, outcomes)
}

// EndedWithoutTier counts a request that ended before a tier was resolved. dialect and outcome
// are indexes into the labels that SetRequestLabels got.
func (m *Metrics) EndedWithoutTier(dialect, outcome int) { m.withoutTier.Ended(dialect, outcome) }

// RemoveTier removes the series of a removed tier or pool, including those of its workers.
// Requests that end on it afterwards count under the tier removed. A tier that returns under
// the same name is resolved again and starts at 0.
func (m *Metrics) RemoveTier(tier string) {
	if tier == noTier { // requests without a tier share this label, and their series stay
		return
	}
	m.requests.removeTier(tier) // before its decisions, so that none is counted afterwards
	labels := prometheus.Labels{"tier": tier}
	removeSeries(labels, m.tiers.withPolicy()...)
	removeSeries(labels, m.workers.withPolicy()...)
	removeSeries(labels, m.requests.decisions, m.tiers.retries, m.waits,
		m.workers.attempts, m.workers.tokens, m.workers.breakers, m.handovers.results, m.handovers.prefills,
		m.lmcacheLookups)
}

// TierDecisions is the number of requests that a rule sent to a tier or pool since the gateway started.
type TierDecisions struct {
	Tier     string `json:"tier" doc:"Tier or pool; removed: a reload removed it before the request was counted."`
	Rule     string `json:"rule"`
	Requests int64  `json:"requests"`
}

// TierDecisions returns the numbers of requests by tier and rule, sorted by both. Requests are counted
// meanwhile.
func (m *Metrics) TierDecisions() []TierDecisions {
	all := []TierDecisions{}
	for _, s := range readSeries(m.requests.decisions) {
		all = append(all, TierDecisions{Tier: labelOf(s, "tier"), Rule: labelOf(s, "rule"),
			Requests: int64(s.GetCounter().GetValue())})
	}
	slices.SortFunc(all, func(a, b TierDecisions) int {
		return cmp.Or(cmp.Compare(a.Tier, b.Tier), cmp.Compare(a.Rule, b.Rule))
	})
	return all
}
