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
	"tierway/routing"
	"tierway/server/control"
	"tierway/tenants"
)

// ExplainOrder is the body of POST /admin/route/explain.
type ExplainOrder struct {
	Tenant   string            `json:"tenant,omitempty" maxLength:"63" doc:"Tenant to evaluate with. Absent: the tenant of key_id, or without key_id an unrestricted caller."`
	KeyID    string            `json:"key_id,omitempty" maxLength:"64" doc:"Id of the key to evaluate with. Absent: a key without restrictions."`
	Class    string            `json:"class,omitempty" enum:"interactive,background,batch" doc:"Priority class, as in X-Request-Priority."`
	Path     string            `json:"path,omitempty" maxLength:"500" doc:"Path of the request. Absent: /v1/chat/completions."`
	Headers  map[string]string `json:"headers,omitempty" doc:"Headers of the request, such as X-Model-Tier or X-Session-ID. Credentials are rejected: set tenant or key_id instead."`
	Request  json.RawMessage   `json:"request,omitempty" doc:"Body of the request, in the dialect of its path."`
	Decision string            `json:"decision,omitempty" maxLength:"128" doc:"Id of a past request to explain, instead of request."`
	Hooks    bool              `json:"hooks,omitempty" doc:"Call the hooks with the request, which sends it to their services. Not possible with decision. Hooks that a draft changes are not called."`
	Draft    *string           `json:"draft,omitempty" doc:"Complete configuration as YAML, which is checked like a file and not applied. It has at most 2,000 workers, or twice as many as the configuration in force. It reads no files and no environment variables. ${NAME} is replaced only where the live file has the same text under the same key."`
}

// RouteExplanation is an explanation under the configuration in force and, if a draft was sent, a
// second one under the draft.
type RouteExplanation struct {
	decisions.Explanation
	Draft   *decisions.Explanation `json:"draft,omitempty" doc:"Explanation of the same request under the draft, with the same random number."`
	Changed []string               `json:"changed,omitempty" doc:"What differs under the draft: outcome, tier, worker, handover. The last one is whether another worker computes the prompt, and which."`
	DraftReview
}

// DraftReview has the changes and warnings of a draft, and the live overrides that win over it.
type DraftReview struct {
	Changes   []config.Change          `json:"changes,omitempty" doc:"Differences between the draft and the configuration in force."`
	Warnings  []ProblemView            `json:"warnings,omitempty" doc:"Warnings about the draft."`
	Overrides []control.OverrideImpact `json:"overrides,omitempty" doc:"Live overrides that hide weights of the draft. They apply in its place, so that these weights change no decision."`
}

// routeAPI explains and replays requests. Explanations under a draft and replays each run one at a time,
// because either can occupy a core that requests need.
type routeAPI struct {
	*gateway
	drafting  sync.Mutex // held by an explanation under a draft
	replaying sync.Mutex // held by a replay
}

