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
		{`sum by (tier) (depth`, "unexpected end of expression"},
		{`sum by (tier) depth)`, `want "("`},
		{`sum(depth))`, "after the expression"},
		{`depth depth`, "after the expression"},
		{`rat(asked_total[5m])`, `no function "rat"`},
		{`rate(asked_total)`, "got a value of type instant vector, want range vector"},
		{`rate(depth[5m])`, "rate needs a counter"},
		{`depth[5]`, "a metric and a duration"},
		{`asked_total[5m] > 1`, "no range vector"},
		{`histogram_quantile(0.9, sum by (tier) (rate(wait_bucket[5m])))`, "needs the label le"},
		{`depth / up`, "never match"},
		{`depth and on (outcome) asked_total`, "never match"},
		{`sum by (tier) (sum(depth))`, `label "tier"`},
		{`sum by (tier) (depth) / sum(depth)`, "never match"},
		{`depth{tier=small}`, "want a string in quotes"},
		{`depth{tier=="small"}`, `unexpected "=="`},
		{`depth and 1`, "takes no scalar"},
		{`depth ~ 1`, "is no PromQL"},
		{``, "unexpected end of expression"},
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
