package telemetry

import (
	"cmp"
	"slices"
)

// TierDecisions is the number of requests that a rule sent to a tier or pool since the gateway started.
type TierDecisions struct {
	Tier     string `json:"tier" doc:"Tier or pool; removed: a reload removed it before the request was counted."`
	Rule     string `json:"rule"`
	Requests int64  `json:"requests"`
}

// TierDecisions returns the numbers of requests by tier and rule, sorted by both. Requests are counted
// meanwhile.
func (m *Metrics) TierDecisions() []TierDecisions {
	all := []TierDecisions{}
	for _, s := range readSeries(m.requests.decisions) {
		all = append(all, TierDecisions{Tier: labelOf(s, "tier"), Rule: labelOf(s, "rule"),
			Requests: int64(s.GetCounter().GetValue())})
	}
	slices.SortFunc(all, func(a, b TierDecisions) int {
		return cmp.Or(cmp.Compare(a.Tier, b.Tier), cmp.Compare(a.Rule, b.Rule))
	})
	return all
}
