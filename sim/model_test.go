package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"tierway/routing"
)

// TestFiguresAgreeWithTheReference has the engines and chats of the project's reference. Under
// policies that both have, the figures agree within the difference of two seeds, which grows
// with the load. (Over thirty seeds, all hit rates are within 0.022 of the reference's.)
func TestFiguresAgreeWithTheReference(t *testing.T) {
	const seeds = 2
	var b table
	b.row("policy", "chats/s", "ttft mean", "reference", "ttft p99", "reference", "hits", "reference")
	for _, want := range []struct {
		policy          routing.Config
		rate            float64
		mean, p99, hits float64 // of the reference; the first two in seconds
		within          float64 // largest factor between the measured mean and the model
	}{
		{routing.Config{Name: "round_robin"}, 3, 0.855, 4.4, 0.45, 1.3},
		{routing.Config{Name: "chwbl", Depth: "fixed"}, 3, 0.22, 1.69, 0.83, 1.3},
		{routing.Config{Name: "chwbl", Depth: "fixed"}, 5, 0.376, 2.98, 0.82, 2},
	} {
		var all []*Record
		for seed := range uint64(seeds) {
			r := play(t, Config{
				Seed: seed + 1, Engines: make([]Engine, 8), Policy: want.policy, Admission: Direct,
				Loads: []Load{Sessions{Rate: want.rate, Until: 5 * time.Minute}},
			})
			all = append(all, r.Records...)
		}
		s := (&Result{Records: all}).Stats(func(r *Record) bool {
			return r.SubmittedAt >= time.Minute && r.Done < 10*time.Minute
		})
		mean, p99 := s.TTFT.Mean().Seconds(), s.TTFT.Quantile(0.99).Seconds()
		b.row(want.policy.Name, fmt.Sprint(want.rate), mean, want.mean, p99, want.p99, s.Hits(), want.hits)
		if off := mean / want.mean; off > want.within || off < 1/want.within || math.Abs(s.Hits()-want.hits) > 0.06 {
			t.Errorf("%s at %v chats/s: mean %.3f s, hits %.3f; want %.3f s and %.2f", want.policy.Name, want.rate, mean,
				s.Hits(), want.mean, want.hits)
		}
	}
	b.log(t, "eight engines without any bound")
}
