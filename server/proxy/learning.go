package proxy

import (
	"slices"
	"time"

	"tierway/decisions"
	"tierway/server/control"
	"tierway/server/learning"
	"tierway/tiers"
)

// recordLearning writes the features of a classified request that an engine has answered. A request that names a tier
// may label an earlier one.
func (x *exchange) recordLearning(d *decisions.Decision) {
	s, res := x.s.learning, &x.resolution
	if s == nil || !x.collectsLabels || res.Pool == nil || !res.Pool.Tier || !x.in.Dialect.Generates() || res.Free(&x.in) {
		return
	}
	prompt, hasPrompt := x.s.intake.PromptHash(&x.caller, &x.parsed)
	switch {
	case res.Classified && d.Result == decisions.OK && len(x.dispatch.attempts) > 0:
		x.writeFeatures(d)
		if hasPrompt {
			s.Remember(prompt, learning.Answer{ID: d.RequestID, Tenant: d.Tenant, Tier: d.Tier, At: time.Now()})
		}
	case !res.Classified && hasPrompt && d.Result != decisions.Refused:
		s.Escalate(prompt, time.Now(), func(tier string) bool { return isLowerTier(x.in.Snap, tier, res.Pool) })
	}
}

// writeFeatures writes the features of the request, unless the configuration has no key for them.
func (x *exchange) writeFeatures(d *decisions.Decision) {
	features := x.parsed.Features(&x.in, &x.caller)
	if features == nil {
		return
	}
	scores := &x.resolution.Score
	line := &learning.Features{ID: d.RequestID, Time: d.Time.UTC(), Tenant: d.Tenant, Tier: d.Tier, Rule: d.Rule,
		Baseline: scores.Default, Features: *features}
	if d.Rule == tiers.RuleExploration {
		line.Explored = tiers.Propensity
	}
	if scores.Model.Known {
		line.Model = new(scores.Model.Value)
	}
	x.s.learning.AddFeatures(line)
}

// isLowerTier reports whether a tier of that name exists and is below another one.
func isLowerTier(snap *control.Snapshot, name string, than *control.Pool) bool {
	at := slices.IndexFunc(snap.Pools, func(p *control.Pool) bool { return p.Tier && p.Name == name })
	return at >= 0 && at < slices.Index(snap.Pools, than)
}
