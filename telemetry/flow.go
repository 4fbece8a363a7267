package telemetry

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/prometheus/client_golang/prometheus"
)

// flow counts requests in such a way that every scrape adds up: started is ended
// plus in flight. What started is read after what ended, and a request starts
// before it ends, so that the difference is what is in flight and never below 0.
type flow struct {
	started Started

	mu      sync.Mutex
	oldest  func() time.Duration // nil: not known
	tiers   map[string]*Tier
	gone    []goneTier
	removed *ends // of all tiers that nobody has any more; nil without one
	descs   []*prometheus.Desc
}

// Started counts requests whose header was read.
type Started struct{ n atomic.Int64 }

// Inc counts one. It is to be called before the request can end.
func (s *Started) Inc() { s.n.Add(1) }

// ends counts the requests of one tier that have ended. It outlives its Tier.
type ends struct {
	dialects, outcomes []string
	n                  []atomic.Int64 // by dialect, then outcome
}

// goneTier is a tier that was forgotten, on which requests end as long as somebody
// has its Tier.
type goneTier struct {
	tier weak.Pointer[Tier]
	*ends
}

const (
	// noTier is the label of requests that end before they have a tier.
	noTier = "none"
	// removedTier is the label of requests whose tier no configuration has any more.
	removedTier = "removed"
)

// flowSeries are in the order of flow.descs.
var flowSeries = []series{
	{"tierway_requests_started_total", "Requests whose header was read. In every scrape it is the sum of tierway_requests_total plus tierway_inflight.", prometheus.CounterValue},
	{"tierway_inflight", "Requests that have started and not ended.", prometheus.GaugeValue},
	{"tierway_inflight_oldest_age_seconds", "How long the oldest request in flight has taken; 0 while none is.", prometheus.GaugeValue},
}

// endedSeries is the last of flow.descs.
var endedSeries = []series{
	{"tierway_requests_total", "Ended requests by tier, dialect and outcome: ok, refused (4xx), failed (5xx), truncated (broken off after its first content), client_gone. The tier none stands for those that ended before they had one, removed for all those of tiers that a reload took away.", prometheus.CounterValue},
}

// newFlow makes the counts and registers them.
func newFlow(d *definer) *flow {
	d.read(flowSeries)
	d.read(endedSeries, "tier", "dialect", "outcome")
	f := &flow{tiers: map[string]*Tier{}, descs: slices.Concat(descsOf(flowSeries), descsOf(endedSeries, "tier", "dialect", "outcome"))}
	d.registry.MustRegister(f)
	return f
}

// has tells whether a tier is resolved and not forgotten.
func (f *flow) has(tier string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tiers[tier] != nil
}

// forget takes a tier away. Those of its requests that are still under way are
// counted when they end.
func (f *flow) forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.tiers[name]; t != nil {
		f.gone = append(f.gone, goneTier{weak.Make(t), t.ends})
		delete(f.tiers, name)
	}
}

// endsOf are the ends of a tier with the label that they are shown under, and their
// values as they were read.
type endsOf struct {
	tier string
	*ends
	values []int64
}

// quiet is how often the counts are read again because a request has started
// meanwhile. Reading takes a microsecond or two, so that at 100,000 requests a
// second nearly every scrape has a moment in which none does; without one, those
// that both started and ended meanwhile count as in flight.
const quiet = 8

// read returns all counts at one moment: ended by tier, and started.
func (f *flow) read() (ended []endsOf, started int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fold()
	for name, t := range f.tiers {
		ended = append(ended, endsOf{name, t.ends, make([]int64, len(t.ends.n))})
	}
	for _, g := range f.gone {
		ended = append(ended, endsOf{removedTier, g.ends, make([]int64, len(g.n))})
	}
	if f.removed != nil {
		ended = append(ended, endsOf{removedTier, f.removed, make([]int64, len(f.removed.n))})
	}
	for range quiet {
		before := f.started.n.Load()
		for _, e := range ended {
			for i := range e.n {
				e.values[i] = e.n[i].Load()
			}
		}
		if started = f.started.n.Load(); started == before {
			break
		}
	}
	return ended, started
}

// fold adds up the tiers that are gone and that nobody has any more.
func (f *flow) fold() {
	f.gone = slices.DeleteFunc(f.gone, func(g goneTier) bool {
		last := g.tier.Value() == nil // asked first: who has it may count until then
		if last && f.removed == nil {
			f.removed = g.ends
		} else if last {
			for i := range g.n { // by the same dialects and outcomes: all tiers have them
				f.removed.n[i].Add(g.n[i].Load())
			}
		}
		return last
	})
}

// oldestAge returns the age of the oldest request in flight.
func (f *flow) oldestAge() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.oldest == nil {
		return 0
	}
	return f.oldest()
}

// ObserveOldest makes each scrape ask for the age of the oldest request in flight, 0
// while none is.
func (m *Metrics) ObserveOldest(age func() time.Duration) {
	m.flow.mu.Lock()
	defer m.flow.mu.Unlock()
	m.flow.oldest = age
}

// Describe is part of prometheus.Collector.
func (f *flow) Describe(ch chan<- *prometheus.Desc) { describe(ch, f.descs) }

// Collect is part of prometheus.Collector.
func (f *flow) Collect(ch chan<- prometheus.Metric) {
	ended, started := f.read()
	inflight := started
	sums := map[[3]string]int64{} // several are of removed tiers, and one may have that name
	for _, e := range ended {
		for i, n := range e.values {
			sums[[3]string{e.tier, e.dialects[i/len(e.outcomes)], e.outcomes[i%len(e.outcomes)]}] += n
			inflight -= n
		}
	}
	for labels, n := range sums {
		send(ch, f.descs[len(flowSeries):], endedSeries, labels[:], float64(n))
	}
	send(ch, f.descs, flowSeries, nil, float64(started), float64(inflight), f.oldestAge().Seconds())
}
