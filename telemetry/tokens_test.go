package telemetry

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestScrapeShowsLookupsOfPrompts(t *testing.T) {
	m := New("test")
	Observe(m, func() []TokenGauges {
		return []TokenGauges{{Tier: "small", Known: 9, Answered: 4, Beginning: 3, Unknown: 2, TimedOut: 5, Busy: 1, Asked: 20,
			Parts: 6, Failed: 7, Mismatched: 8, Miscounted: 10, Bytes: 1 << 20}}
	})
	want := []string{
		`tierway_prompt_lookups_late_total{reason="busy",tier="small"} 1`,
		`tierway_prompt_lookups_late_total{reason="timeout",tier="small"} 5`,
		`tierway_prompt_lookups_total{result="answered",tier="small"} 4`,
		`tierway_prompt_lookups_total{result="beginning",tier="small"} 3`,
		`tierway_prompt_lookups_total{result="known",tier="small"} 9`,
		`tierway_prompt_lookups_total{result="unknown",tier="small"} 2`,
		`tierway_prompt_miscounts_total{tier="small"} 10`,
		`tierway_prompt_mismatches_total{tier="small"} 8`,
		`tierway_prompt_parts_total{tier="small"} 6`,
		`tierway_prompt_tokenize_failures_total{tier="small"} 7`,
		`tierway_prompt_tokenize_requests_total{tier="small"} 20`,
		`tierway_prompt_tokens_bytes{tier="small"} 1.048576e+06`,
	}
	if diff := cmp.Diff(want, scrape(t, m, "tierway_prompt_")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
