package sim

import (
	"testing"
	"time"
)

// TestLearnedLimitKeepsInteractiveWaitsShort: engines without a configured limit get a learned
// one. Without it, all requests of five hundred batch clients would be in the engines. With it, an
// interactive request does not wait long, and the total throughput is no lower. The table also has the
// figures of a suitable max_inflight.
func TestLearnedLimitKeepsInteractiveWaitsShort(t *testing.T) {
	const calm, settled, end = 30 * time.Second, 100 * time.Second, 300 * time.Second
	var b table
	b.row("engine runs", "max_inflight", "", "ttft p50", "ttft p99", "tokens/s")
	for _, seqs := range []int{0, 32} {
		var direct [2]float64 // p99 in seconds, tokens/s
		for _, c := range []struct {
			admission Admission
			bound     int
			name      string
		}{{Direct, 0, "none"}, {Queued, 0, "learned"}, {Queued, 64, "64"}} {
			r := play(t, Config{
				Seed: 8, Engines: identical(2, Engine{MaxSeqs: seqs, MaxInflight: c.bound}), Policy: leastLoad(),
				Admission: c.admission, Queue: patient(), Until: end,
				Loads: []Load{
					Poisson{Rate: 2, Until: calm, Make: always(plain("calm", 2))},
					Closed{From: calm, Until: end, Clients: 500, Make: always(plain("batch", 2))},
					Poisson{Rate: 0.6, From: calm, Until: end - calm, Make: always(plain("interactive", 0))},
				},
			})
			tokens := 0.0
			for _, rec := range r.Records {
				tokens += part(rec, settled, end) * float64(rec.Tokens()) / (end - settled).Seconds()
			}
			s := r.Stats(ofKind("interactive", settled, end))
			p99 := s.TTFT.Quantile(0.99).Seconds()
			most := any(seqs)
			if seqs == 0 {
				most = "all"
			}
			b.row(most, c.name, c.admission, s.TTFT.Quantile(0.5), s.TTFT.Quantile(0.99), tokens)
			switch c.name {
			case "none":
				direct = [2]float64{p99, tokens}
			case "learned":
				if p99 > direct[0]/3 || tokens < 0.9*direct[1] {
					t.Errorf("an engine that runs %v at once: the first token after %.1f s (p99) and %.0f tokens/s, without a queue "+
						"%.1f s and %.0f", most, p99, tokens, direct[0], direct[1])
				}
			}
		}
	}
	b.log(t, "two engines, 500 batch clients, interactive requests from time to time")
}
