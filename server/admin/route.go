package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tierway/config"
	"tierway/decisions"
	"tierway/replay"
	"tierway/server/control"
	"tierway/tenants"
)

// ExplainOrder is the body of POST /admin/route/explain.
type ExplainOrder struct {
	Tenant   string            `json:"tenant,omitempty" maxLength:"63" doc:"Who asks; absent: whoever key_id is of, else somebody who may use everything."`
	KeyID    string            `json:"key_id,omitempty" maxLength:"64" doc:"By which of its keys; absent: by one that narrows nothing."`
	Class    string            `json:"class,omitempty" enum:"interactive,background,batch" doc:"As X-Request-Priority."`
	Path     string            `json:"path,omitempty" maxLength:"500" doc:"That it is sent to; absent: /v1/chat/completions."`
	Headers  map[string]string `json:"headers,omitempty" doc:"Of the request, such as X-Model-Tier or X-Session-ID. Credentials are refused: name tenant or key_id."`
	Request  json.RawMessage   `json:"request,omitempty" doc:"The body, in the dialect of its path."`
	Decision string            `json:"decision,omitempty" maxLength:"128" doc:"The id of a past request, in place of request."`
	Draft    *string           `json:"draft,omitempty" doc:"A complete configuration to try, as YAML. It is checked like a file and not applied. It reads no file and no variable of the environment; ${NAME} is replaced where the live file has the same text under the same key."`
}

// RouteExplanation is an explanation under the configuration in force and, where a
// draft was sent, the one under it beside that.
type RouteExplanation struct {
	decisions.Explanation
	Draft   *decisions.Explanation `json:"draft,omitempty" doc:"The same request under the draft, by the same chance."`
	Changed []string               `json:"changed,omitempty" doc:"What is another under the draft: outcome, tier, worker."`
	DraftReview
}

// DraftReview is what is to be said of a draft itself.
type DraftReview struct {
	Changes  []config.Change `json:"changes,omitempty" doc:"What the draft changes of the configuration in force."`
	Warnings []ProblemView   `json:"warnings,omitempty" doc:"Of the draft."`
}

// routeAPI explains and replays requests, one at a time: the sender of a draft chooses how
// much it takes of a core that requests need.
type routeAPI struct {
	*gateway
	drafting  sync.Mutex // explanations under a draft
	replaying sync.Mutex // replays
}

func (a *routeAPI) explainRoute(ctx context.Context, in *struct{ Body ExplainOrder }) (*reply[RouteExplanation], error) {
	o := &in.Body
	if (o.Decision == "") == (len(o.Request) == 0) {
		return nil, invalid("body", "name request or decision, one of them", nil)
	}
	if o.Draft != nil { // whoever sends one chooses how long it takes, of a core that others need
		if !a.drafting.TryLock() {
			return nil, huma.Error409Conflict("Another request is being explained under a draft. Try again when that is done, which takes a fraction of a second.")
		}
		defer a.drafting.Unlock()
	}
	under, review, err := a.draft(o.Draft)
	if err != nil {
		return nil, err
	}
	answer := RouteExplanation{DraftReview: review}
	if o.Decision != "" {
		err = a.explainDecision(o, under, &answer)
	} else {
		err = a.explainRequest(ctx, o, under, &answer)
	}
	if err != nil {
		return nil, err
	}
	if answer.Draft != nil {
		answer.Changed = changedBetween(&answer.Explanation, answer.Draft)
	}
	return &reply[RouteExplanation]{Body: answer}, nil
}

// draft builds a draft from its text; nil without one.
func (a *routeAPI) draft(text *string) (under *control.Snapshot, review DraftReview, err error) {
	if text == nil {
		return nil, review, nil
	}
	base := a.control.Snapshot().Base
	f, err := base.Draft([]byte(*text))
	if err != nil {
		return nil, review, draftRejected(err)
	}
	if under, err = a.control.DraftOf(f); err != nil {
		return nil, review, a.failed("building the draft", err)
	}
	return under, DraftReview{Changes: config.Changes(base, f), Warnings: mapped(f.Warnings(), problemView)}, nil
}

// draftRejected is the answer to a draft with errors: all of them, each with its
// place.
func draftRejected(err error) error {
	var problems config.Problems
	if !errors.As(err, &problems) {
		return invalid("body.draft", err.Error(), nil)
	}
	var details []error
	for _, p := range problems {
		if !p.Warning {
			details = append(details, &huma.ErrorDetail{Location: "body.draft: " + p.Path, Message: p.String()})
		}
	}
	return huma.Error422UnprocessableEntity("The draft has errors.", details...)
}

