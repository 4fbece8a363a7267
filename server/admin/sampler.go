package admin

import (
	"context"
	"fmt"
	"os"
	"runtime/metrics"
	"slices"
	"sync"
	"time"

	"tierway/breaker"
	"tierway/server/control"
	"tierway/telemetry"
	"tierway/tenants"
)

const sampleEvery = time.Second

// sampler samples the gateway once per second, for the history and for the rates of the overview.
type sampler struct {
	*gateway
	history *telemetry.History
	// Of the goroutine of Run.
	seen  map[*telemetry.Worker][]uint64 // tokens and times to first token of each worker, at the last sample
	next  map[*telemetry.Worker][]uint64 // those of the present sample
	grown map[string][]uint64            // their growth since the start, by tier

	mu      sync.Mutex // guards the rest; no request of the data plane takes it
	traffic traffic
	meter   processorMeter
}

// Run samples the gateway until ctx ends.
func (a *Plane) Run(ctx context.Context) {
	a.control.Recoverer.Every(sampleEvery, ctx.Done(), "sampling the gateway", a.sampler.sample)
}

// sample samples the gateway once. It takes locks of the request path, each for a few microseconds: those of pools, and
// of the statistics and breakers of workers.
func (a *sampler) sample(now time.Time) {
	var all []telemetry.Sample
	a.next = map[*telemetry.Worker][]uint64{}
	recent := trafficSample{at: now, tiers: map[string]tierCounts{}}
	for _, p := range a.control.Snapshot().Pools {
		results := p.Series.Results()
		all = append(all, resultSamples(p.Name, results)...)
		all = append(all, queueSamples(p, now)...)
		all = append(all, a.workerSamples(p, now)...)
		all = append(all, lmcacheSamples(p)...)
		counts := tierCounts{results: results}
		if total := a.grown[p.Name]; total != nil { // else it has no workers
			counts.ttft = slices.Clone(total[tokenKinds:])
			all = append(all, tokenSamples(p.Name, total[:tokenKinds])...)
			all = append(all, quantiles("ttft", telemetry.TTFTSeconds(), counts.ttft, []string{"tier", p.Name},
				0.5, 0.95, 0.99)...)
		}
		recent.tiers[p.Name] = counts
	}
	a.seen = a.next // without the workers that were removed
	without := a.options.Counts.ResultsWithoutTier()
	recent.tiers[""] = tierCounts{results: without}
	all = append(all, resultSamples("none", without)...)
	all = append(all, a.answerSamples()...)
	all = append(all, a.hookSamples()...)
	all = append(all, a.processSamples(recent)...)
	a.history.Record(now, all)
}

// processSamples returns the values that belong to no tier. It also keeps the counts of the overview.
func (a *sampler) processSamples(recent trafficSample) []telemetry.Sample {
	var out []telemetry.Sample
	for tenant, n := range a.options.Counts.TenantRefusals() {
		out = append(out, telemetry.Sample{Name: "limited", Unit: "1/s", Labels: []string{"tenant", tenant},
			Value: float64(n)})
	}
	bounds, buckets := a.options.Counts.OverheadCounts()
	out = append(out, quantiles("overhead", bounds, buckets, nil, 0.5, 0.99)...)
	a.mu.Lock()
	a.traffic.add(recent)
	cores := a.meter.sample(recent.at)
	a.mu.Unlock()
	if cores != nil {
		out = append(out, telemetry.Sample{Name: "cpu", Unit: "cores", Kind: telemetry.SampleMaximum, Value: *cores})
	}
	return append(out, telemetry.Sample{Name: "memory", Unit: "bytes", Kind: telemetry.SampleLast,
		Value: float64(residentMemory())})
}

// addRecent adds what the last samples show to an overview.
func (a *sampler) addRecent(v *OverviewView) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v.CPU, v.Checklist.Requests = a.meter.cores, a.traffic.succeeded
	v.Rate.Requests, v.Rate.Errors, v.Rate.Refused = a.traffic.rates(func(string) bool { return true })
	for i := range v.Tiers {
		t := &v.Tiers[i]
		t.Requests, t.Errors, t.Refused = a.traffic.rates(func(tier string) bool { return tier == t.Name })
		t.TTFT50, t.TTFT95 = a.traffic.ttftOf(t.Name)
	}
}

// outcomes returns the ended requests of the last minute by tier.
func (a *sampler) outcomes() map[string]outcomeCounts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.traffic.outcomes()
}

func resultSamples(tier string, results []int64) []telemetry.Sample {
	var out []telemetry.Sample
	for i, n := range results {
		out = append(out, telemetry.Sample{Name: "requests", Unit: "1/s",
			Labels: []string{"tier", tier, "result", control.Outcomes[i]}, Value: float64(n)})
	}
	return out
}

