package admin

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tierway/breaker"
	"tierway/server/control"
	"tierway/telemetry"
	"tierway/tenants"
)

// sampleEvery is the interval of the history's samples.
const sampleEvery = time.Second

// MetricsView is a part of the history.
type MetricsView struct {
	Step   int64          `json:"step_s" doc:"Seconds between two times."`
	Times  []int64        `json:"t" nullable:"false" doc:"Unix times of the beginning of each step."`
	Series []MetricSeries `json:"series" nullable:"false"`
	// Omitted is above 0 in fleets of more workers than the history has room for.
	Omitted int `json:"omitted" doc:"Number of series that the history has no room for."`
}

// MetricSeries is one series of the history.
type MetricSeries struct {
	Name   string            `json:"name" doc:"requests, tokens, limited: per second. ttft_p50, ttft_p95, ttft_p99, overhead_p50, overhead_p99: milliseconds. queue_waiting, worker_inflight: largest number in the step. queue_oldest: seconds. prefix_hit: share of prompt tokens. breaker: 0 closed, 1 half open, 2 open. cpu: cores. memory: bytes."`
	Labels map[string]string `json:"labels" nullable:"false"`
	Unit   string            `json:"unit"`
	Values points            `json:"values" doc:"Values by step; null: no value."`
}

// points are values of which NaN is written as null.
type points []float32

// MarshalJSON implements json.Marshaler.
func (p points) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, 6*len(p)), '[')
	for i, v := range p {
		if i > 0 {
			b = append(b, ',')
		}
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			b = append(b, "null"...)
			continue
		}
		text, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		b = append(b, text...)
	}
	return append(b, ']'), nil
}

// Schema implements huma.SchemaProvider.
func (points) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeNumber, Nullable: true}}
}

// metricsAPI samples the gateway once per second and shows the history.
type metricsAPI struct {
	*gateway
	history *telemetry.History
	meter   processorMeter                 // of the goroutine of Run, like the fields below
	seen    map[*telemetry.Worker][]uint64 // tokens and times to first token of each worker, at the last sample
	next    map[*telemetry.Worker][]uint64 // those of the present sample
	grown   map[string][]uint64            // their growth since the start, by tier
}

func (a *metricsAPI) getMetrics(_ context.Context, in *struct {
	Names []string `query:"name" maxItems:"50" doc:"Names of the series, separated by commas. Absent: all."`
	Range string   `query:"range" enum:"5m,1h,24h" default:"5m" doc:"5m has steps of 5 s, 1h of 10 s, 24h of 120 s."`
}) (*reply[MetricsView], error) {
	length := map[string]time.Duration{"5m": 5 * time.Minute, "1h": time.Hour, "24h": 24 * time.Hour}[in.Range]
	h := a.history.View(length)
	v := MetricsView{Step: h.Step, Times: append([]int64{}, h.Times...), Series: []MetricSeries{}, Omitted: h.Omitted}
	for _, s := range h.Series {
		if len(in.Names) > 0 && !slices.Contains(in.Names, s.Name) {
			continue
		}
		labels := map[string]string{}
		for i := 0; i+1 < len(s.Labels); i += 2 {
			labels[s.Labels[i]] = s.Labels[i+1]
		}
		v.Series = append(v.Series, MetricSeries{Name: s.Name, Unit: s.Unit, Labels: labels, Values: s.Values})
	}
	return &reply[MetricsView]{Body: v}, nil
}

// Run samples the gateway for the history until ctx ends.
func (a *Plane) Run(ctx context.Context) {
	m := a.metrics
	a.control.Recoverer.Every(sampleEvery, ctx.Done(), "sampling the history", func(now time.Time) {
		m.history.Record(now, m.samples(now))
	})
}

