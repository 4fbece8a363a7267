package config

import "testing"

// TestInstancesOfLMCacheAreWorkers by the map's names or URLs, and by their own names.
func TestInstancesOfLMCacheAreWorkers(t *testing.T) {
	f := parsed(t, keys+`
policy: { name: lmcache_aware, lmcache_worker_map: { vllm-001: a, vllm-002: "http://b:8000/", vllm-003: other, d: a, e: "http://e:8000" } }
tiers:
  - name: small
    model: m
    workers:
      - { name: a, url: "http://a:8000" }
      - { name: b, url: "http://b:8000" }
      - { name: c, url: "http://c:8000" }
      - { name: e, url: "http://e:8000", ranks: 2 }
pools:
  - { name: more, models: [x], serves: [chat], workers: [{ name: other, url: "http://o:8000" }] }
`, nil)
	pool := f.ResolvedPools()[0]
	of := pool.InstanceOf(pool.Policy)
	for instance, want := range map[string]string{"vllm-001": "a", "vllm-002": "b", "vllm-003": "", "a": "a", "c": "c",
		"d": "a",
		"e": "", "e@1": "e@1", "unknown": "", "": ""} {
		if got := of(instance); got != want {
			t.Errorf("%q is the worker %q, want %q", instance, got, want)
		}
	}
}

// TestWrittenModeOfLMCacheHasNoWarning: of the file's policy.
func TestWrittenModeOfLMCacheHasNoWarning(t *testing.T) {
	for _, mode := range []string{"mode: occupancy", "mode: prefix_lookup"} {
		f := parsed(t, keys+small+"policy: { name: lmcache_aware, "+mode+" }\n", nil)
		if got := f.Warnings(); len(got) > 0 {
			t.Errorf("%s: %v", mode, got)
		}
	}
}
