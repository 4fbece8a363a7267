package tiers

import (
	"fmt"
	"strings"
	"testing"
)

// TestScoresAndSharesAreRules: one for each tier that they select, and groups add their weights.
func TestScoresAndSharesAreRules(t *testing.T) {
	group := Keyword{Tier: "medium", Name: "law", Weight: 3, Match: []string{"court"}}
	none := map[string]int64{}
	for want, rules := range map[string]Rules{
		"share large 0 0.2 0, share medium 0 0.3 0, share small 0 0.5 0, keyword:law medium 0 0 3, default small 0 0 0": {
			Share: shares(0.3, 0.2)},
		"share large 0 0.3 0, share medium 0 0.7 0, keyword:law medium 0 0 3, default small 0 0 0": {Share: shares(0.7, 0.3)},
		"score large 9 0 0, score medium 8 0 0, score small 0 0 0, keyword:law  0 0 3, default small 0 0 0": {
			Score: shares(8, 9)},
		"keyword:law medium 0 0 3, default small 0 0 0": {},
	} {
		rules.Preset, rules.Keywords, rules.PromptTokens, rules.MaxTokens = "none", []Keyword{group}, none, none
		var got []string
		for _, r := range classifier(t, rules).describeRules() {
			got = append(got, fmt.Sprint(r.Rule, " ", r.Tier, " ", r.Score, " ", r.Share, " ", r.Weight))
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%q, want %q", text, want)
		}
	}
}
