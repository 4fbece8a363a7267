package proxy

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"tierway/decisions"
	"tierway/openai"
	"tierway/routing"
	"tierway/server/control"
	"tierway/server/intake"
	"tierway/store"
	"tierway/tenants"
	"tierway/tiers"
)

// Explain walks a request through the data plane up to the worker that it would be sent
// to, by the code that serves requests, and sends nothing. A request without a key is
// explained for a tenant who may use everything. Nothing is booked, counted, learned, logged or written
// down. It returns the random number by which a worker was picked, too; nil where none
// was.
func (px *Proxy) Explain(r *http.Request, q control.Question) (*decisions.Explanation, *uint64) {
	snap := px.control.Snapshot()
	if q.Under != nil {
		snap = q.Under
	}
	in, allowed := intake.Find(r)
	n := &explainer{Question: q, x: px.newExchange(snap, discarded{http.Header{}}, in), allowed: allowed}
	if err := px.control.Vocabularies.Load(snap.Vocabulary); err != nil {
		n.note("%v", err)
	}
	defer px.intake.DropPrompt(&n.x.parsed)
	defer n.x.in.Memory.Release()
	if err := px.control.Recoverer.Try("explaining a request", n.run); err != nil {
		n.refuse(n.stage, translate(err))
	}
	return n.explanation(), n.drawn
}

// discarded is the header of an answer that no client is sent.
type discarded struct{ header http.Header }

// Header is part of http.ResponseWriter.
func (w discarded) Header() http.Header { return w.header }

// WriteHeader is part of http.ResponseWriter.
func (discarded) WriteHeader(int) {}

// WriteHeaderNow is part of gin.ResponseWriter.
func (discarded) WriteHeaderNow() {}

// SetReadDeadline does nothing: the request is all there.
func (discarded) SetReadDeadline(time.Time) error { return nil }

// Write is part of http.ResponseWriter.
func (discarded) Write(p []byte) (int, error) { return len(p), nil }

// explainer walks one request through the stages that serve requests.
type explainer struct {
	control.Question
	x       *exchange
	allowed []string // the methods for which the path has a route

	who     string // who asks
	notes   []string
	limits  []tenants.Use
	partial bool                   // of several gateways the limits are known in part only
	class   tiers.ClassifierReport // of a request that was classified
	preview *routing.Preview
	queue   *decisions.QueueStep
	waits   bool    // it would wait for a worker
	drawn   *uint64 // by which a worker was picked; nil: none was
	stage   string  // that refused it; empty: none
	refusal *openai.Error
}

// note adds to what a reader should know.
func (n *explainer) note(format string, args ...any) {
	n.notes = append(n.notes, fmt.Sprintf(format, args...))
}

// run runs the stages, and keeps the one that refuses the request.
func (n *explainer) run() (err error) {
	n.stage = decisions.StageRequest // of a panic
	n.stage, err = n.walk()
	return err
}

// walk runs the stages, and returns the one that refuses the request and its error.
func (n *explainer) walk() (stage string, err error) {
	x := n.x
	it := x.s.intake
	if err := it.CheckLoop(&x.in); err != nil {
		return decisions.StageAuth, err
	}
	if err := n.authenticate(); err != nil {
		return decisions.StageAuth, err
	}
	if x.in.Kind == intake.Models || x.in.Kind == intake.Stored {
		return decisions.StageRequest, notExplained()
	}
	if x.routed() {
		if x.parsed, err = it.Read(&x.in, &x.caller); err != nil {
			return decisions.StageRequest, err
		}
		if x.resolution, err = it.Resolve(&x.in, &x.caller, &x.parsed, intake.View{Chats: it.Chats().ReadOnly(), Evidence: true, Explained: &n.class}); err != nil {
			return decisions.StageTier, err
		}
	} else if err := n.readPassed(); err != nil {
		return decisions.StageRequest, err
	}
	if x.resolution.Overlong {
		n.note("longer than the context of %d tokens by the estimate; the engine decides", x.resolution.Pool.Context)
	}
	if err := x.charge(n); err != nil {
		return decisions.StageLimits, err
	}
	return n.place()
}

// notExplained is said of a request that names a stored answer, or asks for no
// inference.
func notExplained() error {
	return &openai.Error{Code: openai.CodeEndpointNotSupported, Message: "Only requests that are routed by their model are explained; this one is not."}
}

