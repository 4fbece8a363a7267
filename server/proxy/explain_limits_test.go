package proxy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"tierway/tenants"
)

// TestLimitsAreExplainedInTheUnitsOfTheConfiguration: a rate has its limit and its burst, money has the
// unit of the configuration, and no number has an exponent.
func TestLimitsAreExplainedInTheUnitsOfTheConfiguration(t *testing.T) {
	e := &explainer{limits: []tenants.Use{
		{Scope: "tenant", Limit: tenants.LimitRPM, Used: 1.0 / 3, Capacity: 100, Rate: 600, Cost: 1},
		{Scope: "tenant", Limit: tenants.LimitTPM, Capacity: 2e6, Rate: 2e6, Cost: 12},
		{Scope: "tenant", Limit: tenants.LimitConcurrent, Used: 2, Capacity: 64, Cost: 1},
		{Scope: "tenant", Limit: tenants.LimitMonthTokens, Used: 1, Capacity: 1e12},
		{Scope: "key", Limit: tenants.LimitDayMoney, Used: 20_000, Capacity: float64(tenants.Unit) / 2},
		{Scope: "key", Limit: tenants.LimitMonthMoney, Capacity: float64(250 * tenants.Unit)},
	}}
	const want = "tenant: rpm 600 (0.33 of a burst of 100 used), tpm 2000000 (0 of a burst of 2000000 used), concurrent " +
		"64 (2 used), month_tokens 1000000000000 (1 used); " +
		"key: day_money 0.5 (0.00002 used), month_money 250 (0 used)"
	if diff := cmp.Diff(want, e.limitsDetail()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if u := limitUses(e.limits)[5]; u.Room != 250 {
		t.Errorf("the API shows %v", u.Room)
	}
}
