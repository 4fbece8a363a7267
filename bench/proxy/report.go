package main

import (
	"fmt"
	"slices"
	"strings"
)

// setup describes the conditions of a measurement.
type setup struct {
	Cores       int     `json:"cores"`
	Connections int     `json:"connections"`
	Rounds      int     `json:"rounds"`
	Seconds     float64 `json:"seconds"`
	Rate        float64 `json:"rate"`
	Nginx       string  `json:"nginx"`
	Tierway     string  `json:"tierway"`
}

// spread is the median of the rounds and their extremes.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// throughput holds the complete answers per second for one request shape.
type throughput struct {
	Shape        string `json:"shape"`
	Direct       spread `json:"direct_per_second"`
	Nginx        spread `json:"nginx_per_second"`
	Tierway      spread `json:"tierway_per_second"`
	NginxShare   spread `json:"nginx_share_of_direct"`
	TierwayShare spread `json:"tierway_share_of_direct"`
	// Ratio is the gateway's requests per second divided by nginx's in the same round.
	Ratio spread  `json:"tierway_by_nginx"`
	Floor float64 `json:"floor"`
}

// latency holds the median latency that each proxy adds to the worker's own, in microseconds.
type latency struct {
	Direct       spread `json:"direct_p50_us"`
	NginxAdded   spread `json:"nginx_added_p50_us"`
	TierwayAdded spread `json:"tierway_added_p50_us"`
	// Ratio is the gateway's added latency divided by nginx's in the same round.
	Ratio   spread  `json:"tierway_added_by_nginx_added"`
	Ceiling float64 `json:"ceiling"`
}

// report is the report of a default run.
type report struct {
	setup
	Throughput []throughput `json:"throughput"`
	Latency    latency      `json:"latency"`
}

// addedCeiling is the budget's minimum requirement for the added latency, as a multiple of
// nginx's.
const addedCeiling = 3

func throughputOf(s shape, rounds [][]result) throughput {
	perSec := func(i int) func([]result) float64 { return func(r []result) float64 { return r[i].PerSec } }
	by := func(a, b int) func([]result) float64 {
		return func(r []result) float64 { return r[a].PerSec / r[b].PerSec }
	}
	return throughput{
		Shape: s.name, Floor: s.floor,
		Direct:       spreadOf(rounds, perSec(direct)),
		Nginx:        spreadOf(rounds, perSec(nginx)),
		Tierway:      spreadOf(rounds, perSec(tierway)),
		NginxShare:   spreadOf(rounds, by(nginx, direct)),
		TierwayShare: spreadOf(rounds, by(tierway, direct)),
		Ratio:        spreadOf(rounds, by(tierway, nginx)),
	}
}

func latencyOf(rounds [][]result) latency {
	added := func(i int) func([]result) float64 {
		return func(r []result) float64 { return r[i].P50 - r[direct].P50 }
	}
	return latency{
		Direct:       spreadOf(rounds, func(r []result) float64 { return r[direct].P50 }),
		NginxAdded:   spreadOf(rounds, added(nginx)),
		TierwayAdded: spreadOf(rounds, added(tierway)),
		// This harness cannot measure differences below a microsecond.
		Ratio:   spreadOf(rounds, func(r []result) float64 { return added(tierway)(r) / max(added(nginx)(r), 1) }),
		Ceiling: addedCeiling,
	}
}

func spreadOf[R any](rounds []R, value func(R) float64) spread {
	values := make([]float64, 0, len(rounds))
	for _, r := range rounds {
		values = append(values, value(r))
	}
	slices.Sort(values)
	n := len(values)
	return spread{Median: (values[(n-1)/2] + values[n/2]) / 2, Min: values[0], Max: values[n-1]}
}

// String returns the report as a table.
func (r report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s beside %s: %d cores, %d connections, median of %d rounds of %g s in turns\n\n",
		r.Tierway, r.Nginx, r.Cores, r.Connections, r.Rounds, r.Seconds)
	fmt.Fprintf(&b, "%-8s %10s %18s %18s   %-26s %s\n", "requests", "direct/s", "nginx/s (share)", "tierway/s (share)",
		"tierway ÷ nginx (min–max)", "floor")
	for _, t := range r.Throughput {
		fmt.Fprintf(&b, "%-8s %10.0f %11.0f (%.2f) %11.0f (%.2f)   %-26s %.2f %s\n", t.Shape, t.Direct.Median,
			t.Nginx.Median, t.NginxShare.Median, t.Tierway.Median, t.TierwayShare.Median,
			ratio(t.Ratio), t.Floor, verdict(t.Ratio.Median >= t.Floor))
	}
	l := r.Latency
	fmt.Fprintf(&b, "\np50 of 400 B requests at %g/s: direct %.0f µs, nginx adds %.0f µs (%.0f–%.0f), tierway adds "+
		"%.0f µs (%.0f–%.0f)\n", r.Rate,
		l.Direct.Median, l.NginxAdded.Median, l.NginxAdded.Min, l.NginxAdded.Max,
		l.TierwayAdded.Median, l.TierwayAdded.Min, l.TierwayAdded.Max)
	fmt.Fprintf(&b, "added by tierway ÷ added by nginx (min–max): %s, at most %.2f %s\n", ratio(l.Ratio), l.Ceiling,
		verdict(l.Ratio.Median <= l.Ceiling))
	b.WriteString("every answer was read to its end and whole\n")
	return b.String()
}

func ratio(s spread) string { return fmt.Sprintf("%.2f (%.2f–%.2f)", s.Median, s.Min, s.Max) }

func verdict(met bool) string {
	if met {
		return "met"
	}
	return "MISSED"
}