func (a *routeAPI) explainRoute(ctx context.Context, in *struct {
	Body ExplainOrder
}) (*reply[RouteExplanation], error) {
	o := &in.Body
	if (o.Decision == "") == (len(o.Request) == 0) {
		return nil, invalid("body", "send either request or decision", nil)
	}
	if o.Draft != nil { // a large draft takes long
		if !a.drafting.TryLock() {
			return nil, huma.Error409Conflict("Another explanation under a draft is running. Try again in a second.")
		}
		defer a.drafting.Unlock()
	}
	under, review, err := a.draft(ctx, o.Draft, "tierway explain -c")
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

// maxDraftWorkers is the largest number of workers in a draft, unless twice the number in force is larger. The
// evaluation of so many occupies a core for half a second.
const maxDraftWorkers = 2000

// draft builds the snapshot of a draft from its text. It returns nil if text is nil. The command evaluates larger
// drafts elsewhere. Each step ends with the request: it may take a second.
func (a *routeAPI) draft(ctx context.Context, text *string, command string) (under *control.Snapshot,
	review DraftReview, err error) {
	if text == nil {
		return nil, review, nil
	}
	base := a.control.Snapshot().Base
	f, err := base.Draft(ctx, config.RestoreHidden([]byte(*text), a.options.Path))
	if err := unfinished(ctx); err != nil {
		return nil, review, err
	}
	if err != nil {
		return nil, review, draftRejected(err)
	}
	if n, maxWorkers := f.WorkerCount(), max(maxDraftWorkers, 2*base.WorkerCount()); n > maxWorkers {
		return nil, review, invalid("body.draft", fmt.Sprintf("the draft has %d workers, and the gateway evaluates at most "+
			"%d: send a draft with fewer workers, or evaluate the file with %s, which needs no gateway", n, maxWorkers, command),
			nil)
	}
	under, changes, err := a.control.DraftOf(f)
	if err != nil {
		return nil, review, a.failed("building the draft", err)
	}
	if err := unfinished(ctx); err != nil {
		return nil, review, err
	}
	review = DraftReview{Changes: changes, Warnings: mapped(f.Warnings(), problemView),
		Overrides: a.control.HiddenWeights(f)}
	return under, review, unfinished(ctx)
}

// unfinished returns the error of a request that ends before its work: the client is gone, or a time limit has passed.
func unfinished(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return huma.Error503ServiceUnavailable("The work took longer than " + adminPatience.String() +
		", or the client disconnected. Send a smaller draft, or try again when the gateway is less busy.")
}

// draftRejected returns the answer to a draft with errors: all of them, each with its path.
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
	return huma.Error422UnprocessableEntity("The draft has errors. Correct them and send it again.", details...)
}

func (a *routeAPI) explainDecision(o *ExplainOrder, under *control.Snapshot, answer *RouteExplanation) error {
	if o.Hooks {
		return invalid("body.hooks", "a past request is explained with the recorded results of its hooks: remove it", nil)
	}
	if o.Tenant != "" || o.KeyID != "" || o.Class != "" || o.Path != "" || len(o.Headers) > 0 {
		return invalid("body.decision",
			"a past request has its own tenant, key, class, path and headers: send none of them with decision", nil)
	}
	n, known := a.options.Decisions.Get(o.Decision)
	if !known {
		return huma.Error404NotFound("There is no record of a request with this id. The gateway keeps the last records in " +
			"memory (decisions.keep).")
	}
	live := a.control.Snapshot()
	answer.Explanation = *a.explainPast(live, n.Decision, nil)
	if under != nil {
		answer.Draft = a.explainPast(live, n.Decision, under)
	}
	return nil
}

func (a *routeAPI) explainRequest(ctx context.Context, o *ExplainOrder, under *control.Snapshot,
	answer *RouteExplanation) error {
	r, err := o.request(ctx)
	if err != nil {
		return err
	}
	as, err := upToDate(ctx, a.gateway, func() (*control.Subject, error) {
		return o.caller(a.control.Snapshot().Identity, time.Now())
	})
	if err != nil {
		return err
	}
	e, rand := a.options.Explain(r, control.Question{As: as, Hooks: o.Hooks})
	answer.Explanation = *e
	if under == nil {
		return nil
	}
	if err := unfinished(ctx); err != nil {
		return err
	}
	q, missing := control.Question{Under: under, Rand: rand, Hooks: o.Hooks}, error(nil)
	if q.As, missing = o.caller(under.Identity, time.Now()); missing != nil {
		q.As = as
	}
	if r, err = o.request(ctx); err != nil {
		return err
	}
	answer.Draft, _ = a.options.Explain(r, q)
	if missing != nil {
		answer.Draft.Notes = append(answer.Draft.Notes,
			"the draft does not have this tenant or key: explained with those of the configuration in force")
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
		case "Authorization", "X-Api-Key", "Api-Key", "Cookie":
			return nil, invalid("body.headers", name+" is a credential: send tenant or key_id instead", nil)
		}
		r.Header.Set(name, value)
	}
	if o.Class != "" {
		r.Header.Set("X-Request-Priority", o.Class)
	}
	return r, nil
}