// samples returns the values of now. Of locks of the request path, each is taken for a few microseconds: that of
// each pool, and that of the statistics and the breaker of each worker, as GET /admin/workers does, and that of the
// counters of tenants.
func (a *metricsAPI) samples(now time.Time) []telemetry.Sample {
	var all []telemetry.Sample
	a.next = map[*telemetry.Worker][]uint64{}
	for _, p := range a.control.Snapshot().Pools {
		all = append(all, a.poolSamples(p, now)...)
	}
	a.seen = a.next // without the workers that were removed
	for i, n := range a.options.Counts.ResultsWithoutTier() {
		all = append(all, telemetry.Sample{Name: "requests", Unit: "1/s",
			Labels: []string{"tier", "none", "result", control.Outcomes[i]}, Value: float64(n)})
	}
	for tenant, n := range a.options.Counts.TenantRefusals() {
		all = append(all, telemetry.Sample{Name: "limited", Unit: "1/s", Labels: []string{"tenant", tenant},
			Value: float64(n)})
	}
	bounds, buckets := a.options.Counts.OverheadCounts()
	all = append(all, quantiles("overhead", bounds, buckets, nil, 0.5, 0.99)...)
	if cores := a.meter.sample(now); cores != nil {
		all = append(all, telemetry.Sample{Name: "cpu", Unit: "cores", Kind: telemetry.SampleMaximum, Value: *cores})
	}
	return append(all, telemetry.Sample{Name: "memory", Unit: "bytes", Kind: telemetry.SampleLast,
		Value: float64(residentMemory())})
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

// poolSamples returns the values of a tier or pool and of its workers.
func (a *metricsAPI) poolSamples(p *control.Pool, now time.Time) []telemetry.Sample {
	tier := []string{"tier", p.Name}
	var out []telemetry.Sample
	for i, n := range p.Series.Results() {
		out = append(out, telemetry.Sample{Name: "requests", Unit: "1/s", Labels: withLabel(tier, "result", control.Outcomes[i]),
			Value: float64(n)})
	}
	out = append(out, queueSamples(p, now)...)
	for _, w := range p.LiveWorkers(now) {
		stats := w.Stats.View(now)
		counts := append([]uint64{uint64(stats.Prompt), uint64(stats.Cached), uint64(stats.Output)}, w.Series.TTFTCounts()...)
		a.addGrowth(p.Name, w.Series, counts)
		out = append(out, workerSamples(&w, stats, withLabel(tier, "worker", w.ID))...)
	}
	total := a.grown[p.Name]
	if total == nil {
		return out // a tier without workers
	}
	for i, kind := range [tokenKinds]string{"prompt", "cached", "output"} {
		out = append(out, telemetry.Sample{Name: "tokens", Unit: "1/s", Labels: withLabel(tier, "kind", kind),
			Value: float64(total[i])})
	}
	ttft := slices.Clone(total[tokenKinds:])
	return append(out, quantiles("ttft", telemetry.TTFTSeconds(), ttft, tier, 0.5, 0.95, 0.99)...)
}

// addGrowth adds by how much the counts of a worker have grown to those of its tier. A tier's counts therefore never
// fall when a worker is removed.
func (a *metricsAPI) addGrowth(tier string, w *telemetry.Worker, counts []uint64) {
	if a.grown == nil {
		a.grown = map[string][]uint64{}
	}
	if a.grown[tier] == nil {
		a.grown[tier] = make([]uint64, len(counts))
	}
	before := a.seen[w]
	for i, n := range counts {
		if i < len(before) && before[i] <= n { // else the count has begun again at 0
			n -= before[i]
		}
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

func workerSamples(w *control.LiveWorker, stats control.StatsView, labels []string) []telemetry.Sample {
	return []telemetry.Sample{
		{Name: "worker_inflight", Unit: "requests", Labels: labels, Kind: telemetry.SampleMaximum,
			Value: float64(w.Inflight)},
		{Name: "prefix_hit", Unit: "share", Labels: labels, Kind: telemetry.SampleShare, Value: float64(stats.Cached),
			Whole: float64(stats.Prompt)},
		{Name: "breaker", Labels: labels, Kind: telemetry.SampleMaximum, Value: breakerNumber(w.Breaker.State)},
	}
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

// withLabel returns labels with one more.
func withLabel(labels []string, name, value string) []string {
	return append(slices.Clone(labels), name, value)
}
