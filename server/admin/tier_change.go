package admin

import (
	"slices"

	"tierway/decisions"
	"tierway/replay"
	"tierway/server/control"
)

// tierChange is what a draft without the tier of a past request makes of the request.
type tierChange struct {
	gone    string // the tier that the draft lacks
	to      string // the draft's tier for the request; empty: refused, or unknown
	unknown string // why the draft's tier cannot be determined; empty: it is determined
}

// tierUnder repeats the tier decision of a past request under a draft that lacks its tier, in the same
// way as a replay of the record. notes names the facts that the record lacks.
func (a *routeAPI) tierUnder(live, under *control.Snapshot, d *decisions.Decision) (c tierChange, notes []string) {
	c.gone = "tier or pool " + d.Tier
	if p := live.ByName[d.Tier]; p != nil && p.Tier {
		c.gone = "tier " + d.Tier
	} else if p != nil {
		c.gone = "pool " + d.Tier
	}
	setup := func(snap *control.Snapshot) replay.Setup {
		return snap.ReplaySetup(a.control.Pools.Gateways(snap.File))
	}
	r, err := replay.New(replay.Config{Now: setup(live), Draft: new(setup(under))})
	if err != nil {
		c.unknown = err.Error()
		return c, nil
	}
	r.Add(d)
	report := r.Report()
	skipped := func(reason string) bool {
		return slices.ContainsFunc(report.Skipped, func(n replay.Count) bool { return n.Name == reason })
	}
	switch {
	case len(report.ChangedTier) > 0:
		c.to = report.ChangedTier[0].To
	case skipped(replay.SkippedKeywords):
		c.unknown = "its tier depends on keywords that the draft adds or changes, and a record has no text"
	case skipped(replay.SkippedScore):
		c.unknown = "its tier depends on its score, and the record has no length of its text"
	case skipped(replay.SkippedShare):
		c.unknown = "its tier depends on the shares of the draft, which start after 200 prompts of a tenant and alias"
	case d.Rule == "path" || d.Rule == "stored":
		c.unknown = "the rule " + d.Rule + " selected it, which a record cannot repeat"
	default:
		c.unknown = "the configuration in force does not select " + d.Tier + " for this record either"
	}
	if report.Unknown.Rights > 0 {
		notes = append(notes, "the tenant or key no longer exists: the tier is decided as if every tier were allowed")
	}
	if report.Unknown.Counts > 0 {
		notes = append(notes, "the draft would count the prompt's tokens: the tier is decided by their estimate")
	}
	return c, notes
}

// String returns the change in one sentence.
func (c tierChange) String() string {
	text := "the draft has no " + c.gone
	switch {
	case c.unknown != "":
		return text + "; the tier that the request would get is unknown: " + c.unknown
	case c.to == "":
		return text + ", and refuses the request"
	}
	return text + "; the request would go to " + c.to
}

// applyTo changes the explanation e of a past request, which has the recorded steps, to the tier that
// the draft gives it. Queue and worker of that tier are unknown, because the record has only those of
// the recorded tier.
func (c tierChange) applyTo(e *decisions.Explanation, d *decisions.Decision) {
	e.Tier, e.Rule, e.Note, e.Model, e.Policy = c.to, "", "", "", ""
	e.Worker, e.Reason, e.RunnerUp, e.Candidates = "", "", "", nil
	tier := slices.IndexFunc(e.Steps, func(st decisions.Step) bool { return st.Stage == decisions.StageTier })
	if tier < 0 {
		tier, e.Steps = len(e.Steps), append(e.Steps, decisions.Step{Stage: decisions.StageTier})
	}
	e.Steps[tier].OK, e.Steps[tier].Detail = c.to != "", c.String()
	if c.to != "" && d.Limit != "" { // limits do not depend on the tier
		e.Summary = c.String() + "; " + pastSummary(e)
		return
	}
	e.Status, e.Code, e.Limit, e.Shed = 0, "", "", ""
	switch {
	case c.to == "" && c.unknown == "":
		e.Outcome, e.Summary, e.Steps = decisions.WouldReject, "rejected at tier: "+c.String(), e.Steps[:tier+1]
	case c.to == "":
		e.Outcome, e.Summary, e.Steps = decisions.Undetermined, c.String(), e.Steps[:tier+1]
	case len(d.Attempts) == 0: // it ended in the queue
		e.Outcome, e.Steps = decisions.Undetermined, stepsBefore(e.Steps, decisions.StageQueue)
		e.Summary = c.String() + "; whether it would wait there is unknown"
	default:
		e.Steps = append(stepsBefore(e.Steps, decisions.StageQueue), decisions.Step{Stage: decisions.StageWorker, OK: true,
			Detail: "unknown: the record has only the workers of " + d.Tier,
			Worker: &decisions.WorkerStep{Used: d.Attempts[0].Worker}})
		e.Summary = c.String() + "; its worker there is unknown"
	}
}

func stepsBefore(steps []decisions.Step, stage string) []decisions.Step {
	if i := slices.IndexFunc(steps, func(st decisions.Step) bool { return st.Stage == stage }); i >= 0 {
		return steps[:i]
	}
	return steps
}
