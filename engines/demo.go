package engines

import (
	"fmt"
	"strings"
	"time"

	"tierway/routing"
)

// demoContext is the context of the demo's engines, in tokens. Coding agents request up to 64,000
// output tokens for prompts of over 10,000.
const demoContext = 262144

// Demo returns the engines of a demonstration: three tiers, small to large, of three, two and two
// engines. Engines of one tier differ by up to 15 % in speed, as machines of one order do; the seed
// decides which is faster. Answers to prompts of a thousand tokens begin within 0.3 s.
func Demo(seed uint64) []Config {
	// Speeds of models of these sizes on one mid-range accelerator: larger models are slower for
	// prompts and tokens.
	tiers := []struct {
		name, model string
		engines     int
		prefill     float64
		perToken    time.Duration
		slots       int
		cache       int
	}{
		{"small", "demo-small-7b", 3, 20000, 8 * time.Millisecond, 32, 2 * demoContext},
		{"medium", "demo-medium-32b", 2, 10000, 16 * time.Millisecond, 24, 3 * demoContext / 2},
		{"large", "demo-large-70b", 2, 6000, 28 * time.Millisecond, 16, demoContext},
	}
	d := rng{seed}
	var fleet []Config
	for _, t := range tiers {
		for i := range t.engines {
			pace := 1 - float64(d.roll(16))/100
			fleet = append(fleet, Config{
				Name: fmt.Sprintf("%s-%d", t.name, i), Model: t.model,
				Prefill: t.prefill * pace, PerToken: time.Duration(float64(t.perToken) / pace),
				Slots: t.slots, CacheTokens: t.cache, Context: demoContext,
				Seed: routing.Draw(seed + uint64(len(fleet))),
			})
		}
	}
	return fleet
}

// DisaggregatedDemo returns the engines of Demo with two stages in the medium tier, which gets the long
// documents: of each of its engines there are two, one for prompts and one for answers.
func DisaggregatedDemo(seed uint64) []Config {
	peers := new(Peers)
	var fleet []Config
	for _, c := range Demo(seed) {
		number, ok := strings.CutPrefix(c.Name, "medium-")
		if !ok {
			fleet = append(fleet, c)
			continue
		}
		for _, role := range [...]string{RolePrefill, RoleDecode} {
			own := c
			own.Name, own.Seed = "medium-"+role+"-"+number, routing.Draw(c.Seed+uint64(len(fleet)))
			own.Handover, own.Role, own.Peers = HandoverNIXL, role, peers
			fleet = append(fleet, own)
		}
	}
	return fleet
}
