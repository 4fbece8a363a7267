package routing_test

import (
	"testing"

	"tierway/fixedseed"
	"tierway/routing"
)

func TestEveryPolicyKeepsTheLaws(t *testing.T) {
	for _, name := range routing.Names() {
		t.Run(name, func(t *testing.T) { laws(t, routing.Config{Name: name}) })
	}
}

// TestPoliciesWithAFallbackKeepTheLaws, also with other policies for the requests of a rule.
func TestPoliciesWithAFallbackKeepTheLaws(t *testing.T) {
	for name, configs := range map[string][]routing.Config{
		"hash of the session, else kv_aware": {{Name: "consistent_hash", FallbackKey: "none", Fallback: "kv_aware"}},
		"a match, else chwbl":                {{Name: "cache_aware", Fallback: "chwbl"}},
		"a home, else in turn":               {{Name: "chwbl", Fallback: "round_robin"}},
		"a home, else kv_aware":              {{Name: "chwbl", Fallback: "kv_aware"}},
		"a score, else in turn":              {{Name: "kv_overlap", Fallback: "weighted_round_robin"}},
		"LMCache's keys, else in turn":       {{Name: "lmcache_aware", Fallback: "round_robin"}},
		"look-ups in LMCache":                {{Name: "lmcache_aware", Mode: "prefix_lookup"}},
		"two rules": {{Name: "kv_aware"}, {Name: "least_latency", Fallback: "round_robin"},
			{Name: "rendezvous_hash", Key: "header", Fallback: "cache_aware", OnMiss: "smallest_tree"}},
	} {
		t.Run(name, func(t *testing.T) { laws(t, configs[0], configs[1:]...) })
	}
}

func laws(t *testing.T, c routing.Config, rules ...routing.Config) {
	fixedseed.Checks(t, fixedseed.Samples(40, 100))
	policyLaws(t, func() routing.Policy {
		p, err := routing.Compose(c, rules)
		if err != nil {
			t.Fatal(err)
		}
		return p
	})
}
