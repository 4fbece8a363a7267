package config

import (
	"slices"
	"strings"
	"testing"

	"tierway/openai"
)

func TestAnthropicTierServesMessages(t *testing.T) {
	f := parsed(t, keys+`tiers:
  - {name: a, model: m, engine: anthropic, inject_cache_control: true, workers: [{name: w0, url: "http://h:1"}]}
  - {name: b, model: n, workers: [{name: w1, url: "http://h:2"}]}
`, nil)
	pools := f.ResolvedPools()
	if p := pools[0]; !slices.Equal(p.Serves, []openai.Dialect{openai.Messages}) || !p.CacheControl {
		t.Errorf("%v %v", p.Serves, p.CacheControl)
	}
	if p := pools[1]; len(p.Serves) != 5 || p.CacheControl {
		t.Errorf("%v %v", p.Serves, p.CacheControl)
	}
}

func TestCacheControlNeedsMessages(t *testing.T) {
	for section, want := range map[string]string{
		`tiers: [{name: a, model: m, inject_cache_control: true, workers: [{name: w, url: "http://h:1"}]}]`: "",
		`tiers: [{name: a, model: m, serves: [chat], inject_cache_control: true, workers: [{name: w, url: "http://h:1"}]}]`: "" +
			"tiers[0].inject_cache_control: has no effect: the tier serves no messages (add messages to serves, or remove the key)",
		`pools: [{name: a, paths: [/x], inject_cache_control: true, workers: [{name: w, url: "http://h:1"}]}]`: "" +
			"pools[0].inject_cache_control: has no effect: the pool serves no messages (add messages to serves, or remove the key)",
	} {
		got := strings.Join(problemsOf(t, keys+section+"\n", nil), "; ")
		if _, problem, _ := strings.Cut(got, ": "); problem != want {
			t.Errorf("%s: %s", section, got)
		}
	}
}
