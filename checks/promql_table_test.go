package checks

import (
	"strings"
	"testing"
)

// TestTheCheckerReportsBrokenExpressions verifies the checker that the other tests rely on.
func TestTheCheckerReportsBrokenExpressions(t *testing.T) {
	metrics := map[string]family{
		"up":          {labels: []string{"instance", "job"}},
		"depth":       {labels: []string{"instance", "job", "tier"}},
		"asked_total": {counts: true, labels: []string{"instance", "job", "outcome", "tier"}},
		"wait_bucket": {counts: true, labels: []string{"instance", "job", "le", "tier"}},
	}
	tests := []struct{ expression, wrong string }{
		{`sum by (tier) (rate(asked_total{outcome!="ok"}[5m])) / sum by (tier) (rate(asked_total[5m])) > 0.05`, ""},
		{`histogram_quantile(0.99, sum by (le, tier) (rate(wait_bucket{tier=~"a|b"}[5m])))`, ""},
		{`depth > 2 * 3 and on (instance) up == 1 # a comment`, ""},
		{`topk(3, sum(increase(asked_total[1h])) without (instance, job))`, ""},
		{`sum(rate(asked_total[5m])) or vector(0)`, ""},
		{`sum(rate(asked_totl[5m]))`, `no metric "asked_totl"`},
		{`sum(rate(asked_total{outcom="ok"}[5m]))`, `no label "outcom"`},
		{`sum by (worker) (depth)`, `label "worker"`},
		{`sum by (tier) (depth`, "ends too early"},
		{`sum by (tier) depth)`, `"(" must`},
		{`sum(depth))`, "nothing more"},
		{`depth depth`, "nothing more"},
		{`rat(asked_total[5m])`, `no function "rat"`},
		{`rate(asked_total)`, "not i"},
		{`rate(depth[5m])`, "no counter"},
		{`depth[5]`, "length of time"},
		{`asked_total[5m] > 1`, "no range"},
		{`histogram_quantile(0.9, sum by (tier) (rate(wait_bucket[5m])))`, "no buckets"},
		{`depth / up`, "never match"},
		{`depth and on (outcome) asked_total`, "never match"},
		{`sum by (tier) (sum(depth))`, `label "tier"`},
		{`sum by (tier) (depth) / sum(depth)`, "never match"},
		{`depth{tier=small}`, "no text in quotes"},
		{`depth{tier=="small"}`, "compares no label"},
		{`depth and 1`, "takes no number"},
		{`depth ~ 1`, "is no PromQL"},
		{``, "ends too early"},
	}
	for _, tt := range tests {
		switch _, err := checkPromQL(metrics, tt.expression); {
		case tt.wrong == "" && err != nil:
			t.Errorf("%v", err)
		case tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)):
			t.Errorf("%s gives %v, want %q", tt.expression, err, tt.wrong)
		}
	}
}
