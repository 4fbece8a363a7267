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

// Explain runs the stages of the data plane for a request up to the selection of a worker, with the
// code that serves requests, and sends nothing. A request without a key is explained for an
// unrestricted tenant. Explain reserves, counts, learns, logs and records nothing. It also returns the
// random number that the selection used, or nil if no worker was selected.
func (px *Proxy) Explain(r *http.Request, q control.Question) (*decisions.Explanation, *uint64) {
	snap := px.control.Snapshot()
	if q.Under != nil {
		snap = q.Under
	}
	in, allowed := intake.FindRoute(r)
	n := &explainer{Question: q, x: px.newExchange(snap, discarded{http.Header{}}, in), allowed: allowed}
	n.x.explained = true
	if err := px.control.Vocabularies.Load(snap.Vocabulary); err != nil {
		n.addNote("%v", err)
	}
	defer px.intake.DropPrompt(&n.x.parsed)
	defer n.x.in.Memory.Release()
	if err := px.control.Recoverer.Try("explaining a request", n.run); err != nil {
		n.refusal = translate(err) // a regular result
	}
	return n.explanation(), n.drawn
}

// discarded is the writer of an answer that is not sent.
type discarded struct{ header http.Header }

func (w discarded) Header() http.Header { return w.header }

func (discarded) WriteHeader(int) {}

func (discarded) WriteHeaderNow() {}

// SetReadDeadline does nothing: the whole request is in memory.
func (discarded) SetReadDeadline(time.Time) error { return nil }

func (discarded) Write(p []byte) (int, error) { return len(p), nil }

// explainer runs the stages for one request that is not sent.
type explainer struct {
	control.Question
	x       *exchange
	allowed []string // methods for which the path has a route, if the request matches none

	callerText string // description of the caller
	notes      []string
	limits     []tenants.Use
	partial    bool                   // the limits of other gateways are unknown
	class      tiers.ClassifierReport // result of the classifier, if it ran
	preview    *routing.Preview
	queue      *decisions.QueueStep
	waits      bool    // the request would wait for a worker
	drawn      *uint64 // random number of the selection; nil: no selection
	stage      string  // the stage that refused the request; empty: none
	refusal    *openai.Error
}

func (n *explainer) addNote(format string, args ...any) {
	n.notes = append(n.notes, fmt.Sprintf(format, args...))
}

// run calls the stages, and stores the stage that refuses the request.
func (n *explainer) run() (err error) {
	n.stage = decisions.StageRequest // after a panic
	n.stage, err = n.runStages()
	return err
}

// runStages calls the stages in their order. It returns the stage that refuses the request, and its error.
func (n *explainer) runStages() (stage string, err error) {
	x := n.x
	it := x.s.intake
	if err := it.CheckLoop(&x.in); err != nil {
		return decisions.StageAuth, err
	}
	if err := n.authenticate(); err != nil {
		return decisions.StageAuth, err
	}
	if x.in.Kind == intake.Models || x.in.Kind == intake.Stored || x.in.Kind == intake.Feedback {
		return decisions.StageRequest, notExplained()
	}
	if isRouted(&x.in, &x.caller) {
		if x.parsed, err = it.Read(&x.in, &x.caller); err != nil {
			return decisions.StageRequest, err
		}
		if err = n.explainHooks(); err != nil {
			return decisions.StageRequest, err
		}
		if x.resolution, err = it.Resolve(&x.in, &x.caller, &x.parsed, intake.ResolveOptions{Chats: it.Chats().ReadOnly(),
			Evidence: true, Explained: &n.class}); err != nil {
			return decisions.StageTier, err
		}
		if score := x.resolution.Evidence.Score; score != nil {
			n.addNote("%s", score)
		}
		if score := x.resolution.Evidence.Model; score != nil {
			n.addNote("%s", score)
		}
		if l := x.in.Snap.File.Learning; l.Directory != "" && l.Exploration > 0 && n.explorable() {
			n.addNote("learning.exploration: %g %% of such requests get the first or the last tier at random",
				100*l.Exploration)
		}
	} else if err := n.readPassed(); err != nil {
		return decisions.StageRequest, err
	}
	if x.resolution.Overlong {
		n.addNote("the estimate exceeds the context of %d tokens; the engine decides", x.resolution.Pool.Context)
	}
	if p := x.resolution.Pool; x.parsed.Req != nil && isRouted(&x.in, &x.caller) {
		if to := x.parsed.MaxTokensAt(p); to < x.parsed.Req.MaxTokens {
			n.addNote("max_tokens is lowered from %d to %d, which fits into the context of %d", x.parsed.Req.MaxTokens, to,
				p.Context)
		}
	}
	if err := x.charge(n); err != nil {
		return decisions.StageLimits, err
	}
	n.noteCache()
	return n.previewWorker()
}