func (a *routeAPI) explainDecision(o *ExplainOrder, under *control.Snapshot, answer *RouteExplanation) error {
	if o.Tenant != "" || o.KeyID != "" || o.Class != "" || o.Path != "" || len(o.Headers) > 0 {
		return invalid("body.decision", "a past request has its own tenant, key, class, path and headers: name none beside it", nil)
	}
	n, known := a.options.Decisions.Get(o.Decision)
	if !known {
		return huma.Error404NotFound("No decision about a request of this id is kept. The gateway keeps the last ones in memory (decisions.keep).")
	}
	live := a.control.Snapshot()
	answer.Explanation = *a.explainPast(live, n.Decision, nil)
	if under != nil {
		answer.Draft = a.explainPast(live, n.Decision, under)
	}
	return nil
}

func (a *routeAPI) explainRequest(ctx context.Context, o *ExplainOrder, under *control.Snapshot, answer *RouteExplanation) error {
	r, err := o.request(ctx)
	if err != nil {
		return err
	}
	as, err := o.caller(a.control.Snapshot().Identity, time.Now())
	if err != nil {
		return err
	}
	e, rand := a.options.Explain(r, control.Question{As: as})
	answer.Explanation = *e
	if under == nil {
		return nil
	}
	q, missing := control.Question{Under: under, Rand: rand}, error(nil)
	if q.As, missing = o.caller(under.Identity, time.Now()); missing != nil {
		q.As = as
	}
	if r, err = o.request(ctx); err != nil {
		return err
	}
	answer.Draft, _ = a.options.Explain(r, q)
	if missing != nil {
		answer.Draft.Notes = append(answer.Draft.Notes, "the draft has no such tenant or key: explained as the one in force")
	}
	return nil
}

func (o *ExplainOrder) request(ctx context.Context) (*http.Request, error) {
	path := cmp.Or(o.Path, "/v1/chat/completions")
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(o.Request))
	if err != nil || !strings.HasPrefix(path, "/") {
		return nil, invalid("body.path", "expected a path such as /v1/chat/completions", o.Path)
	}
	r.Header.Set("Content-Type", "application/json")
	for name, value := range o.Headers {
		switch name = http.CanonicalHeaderKey(name); name {
		case "Authorization", "X-Api-Key", "Cookie":
			return nil, invalid("body.headers", name+" is a credential: name tenant or key_id in its place", nil)
		}
		r.Header.Set(name, value)
	}
	if o.Class != "" {
		r.Header.Set("X-Request-Priority", o.Class)
	}
	return r, nil
}

// caller finds who is asked for; nil for nobody in particular.
func (o *ExplainOrder) caller(p *control.Identity, now time.Time) (*control.Subject, error) {
	if o.Tenant == "" && o.KeyID == "" {
		return nil, nil
	}
	ts, ks := p.Tenants()
	var key tenants.Key
	if o.KeyID != "" {
		at := slices.IndexFunc(ks, func(k tenants.Key) bool { return k.ID == o.KeyID && (o.Tenant == "" || k.Tenant == o.Tenant) })
		if at < 0 {
			return nil, invalid("body.key_id", "there is no such key", o.KeyID)
		}
		key = ks[at]
	}
	name := cmp.Or(o.Tenant, key.Tenant)
	at := slices.IndexFunc(ts, func(t tenants.Tenant) bool { return t.Name == name })
	if at < 0 {
		return nil, invalid("body.tenant", "there is no such tenant", name)
	}
	is := &control.Subject{Caller: tenants.NewCaller(ts[at], key), Who: "tenant " + name}
	if o.KeyID != "" {
		is.Who += fmt.Sprintf(", key %s (%s)", key.Hint, key.ID)
	}
	switch {
	case o.KeyID != "" && !key.Valid(now):
		is.Barred = tenants.ErrUnknownKey
	case ts[at].Disabled:
		is.Barred = tenants.ErrDisabled
	}
	return is, nil
}

func changedBetween(a, b *decisions.Explanation) []string {
	changed := []string{}
	for _, f := range [...]struct{ name, was, is string }{{"outcome", a.Outcome, b.Outcome}, {"tier", a.Tier, b.Tier}, {"worker", a.Worker, b.Worker}} {
		if f.was != f.is {
			changed = append(changed, f.name)
		}
	}
	return changed
}

// ReplayOrder is the body of POST /admin/route/replay.
type ReplayOrder struct {
	Last   int           `json:"last,omitempty" minimum:"1" maximum:"100000" doc:"The newest so many records, of those that match; absent: 1,000."`
	Filter *ReplayFilter `json:"filter,omitempty" doc:"As the query of /admin/decisions."`
	Draft  *string       `json:"draft,omitempty" doc:"As of /admin/route/explain. Absent: the records are checked against the configuration in force."`
}

// ReplayFilter selects the records of a replay.
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

func (a *routeAPI) replayRoute(ctx context.Context, in *struct{ Body ReplayOrder }) (*reply[replayAnswer], error) {
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
	c := replay.Config{Now: live.ReplaySetup(a.control.Pools.Gateways(live.File))}
	if under != nil {
		c.Draft = new(under.ReplaySetup(a.control.Pools.Gateways(under.File)))
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
func (a *routeAPI) replay(ctx context.Context, c replay.Config, found []decisions.Entry) (*replay.Report, error) {
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
