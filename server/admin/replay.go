package admin

import (
	"cmp"
	"context"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"tierway/decisions"
	"tierway/replay"
)

type ReplayOrder struct {
	Last   int           `json:"last,omitempty" minimum:"1" maximum:"100000" doc:"The newest so many records, of those that match; absent: 1,000."`
	Filter *ReplayFilter `json:"filter,omitempty" doc:"As the query of /admin/decisions."`
	Draft  *string       `json:"draft,omitempty" doc:"As of /admin/route/explain. Absent: the records are checked against the configuration in force."`
}

// ReplayFilter is a decisions.Filter as a body carries it.
type ReplayFilter decisions.Filter

// TransformSchema describes what a body says otherwise than a query.
func (ReplayFilter) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Properties["since"].Description = "Only requests that came then or later."
	s.Properties["until"].Description = "Only requests that came before."
	s.Properties["status"].Description = ""
	return s
}

type replayAnswer struct {
	replay.Report
	DraftReview
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
	under, review, err := a.draft(o.Draft)
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
	return &reply[replayAnswer]{Body: replayAnswer{Report: *report, DraftReview: review}}, nil
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