// caller returns the subject that the order names, or nil if it names none.
func (o *ExplainOrder) caller(p *control.Identity, now time.Time) (*control.Subject, error) {
	if o.Tenant == "" && o.KeyID == "" {
		return nil, nil
	}
	var key tenants.Key
	if o.KeyID != "" {
		known := false
		if key, known = p.Directory.Key(o.KeyID); !known || o.Tenant != "" && key.Tenant != o.Tenant {
			return nil, invalid("body.key_id", "there is no such key; GET /admin/tenants/{name}/keys lists the ids", o.KeyID)
		}
	}
	name := cmp.Or(o.Tenant, key.Tenant)
	tenant, known := p.Directory.Tenant(name)
	if !known {
		return nil, invalid("body.tenant", "there is no such tenant; GET /admin/tenants lists the names", name)
	}
	subject := &control.Subject{Caller: tenants.NewCaller(tenant, key), Name: "tenant " + name}
	if o.KeyID != "" {
		subject.Name += fmt.Sprintf(", key %s (%s)", key.Hint, key.ID)
	}
	switch {
	case o.KeyID != "" && !key.Valid(now):
		subject.Barred = tenants.ErrUnknownKey
	case tenant.Disabled:
		subject.Barred = tenants.ErrDisabled
	}
	return subject, nil
}

func changedBetween(a, b *decisions.Explanation) []string {
	changed := []string{}
	for _, f := range [...]struct {
		name, before, after string
	}{{"outcome", a.Outcome, b.Outcome}, {"tier", a.Tier, b.Tier}, {"worker", a.Worker, b.Worker},
		{"handover", handoverOf(a), handoverOf(b)}} {
		if f.before != f.after {
			changed = append(changed, f.name)
		}
	}
	return changed
}

// handoverOf returns who computes the prompt: local, or remote and the prefill worker; "" without a hand-over.
func handoverOf(e *decisions.Explanation) string {
	switch h := e.Handover; {
	case h == nil:
		return ""
	case h.Decision == routing.HandoverRemote:
		return h.Decision + " " + h.Worker
	default:
		return h.Decision
	}
}

// ReplayOrder is the body of POST /admin/route/replay.
type ReplayOrder struct {
	Last   int           `json:"last,omitempty" minimum:"1" maximum:"100000" doc:"Number of newest matching records to replay. Absent: 1,000."`
	Filter *ReplayFilter `json:"filter,omitempty" doc:"Filter with the same fields as the query of GET /admin/decisions."`
	Draft  *string       `json:"draft,omitempty" doc:"Draft, as in POST /admin/route/explain. Absent: the records are checked against the configuration in force."`
}

// ReplayFilter selects the records of a replay.
type ReplayFilter decisions.Filter

// TransformSchema replaces the descriptions that hold for a query only.
func (ReplayFilter) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Properties["since"].Description = "Only requests that arrived at this time or later."
	s.Properties["until"].Description = "Only requests that arrived before this time."
	s.Properties["status"].Description = ""
	return s
}

type replayAnswer struct {
	replay.Report
	DraftReview
}

const (
	// replayUsual is the default number of replayed records: shares are accurate to three percentage
	// points, and the replay takes tens of milliseconds.
	replayUsual = 1000
	// replayPatience is the time limit of a replay. The rest of adminPatience is for the answer.
	replayPatience = adminPatience * 4 / 5
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
	if !a.replaying.TryLock() { // a replay occupies a core that requests need
		return nil, huma.Error409Conflict("Another replay is running. Try again in a few seconds.")
	}
	defer a.replaying.Unlock()
	under, review, err := a.draft(ctx, o.Draft, "tierway replay -c")
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

// replay repeats the decisions of records, within replayPatience and the deadline of ctx.
func (a *routeAPI) replay(ctx context.Context, c replay.Config, found []decisions.Entry) (*replay.Report, error) {
	r, err := replay.New(c)
	if err != nil {
		return nil, a.failed("setting up the replay", err)
	}
	ctx, cancel := context.WithTimeout(ctx, replayPatience)
	defer cancel()
	for i := range found {
		if ctx.Err() != nil {
			break
		}
		r.Add(found[i].Decision)
	}
	for ctx.Err() == nil && r.Step() {
		continue
	}
	if ctx.Err() != nil {
		return nil, invalid("body.last", "replaying these records takes longer than "+replayPatience.String()+
			": send a smaller last, or export the decisions and run tierway replay", len(found))
	}
	return r.Report(), nil
}
