package proxy

import (
	"strings"

	"tierway/decisions"
	"tierway/tenants"
)

func (n *explainer) limitsDetail() string {
	switch {
	case len(n.limits) == 0:
		return "no limits"
	case n.partial:
		return "as known to this gateway; Redis decides for all gateways"
	}
	var texts []string
	for _, scope := range [...]string{"tenant", "key"} {
		var own []string
		for _, u := range limitUses(n.limits) {
			if u.Scope == scope {
				own = append(own, u.String())
			}
		}
		if len(own) > 0 {
			texts = append(texts, scope+": "+strings.Join(own, ", "))
		}
	}
	return strings.Join(texts, "; ")
}

func limitUses(uses []tenants.Use) (all []decisions.LimitUse) {
	for _, u := range uses {
		shown := decisions.LimitUse{Scope: u.Scope, Limit: u.Limit, Used: u.Used, Room: u.Capacity, Rate: u.Rate,
			WouldUse: u.Cost}
		if shown.Money() {
			shown.Used, shown.Room = u.Used/float64(tenants.Unit), u.Capacity/float64(tenants.Unit)
		}
		all = append(all, shown)
	}
	return all
}