// authenticate finds the caller for whom a request is explained: the one that the question
// names, else the key's, else a tenant who may use everything.
func (n *explainer) authenticate() (err error) {
	x := n.x
	if is := n.As; is != nil {
		n.who, x.caller.Caller = is.Who, is.Caller
		return intake.RefusedKey(is.Barred)
	}
	h := x.in.HTTP.Header
	_, given := control.Credential(h)
	c, unknown, err := x.s.intake.Identify(&x.in)
	x.caller = c
	if keyless := !given && h.Get("Authorization") == "" && h.Get("X-Api-Key") == ""; keyless && (err == nil || unknown) {
		n.who, x.caller.Caller = "no key: explained for a tenant who may use everything", tenants.Anonymous()
		n.note("%s", n.who)
		return nil
	}
	switch {
	case c.Caller == nil:
	case c.Key == tenants.Anonymous().Key:
		n.who = "an unknown key, where none is required"
	case err != nil:
		n.who = "tenant " + c.Tenant
	default:
		n.who = "tenant " + c.Tenant + ", key " + c.Key
	}
	return err
}

// readPassed reads a request that matches no route.
func (n *explainer) readPassed() (err error) {
	x := n.x
	x.in.Dialect = openai.Other
	status := 0
	if len(n.allowed) > 0 {
		status = http.StatusMethodNotAllowed
		x.answer.header().Set("Allow", strings.Join(n.allowed, ", "))
	}
	if x.resolution.Pool, err = intake.FindPool(&x.in, &x.caller, status); err != nil {
		return err
	}
	if id, below, ok := openai.ResponsePath(x.in.HTTP.URL.Path); ok && id != "" && (x.in.HTTP.Method != http.MethodPost || below != "") {
		return notExplained()
	}
	return readPassed(x)
}

// Take looks at the limits as charge takes from them.
func (n *explainer) Take(_ context.Context, c *tenants.Charge) (_ *store.Grant, v tenants.Admission, err error) {
	v, n.limits, n.partial, err = n.x.s.control.Stores.Limits.Peek(c)
	return nil, v, err
}

// refuse keeps the refusal of the request: it is an outcome.
func (n *explainer) refuse(stage string, err *openai.Error) { n.stage, n.refusal = stage, err }

// explanation is what the walk has found.
func (n *explainer) explanation() *decisions.Explanation {
	x, res := n.x, &n.x.resolution
	e := &decisions.Explanation{Outcome: decisions.WouldRoute, Dialect: x.in.Dialect.String(), Generation: x.in.Snap.Generation, SnapshotAt: x.in.Start.UTC(),
		RequestedModel: res.Requested, Rule: res.Rule, Note: res.Note, Model: res.ModelName,
		PromptTokens: cmp.Or(x.facts.PromptTokens, x.parsed.Estimate), Blocks: len(x.facts.Blocks)}
	if x.caller.Caller != nil {
		e.Tenant, e.Key = x.caller.Tenant, x.caller.Key
	}
	if res.Pool != nil && res.Rule != "" {
		e.Tier, e.Policy = res.Pool.Name, res.Pool.Policy.Name
	}
	if p := x.parsed.Prompt; p != nil {
		e.UserTextBytes = p.UserTextBytes()
	}
	if req := x.parsed.Req; req != nil {
		e.Class, e.MaxTokens, e.Stream, e.Estimate = x.parsed.Class.String(), req.MaxTokens, req.Stream, n.tokenEstimate()
		if x.in.Dialect != openai.Other && req.Media {
			n.note("images, audio and files are not in the estimate")
		}
	}
	if n.class.Rule != "" {
		e.Classified = &n.class
	}
	if o := n.preview; o != nil {
		e.Worker, e.Reason, e.RunnerUp, e.Candidates = o.Worker, string(o.Reason), o.Choice.RunnerUp, o.Choice.Candidates
	}
	if n.waits {
		e.Outcome = decisions.WouldQueue
	}
	if err := n.refusal; err != nil {
		e.Outcome, e.Status, e.Code, e.Error = decisions.WouldReject, err.HTTPStatus(), string(err.Code), string(err.Body(x.in.Shape, x.in.RequestID))
		e.Limit = string(x.admission.Allowance.Refused)
	}
	if n.queue != nil {
		e.Shed = n.queue.Shed
	}
	e.Notes = n.notes
	e.Steps = n.steps(e)
	e.Summary = e.Sentence(e.Steps)
	return e
}
