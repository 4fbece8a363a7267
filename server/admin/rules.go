package admin

import (
	"context"
	"strings"

	"tierway/telemetry"
	"tierway/tiers"
)

// rulesView is the classifier in force with the numbers of decisions.
type rulesView struct {
	Tiers []string `json:"tiers" nullable:"false" doc:"Names of the tiers, least capable first."`
	tiers.Description
	StickyIdle float64                   `json:"sticky_idle_s" doc:"Seconds for which a chat is stored after its last request."`
	Preset     string                    `json:"preset" enum:"graded,groups,lesson,none"`
	Rules      []ruleView                `json:"rules" nullable:"false" doc:"Rules in the order in which they are checked: prompt_tokens, max_tokens, and score or share from the highest tier, then the keyword groups, then default."`
	Decisions  []telemetry.TierDecisions `json:"decisions" nullable:"false" doc:"Requests since the gateway started by tier or pool and rule, also of rules outside the classifier."`
}

type ruleView struct {
	tiers.Rule
	Requests int64 `json:"requests" doc:"Requests that got their tier by this rule since the gateway started. Of a keyword group: at any tier."`
}

func (a *workerAPI) getRules(context.Context, *struct{}) (*reply[rulesView], error) {
	snap := a.control.Snapshot()
	d := snap.Catalog.Describe(snap.File.Models)
	v := rulesView{Tiers: []string{}, Description: d, StickyIdle: d.StickyIdle.Seconds(),
		Preset: snap.File.Classifier.PresetName(), Decisions: a.options.Counts.TierDecisions()}
	for _, p := range snap.Pools {
		if p.Tier {
			v.Tiers = append(v.Tiers, p.Name)
		}
	}
	v.Rules = mapped(d.Rules, func(r tiers.Rule) ruleView {
		view := ruleView{Rule: r}
		for _, n := range v.Decisions {
			if n.Rule == r.Rule && (n.Tier == r.Tier || strings.HasPrefix(r.Rule, "keyword:")) {
				view.Requests += n.Requests
			}
		}
		return view
	})
	return &reply[rulesView]{Body: v}, nil
}
