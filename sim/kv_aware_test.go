package sim

import (
	"fmt"
	"testing"

	"tierway/fixedseed"
	"tierway/routing"
)

// kvAwareCells are loads with long and short queues, unequal engines, prompts without common prefixes, and
// chunked prefill. The gate simulates the first ones only.
var kvAwareCells = []struct {
	mode  string
	rate  float64 // arrivals per second
	chunk int64   // tokens of a step; 0: whole prefill
}{{"base", 7, 0}, {"nosharing", 20, 0}, {"mixed", 12, 2048}, {"agentic", 0.45, 0}, {"hetero", 5, 0},
	{"base", 7, 2048}}[:fixedseed.Samples(3, 6)]

func kvAwareConfig(policy string, events bool, chunk int64) Config {
	c := Config{Engines: make([]Engine, 8), Policy: routing.Config{Name: policy}, Events: events, Admission: Direct}
	for i := range c.Engines {
		c.Engines[i].Chunk = chunk
	}
	for _, p := range Peers() {
		if p.Name == policy {
			c.NewPolicy = p.New
		}
	}
	return c
}

// kvAwareMeans has the results of kvAwareMean by cell.
var kvAwareMeans = map[int]float64{}

// kvAwareMean returns the mean time to first token of kv_aware without events in a cell of kvAwareCells. Each
// cell is simulated once.
func kvAwareMean(t *testing.T, cell int) float64 {
	t.Helper()
	if _, known := kvAwareMeans[cell]; !known {
		c := kvAwareCells[cell]
		kvAwareMeans[cell], _, _ = runMode(t, kvAwareConfig("kv_aware", false, c.chunk), c.mode, c.rate, 1)
	}
	return kvAwareMeans[cell]
}

// TestKVAwareIsNearThePerfectPolicy: with events and without them, the mean time to first token is below those
// of the gateway's other policies, and at most 10 % above that of perfect.
func TestKVAwareIsNearThePerfectPolicy(t *testing.T) {
	var b table
	b.row("load", "kv_aware+events", "kv_aware", "perfect", "chwbl", "least_load")
	for i, c := range kvAwareCells {
		mean := func(policy string, events bool) float64 {
			m, _, _ := runMode(t, kvAwareConfig(policy, events, c.chunk), c.mode, c.rate, 1)
			return m
		}
		exact, history, perfect := mean("kv_aware", true), kvAwareMean(t, i), mean("perfect", false)
		chwbl, leastLoad := mean("chwbl", false), mean("least_load", false)
		name := fmt.Sprintf("%s %v, chunks of %d", c.mode, c.rate, c.chunk)
		b.row(name, exact, history, perfect, chwbl, leastLoad)
		for _, m := range []float64{exact, history} {
			if m > 1.1*perfect || m >= chwbl || m >= leastLoad {
				t.Errorf("%s: the mean is %.3f s, that of perfect %.3f s, chwbl %.3f s, least_load %.3f s", name, m, perfect,
					chwbl, leastLoad)
			}
		}
	}
	b.log(t, "mean times to first token, in seconds")
}

// TestKVAwareNeedsNoStreamsAndNoReports: the mean time to first token grows by at most a third if half of the
// answers are not streamed, if engines do not report cached tokens, or both.
func TestKVAwareNeedsNoStreamsAndNoReports(t *testing.T) {
	for i, c := range kvAwareCells {
		baseline := kvAwareMean(t, i)
		for _, hidden := range []struct {
			name        string
			notStreamed float64
			unreported  bool
		}{{"both", 0.5, true}, {"half of the answers not streamed", 0.5, false}, {"cached tokens not reported", 0, true}} {
			if c.mode != "base" && hidden.name != "both" {
				break // one at a time with short and with long steps
			}
			w := kvAwareConfig("kv_aware", false, c.chunk)
			w.UnstreamedShare, w.HideCachedTokens = hidden.notStreamed, hidden.unreported
			if mean, _, _ := runMode(t, w, c.mode, c.rate, 1); mean > 4.0/3*baseline {
				t.Errorf("%s %v, chunks of %d, %s: the mean is %.3f s, with streams and reports %.3f s", c.mode, c.rate,
					c.chunk, hidden.name, mean, baseline)
			}
		}
	}
}
