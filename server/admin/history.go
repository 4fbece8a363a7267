package admin

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

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
	Name   string            `json:"name" doc:"requests, tokens, limited, response_cache, hook_calls, lmcache_lookups: per second. ttft_p50, ttft_p95, ttft_p99, hook_p50, hook_p95, overhead_p50, overhead_p99: milliseconds. queue_waiting, worker_inflight: largest number in the step. queue_oldest: seconds. prefix_hit: share of prompt tokens. breaker: 0 closed, 1 half open, 2 open. cpu: cores. memory: bytes."`
	Labels map[string]string `json:"labels" nullable:"false"`
	Unit   string            `json:"unit"`
	Values points            `json:"values" doc:"Values by step; null: no value."`
}

// points are values of which NaN is written as null.
type points []float32

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

func (points) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeNumber, Nullable: true}}
}

type metricsAPI struct{ sampler *sampler }

func (a *metricsAPI) getMetrics(_ context.Context, in *struct {
	Names []string `query:"name" maxItems:"50" doc:"Names of the series, separated by commas. Absent: all."`
	Range string   `query:"range" enum:"5m,1h,24h" default:"5m" doc:"5m has steps of 5 s, 1h of 10 s, 24h of 120 s."`
}) (*reply[MetricsView], error) {
	length := map[string]time.Duration{"5m": 5 * time.Minute, "1h": time.Hour, "24h": 24 * time.Hour}[in.Range]
	h := a.sampler.history.View(length)
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
