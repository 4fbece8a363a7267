package admin

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"tierway/decisions"
)

const (
	draftMedium = `tiers: [ { name: medium, model: m, workers: [ { name: m0, url: "http://127.0.0.1:9" } ] }, ` +
		`{ name: large, model: l, workers: [ { name: l0, url: "http://127.0.0.1:10" } ] } ]`
	draftAlias    = draftMedium + "\nmodels: { small: medium }"
	draftKeywords = draftMedium + "\nclassifier: { preset: none, default: medium, " +
		"keywords: [ { name: proofs, tier: large, match: [prove] } ] }"
)

// TestPastRequestIsExplainedUnderADraftWithoutItsTier: another tier, a refusal, or why neither
// can be determined. Stages that depend on another tier's state are left out.
func TestPastRequestIsExplainedUnderADraftWithoutItsTier(t *testing.T) {
	r := newPlaneRig(t)
	for id, tt := range map[string]struct {
		change                       func(d *decisions.Decision)
		draft                        string
		outcome, tier, stage, detail string // detail ends the summary
		changed                      []string
	}{
		"another-tier": {func(*decisions.Decision) {}, draftAlias, decisions.WouldRoute, "medium", decisions.StageWorker,
			"; the request would go to medium; its worker there is unknown", []string{"tier", "worker"}},
		"refused": {func(*decisions.Decision) {}, draftMedium, decisions.WouldReject, "", decisions.StageTier,
			", and refuses the request", []string{"outcome", "tier", "worker"}},
		"of-a-path": {func(d *decisions.Decision) { d.Rule = "path" }, draftAlias, decisions.Undetermined, "",
			decisions.StageTier, "the rule path selected it, which a record cannot repeat",
			[]string{"outcome", "tier", "worker"}},
		"new-keywords": {func(d *decisions.Decision) { d.RequestedModel, d.Rule = "auto", "default" }, draftKeywords,
			decisions.Undetermined, "", decisions.StageTier, "and a record has no text",
			[]string{"outcome", "tier", "worker"}},
		"not-reproduced": {func(d *decisions.Decision) { d.RequestedModel = "unheard-of" }, draftAlias,
			decisions.Undetermined, "", decisions.StageTier, "does not select small for this record either",
			[]string{"outcome", "tier", "worker"}},
		"over-a-limit": {func(d *decisions.Decision) {
			d.Attempts, d.Worker, d.Result, d.Status, d.Limit = nil, "", decisions.Refused, 429, "rpm"
		}, draftAlias, decisions.WouldReject, "medium", decisions.StageLimits, "was rejected at limits: rpm",
			[]string{"tier"}},
		"shed-by-the-queue": {func(d *decisions.Decision) {
			d.Attempts, d.Worker, d.Result, d.Status, d.Shed = nil, "", decisions.Failed, 503, "depth"
		}, draftAlias, decisions.Undetermined, "medium", decisions.StageLimits, "; whether it would wait there is unknown",
			[]string{"outcome", "tier"}},
	} {
		t.Run(id, func(t *testing.T) {
			d := pastDecision(id)
			tt.change(d)
			got := r.explainPast(d, tt.draft)
			e := got.Draft
			if e.Outcome != tt.outcome || e.Tier != tt.tier || e.Worker != "" || !slices.Equal(got.Changed, tt.changed) {
				t.Errorf("explained as %s, tier %q, worker %q, changed %v", e.Outcome, e.Tier, e.Worker, got.Changed)
			}
			if !strings.Contains(e.Summary, "the draft has no tier small") || !strings.HasSuffix(e.Summary, tt.detail) {
				t.Errorf("the summary is %q", e.Summary)
			}
			last := e.Steps[len(e.Steps)-1]
			if last.Stage != tt.stage || last.Detail == "" {
				t.Errorf("the last step is %+v, want %s", last, tt.stage)
			}
			at := slices.IndexFunc(e.Steps, func(st decisions.Step) bool { return st.Stage == decisions.StageTier })
			if at < 0 || !strings.HasPrefix(e.Steps[at].Detail, "the draft has no tier small") ||
				e.Steps[at].OK != (tt.tier != "") {
				t.Errorf("the steps are %+v", e.Steps)
			}
			if e.Outcome == decisions.WouldReject && tt.tier != "" && e.Status != http.StatusTooManyRequests {
				t.Errorf("the recorded refusal has the status %d", e.Status)
			}
		})
	}
}
