package telemetry

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
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
	series := make(chan prometheus.Metric)
	go func() { // ends when the loop below has read all series
		defer close(series)
		m.decisions.Collect(series)
	}()
	all := []TierDecisions{}
	for one := range series {
		var value dto.Metric
		if one.Write(&value) != nil { // only a metric that is not a counter could fail
			continue
		}
		d := TierDecisions{Requests: int64(value.GetCounter().GetValue())}
		for _, label := range value.GetLabel() {
			switch label.GetName() {
			case "tier":
				d.Tier = label.GetValue()
			case "rule":
				d.Rule = label.GetValue()
			}
		}
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b TierDecisions) int {
		return cmp.Or(cmp.Compare(a.Tier, b.Tier), cmp.Compare(a.Rule, b.Rule))
	})
	return all
}
