package telemetry

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// flow counts requests in such a way that every scrape adds up: started is ended plus in
// flight. A scrape reads what started while no request can end, and a request starts
// before it ends, so that the difference is what is in flight.
type flow struct {
	started Started

	dialects, outcomes []string // set once, with the first tier

	startedDesc, inflightDesc, endedDesc *prometheus.Desc

	mu      sync.Mutex // guards the rest, and the counts of ended requests
	tiers   map[string]*Tier
	removed []int64 // ended requests of forgotten tiers, by dialect, then outcome; nil without one
}

// Started counts requests whose header was read.
type Started struct{ n atomic.Int64 }

// Inc counts one. It is to be called before the request can end.
func (s *Started) Inc() { s.n.Add(1) }

const (
	// noTier is the label of requests that end before they have a tier.
	noTier = "none"
	// removedTier is the label of requests whose tier no configuration has any more.
	removedTier = "removed"
)

func newFlow(d *definer) *flow {
	f := &flow{tiers: map[string]*Tier{}}
	f.startedDesc = d.series("tierway_requests_started_total", "Requests whose header was read. In every scrape it is the sum of tierway_requests_total plus tierway_inflight.")
	f.inflightDesc = d.series("tierway_inflight", "Requests that have started and not ended.")
	describe[OldestRequest](d)
	f.endedDesc = d.series("tierway_requests_total", "Ended requests by tier, dialect and outcome: ok, refused (4xx), failed (5xx), truncated (broken off after its first content), client_gone. The tier none stands for those that ended before they had one, removed for all those of tiers that a reload took away.", "tier", "dialect", "outcome")
	d.registry.MustRegister(f)
	return f
}

// Decided counts a request that a rule gave to a tier or pool. Both come from the
// configuration. A tier that was forgotten while the request came counts as removed.
func (m *Metrics) Decided(tier, rule string) {
	m.flow.mu.Lock()
	defer m.flow.mu.Unlock()
	if m.flow.tiers[tier] == nil {
		tier = removedTier
	}
	m.decisions.WithLabelValues(tier, rule).Inc()
}

// forget takes a tier away. Its ended requests, and those that are still under way,
// count as those of removed tiers.
func (f *flow) forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.tiers[name]
	if t == nil {
		return
	}
	if f.removed == nil {
		f.removed = make([]int64, len(t.ended))
	}
	add(f.removed, t.ended)
	t.ended = f.removed
	delete(f.tiers, name)
}

func (f *flow) end(t *Tier, dialect, outcome int) {
	f.mu.Lock()
	t.ended[dialect*len(f.outcomes)+outcome]++
	f.mu.Unlock()
}

// read returns the counts of one moment: ended requests by tier, and started ones.
func (f *flow) read() (ended map[string][]int64, started int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ended = map[string][]int64{}
	for name, t := range f.tiers {
		ended[name] = slices.Clone(t.ended)
	}
	if ended[removedTier] == nil {
		ended[removedTier] = slices.Clone(f.removed)
	} else { // a tier has that name
		add(ended[removedTier], f.removed)
	}
	return ended, f.started.n.Load()
}

// add adds counts to others. There may be none of them.
func add(to, counts []int64) {
	for i, n := range counts {
		to[i] += n
	}
}

func (f *flow) Describe(ch chan<- *prometheus.Desc) {
	ch <- f.startedDesc
	ch <- f.inflightDesc
	ch <- f.endedDesc
}

func (f *flow) Collect(ch chan<- prometheus.Metric) {
	ended, started := f.read()
	inflight := started
	for tier, counts := range ended {
		for i, n := range counts {
			ch <- prometheus.MustNewConstMetric(f.endedDesc, prometheus.CounterValue, float64(n),
				tier, f.dialects[i/len(f.outcomes)], f.outcomes[i%len(f.outcomes)])
			inflight -= n
		}
	}
	ch <- prometheus.MustNewConstMetric(f.startedDesc, prometheus.CounterValue, float64(started))
	ch <- prometheus.MustNewConstMetric(f.inflightDesc, prometheus.GaugeValue, float64(inflight))
}
