package telemetry

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// under sums the values of a policy's series by name.
func under(t *testing.T, m *Metrics, policy string) map[string]float64 {
	t.Helper()
	sums := map[string]float64{}
	for _, s := range gather(t, m, "tierway_") {
		if s.labels["policy"] == policy {
			sums[s.name] += s.value
		}
	}
	return sums
}

// TestPolicyChangeStartsNewSeries: the series of the old policy are removed. A Tier or Worker
// that was resolved before counts under the new policy.
func TestPolicyChangeStartsNewSeries(t *testing.T) {
	m := New("test")
	use := func(tier *Tier, w *Worker) {
		tier.Duration.Observe(1)
		tier.Selection.Observe(1)
		tier.TPOT.Observe(1)
		tier.CountPrefix(PrefixHit, 3, 2)
		w.TTFT.Observe(1)
		w.Selected("prefix_home")
	}
	tier := m.Tier("small", "chwbl", []string{"chat"}, []string{"ok"})
	w := m.Worker("small", "a", "chwbl", []string{"prefix_home"})
	resolve(m, "large", "b") // also under chwbl; its series stay
	stays := under(t, m, "chwbl")
	use(tier, w)
	if again := m.Tier("small", "random", []string{"chat"}, []string{"ok"}); again != tier {
		t.Error("a tier that has another policy is another tier")
	}
	w.SetPolicy("random", []string{"random"})
	if diff := cmp.Diff(stays, under(t, m, "chwbl")); diff != "" {
		t.Errorf("under the old policy (-want +got):\n%s", diff)
	}
	use(tier, w)
	want := map[string]float64{"tierway_request_duration_seconds": 1, "tierway_selection_seconds": 1,
		"tierway_time_per_output_token_seconds": 1,
		"tierway_prefix_results_total":          1, "tierway_prefix_predicted_tokens_total": 3,
		"tierway_prefix_cached_tokens_total":  2,
		"tierway_time_to_first_token_seconds": 1, "tierway_route_decisions_total": 1}
	if diff := cmp.Diff(want, under(t, m, "random")); diff != "" {
		t.Errorf("under the new policy (-want +got):\n%s", diff)
	}
	w.SetPolicy("random", nil) // nothing changes
	if diff := cmp.Diff(want, under(t, m, "random")); diff != "" {
		t.Errorf("under the same policy (-want +got):\n%s", diff)
	}
}

// TestUnknownReasonsCountAsOther: all unknown reasons share one series.
func TestUnknownReasonsCountAsOther(t *testing.T) {
	m := New("test")
	w := m.Worker("small", "a", "chwbl", []string{"prefix_home"})
	w.Selected("prefix_home")
	for i := range 10_000 {
		w.Selected("junk-" + strconv.Itoa(i))
	}
	want := []string{`tierway_route_decisions_total{policy="chwbl",reason="other",tier="small",worker="a"} 10000`,
		`tierway_route_decisions_total{policy="chwbl",reason="prefix_home",tier="small",worker="a"} 1`}
	if diff := cmp.Diff(want, scrape(t, m, "tierway_route_decisions_total")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPredictedAndCachedTokensCountTheSameAttempts: an engine that reports no cached tokens does
// not make the prediction look wrong.
func TestPredictedAndCachedTokensCountTheSameAttempts(t *testing.T) {
	m := New("test")
	tier := m.Tier("small", "chwbl", []string{"chat"}, []string{"ok"})
	tier.CountPrefix(PrefixHit, 100, 80)
	tier.CountPrefix(PrefixHit, 1000, -1) // the engine reported none
	tier.CountPrefix(PrefixMiss, 0, 7)
	tier.CountPrefix(PrefixNone, 0, 0)
	want := []string{
		`tierway_prefix_cached_tokens_total{policy="chwbl",tier="small"} 87`,
		`tierway_prefix_predicted_tokens_total{policy="chwbl",tier="small"} 100`,
		`tierway_prefix_results_total{policy="chwbl",result="hit",tier="small"} 2`,
		`tierway_prefix_results_total{policy="chwbl",result="miss",tier="small"} 1`,
		`tierway_prefix_results_total{policy="chwbl",result="none",tier="small"} 1`,
	}
	if diff := cmp.Diff(want, scrape(t, m, "tierway_prefix_")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
