package config

import (
	"strings"
	"testing"
)

func TestLoweringMaxTokensNeedsAContext(t *testing.T) {
	for section, want := range map[string]string{
		`tiers: [{name: a, model: m, context: 8192, lower_max_tokens: true, workers: [{name: w, url: "http://h:1"}]}]`: "",
		`tiers: [{name: a, model: m, lower_max_tokens: true, workers: [{name: w, url: "http://h:1"}]}]`: "" +
			"tiers[0].lower_max_tokens: has no effect: the context of the tier is unknown (set tiers[0].context, or remove the key)",
	} {
		got := strings.Join(problemsOf(t, keys+section+"\n", nil), "; ")
		if _, problem, _ := strings.Cut(got, ": "); problem != want {
			t.Errorf("%s: %s", section, got)
		}
	}
}