func tokenSamples(tier string, tokens []uint64) []telemetry.Sample {
	var out []telemetry.Sample
	for i, kind := range [tokenKinds]string{"prompt", "cached", "output"} {
		out = append(out, telemetry.Sample{Name: "tokens", Unit: "1/s", Labels: []string{"tier", tier, "kind", kind},
			Value: float64(tokens[i])})
	}
	return out
}

// quantiles returns one sample for each quantile of observations in seconds. Their unit becomes milliseconds.
func quantiles(name string, bounds []float64, buckets []uint64, labels []string, qs ...float64) []telemetry.Sample {
	inMillis := make([]float64, len(bounds))
	for i, b := range bounds {
		inMillis[i] = 1000 * b
	}
	out := make([]telemetry.Sample, len(qs))
	for i, q := range qs {
		suffix := map[float64]string{0.5: "_p50", 0.95: "_p95", 0.99: "_p99"}[q]
		out[i] = telemetry.Sample{Name: name + suffix, Unit: "ms", Labels: labels, Kind: telemetry.SampleQuantile, Value: q,
			Bounds: inMillis, Buckets: buckets}
	}
	return out
}

// tokenKinds is the number of kinds of tokens. In the counts of a worker they precede the times to first token.
const tokenKinds = 3

// workerSamples returns the values of a pool's workers, and adds their counts to those of the pool.
func (a *sampler) workerSamples(p *control.Pool, now time.Time) []telemetry.Sample {
	var out []telemetry.Sample
	for _, w := range p.LiveWorkers(now) {
		stats := w.Stats.View(now)
		counts := append([]uint64{uint64(stats.Prompt), uint64(stats.Cached), uint64(stats.Output)}, w.Series.TTFTCounts()...)
		a.addGrowth(p.Name, w.Series, counts)
		labels := []string{"tier", p.Name, "worker", w.ID}
		out = append(out,
			telemetry.Sample{Name: "worker_inflight", Unit: "requests", Labels: labels, Kind: telemetry.SampleMaximum,
				Value: float64(w.Inflight)},
			telemetry.Sample{Name: "prefix_hit", Unit: "share", Labels: labels, Kind: telemetry.SampleShare,
				Value: float64(stats.Cached), Whole: float64(stats.Prompt)},
			telemetry.Sample{Name: "breaker", Labels: labels, Kind: telemetry.SampleMaximum,
				Value: breakerNumber(w.Breaker.State)})
	}
	return out
}

// addGrowth adds the growth of a worker's counts to the counts of its tier. A tier's counts therefore never fall when a
// worker is removed.
func (a *sampler) addGrowth(tier string, w *telemetry.Worker, counts []uint64) {
	if a.grown == nil {
		a.grown = map[string][]uint64{}
	}
	if a.grown[tier] == nil {
		a.grown[tier] = make([]uint64, len(counts))
	}
	for i, n := range counterGrowth(counts, a.seen[w]) {
		a.grown[tier][i] += n
	}
	a.next[w] = counts
}

// queueSamples returns the numbers and ages of a pool's waiting requests, by class.
func queueSamples(p *control.Pool, now time.Time) []telemetry.Sample {
	var out []telemetry.Sample
	var classes map[string]classState
	if p.WaitQueue.Waiting() > 0 {
		classes = queueState(p, now).Classes
	}
	for _, class := range tenants.Classes() {
		labels := []string{"tier", p.Name, "class", class}
		c := classes[class]
		out = append(out,
			telemetry.Sample{Name: "queue_waiting", Unit: "requests", Labels: labels, Kind: telemetry.SampleMaximum,
				Value: float64(c.Depth)},
			telemetry.Sample{Name: "queue_oldest", Unit: "s", Labels: labels, Kind: telemetry.SampleMaximum,
				Value: c.Oldest / 1000})
	}
	return out
}

func breakerNumber(s breaker.State) float64 {
	switch s.String() {
	case "open":
		return 2
	case "half_open":
		return 1
	}
	return 0
}

// processorMeter measures the processor cores that the process uses. It needs external locking; the zero
// processorMeter has no measurement.
type processorMeter struct {
	at    time.Time
	used  time.Duration
	cores *float64 // of the last interval; nil: unknown
}

// sample ends an interval at now and returns the number of cores that it used on average; nil if it is the first
// one, or if the system does not report the processor time.
func (m *processorMeter) sample(now time.Time) *float64 {
	used := processorTime()
	m.cores = nil
	if m.used > 0 {
		m.cores = new((used - m.used).Seconds() / now.Sub(m.at).Seconds())
	}
	m.at, m.used = now, used
	return m.cores
}

// residentMemory returns the resident memory of the process in bytes. Where /proc does not have it, it
// returns the memory that the Go runtime has in use.
func residentMemory() int64 {
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		var size, resident int64 // in pages
		if _, err := fmt.Sscan(string(text), &size, &resident); err == nil {
			return resident * int64(os.Getpagesize())
		}
	}
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}
