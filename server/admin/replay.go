package admin

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tierway/decisions"
	"tierway/replay"
)

// ReplayOrder asks for a replay.
type ReplayOrder struct {
	Last   int           `json:"last,omitempty" minimum:"1" maximum:"100000" doc:"The newest so many records, of those that match; absent: 1,000."`
	Filter *ReplayFilter `json:"filter,omitempty" doc:"As the query of /admin/decisions."`
	Draft  *string       `json:"draft,omitempty" doc:"As of /admin/route/explain. Absent: the records are checked against the configuration in force."`
}

// ReplayFilter is a decisions.Filter as a body carries it.
type ReplayFilter struct {
	Since     time.Time `json:"since,omitzero" doc:"Only requests that came then or later."`
	Until     time.Time `json:"until,omitzero" doc:"Only requests that came before."`
	Tenant    string    `json:"tenant,omitempty" maxLength:"63"`
	Tier      string    `json:"tier,omitempty" maxLength:"200" doc:"The tier or pool."`
	Worker    string    `json:"worker,omitempty" maxLength:"200" doc:"One that was asked, the last or before it."`
	Outcome   string    `json:"outcome,omitempty" enum:"ok,refused,failed,truncated,client_gone"`
	Reason    string    `json:"reason,omitempty" pattern:"^[a-z0-9_]{1,100}$" doc:"Why a worker was chosen, the last or one before it."`
	Rule      string    `json:"rule,omitempty" maxLength:"100" doc:"Why the tier was chosen."`
	Model     string    `json:"model,omitempty" maxLength:"300" doc:"As it was asked for, or as the worker was asked for it."`
	Class     string    `json:"class,omitempty" enum:"interactive,background,batch"`
	Code      string    `json:"code,omitempty" pattern:"^[a-z0-9_]{1,100}$" doc:"Of the error that was answered."`
	Status    int       `json:"status,omitempty" minimum:"100" maximum:"599"`
	MinMs     float64   `json:"min_ms,omitempty" minimum:"0" doc:"Only requests that took as long or longer, in milliseconds."`
	RequestID string    `json:"request_id,omitempty" maxLength:"128"`
	Search    string    `json:"q,omitempty" maxLength:"100" doc:"A part of the request id, tenant, key, model, tier, worker or code, in any case."`
}

type replayAnswer struct {
	replay.Report
	Changes  []ChangeView  `json:"changes,omitempty" doc:"What the draft changes of the configuration in force."`
	Warnings []ProblemView `json:"warnings,omitempty" doc:"Of the draft."`
}

const (
	// replayUsual is how many records are replayed where nobody says: enough that a
	// share is within three points, in some tens of milliseconds.
	replayUsual = 1000
	// replayPatience leaves the rest of adminPatience to the answer.
	replayPatience = adminPatience * 4 / 5
	// timeEvery is after how many records the time is looked at: some milliseconds.
	timeEvery = 256
)

func (a *Plane) replayRoute(ctx context.Context, in *struct{ Body ReplayOrder }) (*reply[replayAnswer], error) {
	o := &in.Body
	var filter decisions.Filter
	if o.Filter != nil {
		filter = decisions.Filter(*o.Filter)
	}
	if err := checkFilter("body.filter.until", &filter); err != nil {
		return nil, err
	}
	if !a.replaying.TryLock() { // each takes a core from those who ask for answers
		return nil, huma.Error409Conflict("Another replay is running. Try again when it is done, which takes seconds.")
	}
	defer a.replaying.Unlock()
	var told RouteExplanation
	under, err := a.draft(o.Draft, &told)
	if err != nil {
		return nil, err
	}
	live := a.control.Snapshot()
	share := a.control.Pools.Gateways(live.File)
	c := replay.Config{Now: live.ReplaySetup(share)}
	if under != nil {
		c.Draft = new(under.ReplaySetup(share))
	}
	found, _ := a.options.Decisions.Page(0, cmp.Or(o.Last, replayUsual), filter.Matches)
	slices.Reverse(found) // the oldest first
	report, err := a.replay(ctx, c, found)
	if err != nil {
		return nil, err
	}
	return &reply[replayAnswer]{Body: replayAnswer{Report: *report, Changes: told.Changes, Warnings: told.Warnings}}, nil
}

// replay decides records again until it is done or ctx's end is near.
func (a *Plane) replay(ctx context.Context, c replay.Config, found []decisions.Entry) (*replay.Report, error) {
	r, err := replay.New(c)
	if err != nil {
		return nil, a.failed("setting up the replay", err)
	}
	ctx, cancel := context.WithTimeout(ctx, replayPatience)
	defer cancel()
	for i := range found {
		if i%timeEvery == 0 && ctx.Err() != nil {
			return nil, invalid("body.last", "so many take longer than "+replayPatience.String()+": ask for fewer, or export the decisions and use tierway replay", len(found))
		}
		r.Add(found[i].Decision)
	}
	return r.Report(), nil
}
