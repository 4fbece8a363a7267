package telemetry

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// requestCounts counts requests so that every scrape adds up: started is ended plus in
// flight. A scrape reads the number of started requests while no request can end, and a
// request starts before it ends. The difference is therefore the number in flight.
type requestCounts struct {
	started Started

	dialects, outcomes []string // set once, with the first tier

	startedDesc, inflightDesc, endedDesc *prometheus.Desc
	decisions                            *prometheus.CounterVec

	mu      sync.Mutex // guards the fields below and the counts of ended requests
	tiers   map[string]*Tier
	removed []int64 // ended requests of removed tiers, by dialect, then outcome; nil if no tier was removed
}

// Started counts requests after their header was read.
type Started struct{ n atomic.Int64 }

// Inc counts one request. Call it before the request can end.
func (s *Started) Inc() { s.n.Add(1) }

const (
	// noTier is the tier label of requests that end before a tier is resolved.
	noTier = "none"
	// removedTier is the tier label of requests on a tier that a reload removed.
	removedTier = "removed"
)

func newRequestCounts(d *definer) *requestCounts {
	c := &requestCounts{tiers: map[string]*Tier{}}
	c.startedDesc = d.series("tierway_requests_started_total", "Requests with a complete header. In every scrape it is "+
		"the sum of tierway_requests_total plus tierway_inflight.")
	c.inflightDesc = d.series("tierway_inflight", "Requests that have started and not ended.")
	describe[OldestRequest](d)
	c.endedDesc = d.series("tierway_requests_total", "Ended requests by tier, dialect and outcome: ok, refused (4xx), "+
		"failed (5xx), truncated (cut off after the first content), client_gone (the client disconnected). "+
		"tier=none: ended before a tier was resolved. tier=removed: requests of all tiers that reloads removed.",
		"tier", "dialect", "outcome")
	d.registry.MustRegister(c)
	return c
}

// Resolved counts a request that a rule sent to the tier. rule comes from the configuration. If a reload has removed
// the tier meanwhile, the request counts as removed.
func (t *Tier) Resolved(rule string) {
	c := (*t.resolved.Load())[rule]
	if c == nil {
		c = t.requests.resolve(t, rule)
	}
	c.Inc()
}

// resolve returns the counter of the requests that a rule sends to a tier, and keeps it for the next one.
func (c *requestCounts) resolve(t *Tier, rule string) prometheus.Counter {
	c.mu.Lock()
	defer c.mu.Unlock()
	label := t.name
	if c.tiers[label] != t {
		label = removedTier
	}
	counter := c.decisions.WithLabelValues(label, rule)
	known := maps.Clone(*t.resolved.Load())
	known[rule] = counter
	t.resolved.Store(&known)
	return counter
}

// removeTier removes a tier. Its ended requests count under the removed tier, and so do its
// requests in flight when they end.
func (c *requestCounts) removeTier(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tiers[name]
	if t == nil {
		return
	}
	if c.removed == nil {
		c.removed = make([]int64, len(t.ended))
	}
	addCounts(c.removed, t.ended)
	t.ended = c.removed
	t.resolved.Store(&map[string]prometheus.Counter{})
	delete(c.tiers, name)
}

// read returns the counts of one moment: ended requests by tier, and started requests.
func (c *requestCounts) read() (ended map[string][]int64, started int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ended = map[string][]int64{}
	for name, t := range c.tiers {
		ended[name] = slices.Clone(t.ended)
	}
	if ended[removedTier] == nil {
		ended[removedTier] = slices.Clone(c.removed)
	} else { // a configured tier has that name
		addCounts(ended[removedTier], c.removed)
	}
	return ended, c.started.n.Load()
}

// addCounts adds counts to the elements of sums. counts may be empty.
func addCounts(sums, counts []int64) {
	for i, n := range counts {
		sums[i] += n
	}
}

func (c *requestCounts) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.startedDesc
	ch <- c.inflightDesc
	ch <- c.endedDesc
}

func (c *requestCounts) Collect(ch chan<- prometheus.Metric) {
	ended, started := c.read()
	inflight := started
	for tier, counts := range ended {
		for i, n := range counts {
			ch <- prometheus.MustNewConstMetric(c.endedDesc, prometheus.CounterValue, float64(n),
				tier, c.dialects[i/len(c.outcomes)], c.outcomes[i%len(c.outcomes)])
			inflight -= n
		}
	}
	ch <- prometheus.MustNewConstMetric(c.startedDesc, prometheus.CounterValue, float64(started))
	ch <- prometheus.MustNewConstMetric(c.inflightDesc, prometheus.GaugeValue, float64(inflight))
}
