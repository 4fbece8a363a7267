package sim

import (
	"fmt"
	"math"
	"testing"

	"tierway/fixedseed"
	"tierway/routing"
)

// TestFiguresAgreeWithTheReference runs cells of the project's reference figures, which are those of another
// program with other seeds. The figures agree within the difference between seeds, which grows with the
// load.
func TestFiguresAgreeWithTheReference(t *testing.T) {
	seeds := uint64(fixedseed.Samples(1, 2))
	var b table
	b.row("policy", "cell", "ttft mean", "reference", "ttft p99", "reference", "hits", "reference")
	for _, want := range []struct {
		policy          string
		mode            string
		rate            float64
		mean, p99, hits float64 // of the reference; the first two in seconds; 0: it has none
		within          float64 // largest factor between the measured mean and the reference
	}{
		{"round_robin", "base", 3, 0.855, 4.4, 0.45, 1.3},
		{"chwbl", "base", 3, 0.22, 1.69, 0.83, 1.3},
		{"chwbl", "base", 5, 0.376, 2.98, 0.82, 2},
		{"least_inflight", "base", 5, 4.16, 16.3, 0, 1.4},
		{"kubeai_chwbl", "base", 5, 0.593, 4.62, 0.78, 1.4},
		{"llm_d", "base", 5, 0.263, 2.15, 0.85, 1.3},
		{"lmetric", "base", 5, 0.213, 2.13, 0.81, 1.3},
		{"e", "base", 5, 0.179, 1.64, 0, 1.3},
		{"e", "hetero", 5, 0.278, 2.4, 0, 1.3},
		{"loadaware", "hot", 4, 0.256, 1.93, 0, 1.3},
		{"dynamo", "agentic", 0.45, 0.247, 1.58, 0, 1.3},
		{"least_inflight", "nosharing", 25, 1.29, 5.28, 0, 1.3},
		{"llm_d", "mixed", 12, 0.43, 2.66, 0, 1.3},
		{"lmetric", "burst", 3, 0.189, 1.74, 0, 1.3},
	} {
		c := Config{Engines: make([]Engine, 8), Policy: routing.Config{Name: want.policy}, Admission: Direct}
		if want.policy == "chwbl" {
			c.Policy.Depth = "fixed"
		}
		for _, p := range Peers() {
			if p.Name == want.policy {
				c.NewPolicy = p.New
			}
		}
		mean, p99, hits := runMode(t, c, want.mode, want.rate, seeds)
		b.row(want.policy, fmt.Sprint(want.mode, " ", want.rate), mean, want.mean, p99,
			want.p99, hits, want.hits)
		if off := mean / want.mean; off > want.within || off < 1/want.within ||
			want.hits > 0 && math.Abs(hits-want.hits) > 0.06 {
			t.Errorf("%s at %s %v: mean %.3f s, hits %.3f; want %.3f s and %.2f", want.policy, want.mode, want.rate, mean,
				hits, want.mean, want.hits)
		}
	}
	b.log(t, "eight engines without any bound")
}

// runMode returns means over the seeds, in seconds.
func runMode(t *testing.T, c Config, mode string, rate float64, seeds uint64) (mean, p99, hits float64) {
	t.Helper()
	for _, m := range Modes() {
		if m.Name != mode {
			continue
		}
		for seed := range seeds {
			c.Seed = seed + 1
			f, err := m.Run(c, rate)
			if err != nil {
				t.Fatal(err)
			}
			n := float64(seeds)
			mean, p99, hits = mean+f.TTFT.Mean().Seconds()/n, p99+f.TTFT.Quantile(0.99).Seconds()/n, hits+f.Hits/n
		}
	}
	return mean, p99, hits
}

// TestModesHaveTheReferencesCells: seven modes with 29 cells, each of which has requests.
func TestModesHaveTheReferencesCells(t *testing.T) {
	cells := 0
	for _, m := range Modes() {
		cells += len(m.Rates)
		f, err := m.Run(Config{Seed: 1, Engines: make([]Engine, 8), Policy: leastLoad(), Admission: Direct}, m.Rates[0])
		if err != nil || f.Requests < 500 || f.Unfinished > 0 || f.TTFT.Mean() <= 0 || f.E2E.Mean() < f.TTFT.Mean() {
			t.Errorf("%s at %v: %d requests, %d unfinished, ttft %s, %v", m.Name, m.Rates[0], f.Requests, f.Unfinished,
				f.TTFT.Mean(), err)
		}
	}
	if cells != 29 {
		t.Errorf("the modes have %d cells, want 29", cells)
	}
}
