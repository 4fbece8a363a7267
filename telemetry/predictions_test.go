package telemetry

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

var onePrediction = PredictionGauges{Tier: "small", Events: 5, History: 3, None: 2, WrongTokens: 150, Judged: 9,
	Regretted: 1, Workers: []CreditGauges{{Worker: "w0", Events: 0.5, History: 1}}}

func TestScrapeShowsPredictions(t *testing.T) {
	m := New("test")
	Observe(m, func() []PredictionGauges { return []PredictionGauges{onePrediction} })
	want := []string{
		`tierway_prefix_predictions_total{source="events",tier="small"} 5`,
		`tierway_prefix_predictions_total{source="history",tier="small"} 3`,
		`tierway_prefix_predictions_total{source="none",tier="small"} 2`,
		`tierway_prefix_wrong_tokens_total{tier="small"} 150`,
		`tierway_routes_judged_total{tier="small"} 9`,
		`tierway_routes_regretted_total{tier="small"} 1`,
		`tierway_worker_prefix_credit_ratio{source="events",tier="small",worker="w0"} 0.5`,
		`tierway_worker_prefix_credit_ratio{source="history",tier="small",worker="w0"} 1`,
	}
	if diff := cmp.Diff(want, scrape(t, m, "tierway_prefix_", "tierway_routes_", "tierway_worker_prefix_")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