// explorable reports whether the tier of such a request may be selected at random.
func (n *explainer) explorable() bool {
	return n.class.Explorable && n.x.resolution.Classified && !n.x.parsed.FollowsUp() &&
		!n.x.in.Snap.IsRepeater(n.x.caller.Caller)
}

// notExplained returns the answer to a request about a stored response or without inference.
func notExplained() error {
	return &openai.Error{Code: openai.CodeEndpointNotSupported,
		Message: "Only requests that are routed by their model can be explained; this request is not."}
}

// authenticate finds the caller for the explanation: the caller of the question, else the caller of the
// key, else an unrestricted tenant.
func (n *explainer) authenticate() (err error) {
	x := n.x
	if subject := n.As; subject != nil {
		n.callerText, x.caller.Caller = subject.Name, subject.Caller
		return intake.RefusedKey(subject.Barred)
	}
	h := x.in.HTTP.Header
	c, unknown, err := x.s.intake.Identify(&x.in)
	x.caller = c
	if keyless := !control.HasKey(h) && h.Get("Authorization") == ""; keyless && (err == nil || unknown) {
		n.callerText, x.caller.Caller = "no key: explained for an unrestricted tenant", tenants.Anonymous()
		n.addNote("%s", n.callerText)
		return nil
	}
	switch {
	case c.Caller == nil:
	case c.Key == tenants.Anonymous().Key:
		n.callerText = "an unknown key; no key is required"
	case err != nil:
		n.callerText = "tenant " + c.Tenant
	default:
		n.callerText = "tenant " + c.Tenant + ", key " + c.Key
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
	if id, below, ok := openai.ResponsePath(x.in.HTTP.URL.Path); ok && id != "" &&
		(x.in.HTTP.Method != http.MethodPost || below != "") {
		return notExplained()
	}
	return x.readPassed()
}

// TakeCharge implements intake.Limits: it reads the limits and reserves nothing.
func (n *explainer) TakeCharge(_ context.Context, c *tenants.Charge) (_ *store.Grant, v tenants.Admission, err error) {
	v, n.limits, n.partial, err = n.x.s.control.Stores.Limits.Peek(c)
	return nil, v, err
}

func (n *explainer) explanation() *decisions.Explanation {
	x, res := n.x, &n.x.resolution
	e := &decisions.Explanation{
		Outcome:        decisions.WouldRoute,
		Dialect:        x.in.Dialect.String(),
		Generation:     x.in.Snap.Generation,
		SnapshotAt:     x.in.Start.UTC(),
		RequestedModel: res.Requested,
		Rule:           res.Rule,
		Note:           res.Note,
		Model:          res.ModelName,
		PromptTokens:   cmp.Or(x.facts.PromptTokens, x.parsed.Estimate),
		Blocks:         len(x.facts.Blocks),
		Hooks:          x.hooks.records,
	}
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
			n.addNote("the estimate excludes images, audio and files")
		}
	}
	if n.class.Rule != "" {
		e.Classified = &n.class
	}
	if o := n.preview; o != nil {
		e.Worker, e.Reason, e.RunnerUp, e.Candidates = o.Worker, string(o.Reason), o.Choice.RunnerUp, o.Choice.Candidates
		e.Handover = o.Choice.Handover
	}
	if x.cached != nil {
		e.Cache = &x.cached.record
	}
	if n.waits {
		e.Outcome = decisions.WouldQueue
	}
	if err := n.refusal; err != nil {
		e.Outcome, e.Status, e.Code, e.Error = decisions.WouldReject, err.HTTPStatus(), string(err.Code),
			string(err.Body(x.in.Shape, x.in.RequestID))
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
