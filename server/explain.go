package server

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"

	"tierway/openai"
	"tierway/routing"
	"tierway/store"
	"tierway/tenants"
	"tierway/tiers"
)

// The outcomes of an explanation.
const (
	wouldRoute  = "route"
	wouldQueue  = "queue"
	wouldReject = "reject"
	wasAnswered = "answer"
	wasLeft     = "left"
)

// Explanation is what is decided about one request, and why. It holds features
// and names, never text of a prompt.
type Explanation struct {
	Outcome string   `json:"outcome" enum:"route,queue,reject,answer,left" doc:"It would be sent at once, wait for a worker, or be refused; of a past one that no worker was asked for also: the gateway answered it itself, or its client left before."`
	Summary string   `json:"summary" doc:"One sentence."`
	Tenant  string   `json:"tenant"`
	Key     string   `json:"key,omitempty" doc:"The key's id."`
	Class   string   `json:"class,omitempty"`
	Dialect string   `json:"dialect,omitempty"`
	Stream  bool     `json:"stream,omitempty"`
	Notes   []string `json:"notes,omitempty" doc:"What differs from a request that a client sends."`

	RequestedModel string             `json:"requested_model,omitempty"`
	PromptTokens   int64              `json:"prompt_tokens_estimate"`
	MaxTokens      int64              `json:"max_tokens,omitempty"`
	UserTextBytes  int                `json:"user_text_bytes" doc:"Of the last user turn, as far as it is looked at."`
	Classified     *tiers.Explanation `json:"classified,omitempty" doc:"Absent where no content was looked at."`
	Estimate       *TokenEstimate     `json:"estimate,omitempty" doc:"Absent where the request could not be read."`

	Tier  string `json:"tier,omitempty"`
	Rule  string `json:"rule,omitempty"`
	Note  string `json:"note,omitempty"`
	Model string `json:"model,omitempty" doc:"The name that the worker is asked for."`

	Policy     string              `json:"policy,omitempty"`
	Blocks     int                 `json:"blocks" doc:"Of the prompt's chain."`
	Worker     string              `json:"worker,omitempty" doc:"With the outcome queue: the one that it would wait for, if there is one."`
	Reason     string              `json:"reason,omitempty"`
	RunnerUp   string              `json:"runner_up,omitempty"`
	Candidates []routing.Candidate `json:"candidates,omitempty"`

	Status int    `json:"status,omitempty" doc:"Of the refusal; absent when the request would be sent."`
	Code   string `json:"code,omitempty" doc:"Of the refusal."`
	Limit  string `json:"limit,omitempty" doc:"Which limit refuses."`
	Shed   string `json:"shed,omitempty" doc:"Why the queue refuses."`
	Error  string `json:"error,omitempty" doc:"The refusal's body."`

	Steps      []Step    `json:"steps,omitempty" doc:"What each stage says, in the order in which a request passes them, up to the one that refuses."`
	Generation int64     `json:"config_generation"`
	SnapshotAt time.Time `json:"snapshot_at" doc:"When loads and limits were as they are told."`
}

// subject is for whom a request is explained.
type subject struct {
	caller *tenants.Caller
	who    string
	barred error // what its requests are answered; nil: they are served
}

// question is what an explanation is asked for besides the request.
type question struct {
	as    *subject  // who asks, where the request has no key; nil: whoever its key says
	under *snapshot // of a draft; nil: the configuration in force
	rand  *uint64   // the random number that a worker is picked by; nil: a fresh one
}

// Explain walks a request through the data plane up to the worker that it would
// be sent to, by the code that serves requests, and sends nothing. A request
// without a key is explained for a tenant who may use everything.
func (s *Server) Explain(r *http.Request) *Explanation {
	e, _ := s.explain(r, question{})
	return e
}

// explain explains a request. Nothing is booked, counted, learned, logged or written
// down. It returns the random number by which a worker was picked, too; nil where none
// was.
func (s *Server) explain(r *http.Request, q question) (*Explanation, *uint64) {
	snap := s.snapshot.Load()
	if q.under != nil {
		snap = q.under
	}
	in, allowed := inboundOf(r)
	n := &explainer{question: q, x: s.newExchange(snap, discarded{http.Header{}}, in), allowed: allowed}
	if err := s.tokens.load(snap.vocabulary); err != nil {
		n.note("%v", err)
	}
	defer n.x.dropPrompt()
	defer n.x.in.memory.release()
	if err := s.runRecovered("explaining a request", n.run); err != nil {
		n.refuse(n.stage, translate(err))
	}
	return n.explanation(), n.drawn
}

// inboundOf returns a request as the router would find it. For a request that matches no
// route, allowed are the methods for which its path has one.
func inboundOf(r *http.Request) (in inbound, allowed []string) {
	if r.URL.Path == "/livez" || r.URL.Path == "/readyz" {
		return outside(r), []string{http.MethodGet, http.MethodHead}
	}
	for _, p := range prefixes() {
		below, ok := strings.CutPrefix(r.URL.Path, p.path)
		if !ok {
			continue
		}
		for _, rt := range routes() {
			if !matchRoute(rt.path, below) {
				continue
			}
			if rt.method == r.Method {
				return rt.inbound(r, p, path.Base(below)), nil
			}
			allowed = append(allowed, rt.method)
		}
	}
	return outside(r), allowed
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
	question
	x       *exchange
	allowed []string // the methods for which the path has a route

	who     string // who asks
	notes   []string
	limits  []tenants.Use
	partial bool // of several gateways the limits are known in part only
	outlook *routing.Outlook
	queue   *QueueStep
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
	n.stage = stageRequest // of a panic
	n.stage, err = n.walk()
	return err
}

// walk runs the stages, and returns the one that refuses the request and its error.
func (n *explainer) walk() (stage string, err error) {
	x := n.x
	if err := checkLoop(x.in.r.Header, x.s.name); err != nil {
		return stageAuth, err
	}
	if err := n.authenticate(); err != nil {
		return stageAuth, err
	}
	if x.in.kind == models || x.in.kind == stored {
		return stageRequest, notExplained()
	}
	routed := x.in.pattern != routeOther && (x.in.kind != beside || x.snap.serving(x.in.dialect, x.caller.Caller) != nil)
	if routed {
		if err := x.read(); err != nil {
			return stageRequest, err
		}
		if err := x.resolve(true); err != nil {
			return stageTier, err
		}
	} else if err := n.readPassed(); err != nil {
		return stageRequest, err
	}
	if x.resolution.overlong {
		n.note("longer than the context of %d tokens by the estimate; the engine decides", x.resolution.pool.Context)
	}
	if err := x.charge(n.peek); err != nil {
		return stageLimits, err
	}
	return n.place()
}

// notExplained is said of a request that names a stored answer, or asks for no
// inference.
func notExplained() error {
	return &openai.Error{Code: openai.CodeEndpointNotSupported, Message: "Only requests that are routed by their model are explained; this one is not."}
}

// authenticate finds for whom a request is explained: for whom it was asked for,
// else whose key it has, else a tenant who may use everything.
func (n *explainer) authenticate() error {
	is, err := n.as, error(nil)
	if is == nil {
		is, err = n.subject()
	}
	if err != nil {
		return err
	}
	n.who, n.x.caller.Caller = is.who, is.caller
	return is.barred
}

// subject is who asks by the request's key.
func (n *explainer) subject() (*subject, error) {
	x := n.x
	key, given := credential(x.in.r.Header)
	anonymous := &subject{caller: tenants.Anonymous(), who: "no key: explained for a tenant who may use everything"}
	if !given && x.in.r.Header.Get("Authorization") == "" && x.in.r.Header.Get("X-Api-Key") == "" {
		n.note("%s", anonymous.who)
		return anonymous, nil
	}
	caller, err := x.snap.people.directory.Authenticate(key, x.in.start)
	switch {
	case err == nil:
		return &subject{caller: caller, who: "tenant " + caller.Tenant + ", key " + caller.Key}, nil
	case errors.Is(err, tenants.ErrDisabled):
		return &subject{caller: caller, who: "tenant " + caller.Tenant, barred: tenantDisabled()}, nil
	case x.snap.file.Auth.Required:
		return nil, badKey()
	}
	anonymous.who = "an unknown key, where none is required"
	return anonymous, nil
}

// readPassed reads a request that matches no route.
func (n *explainer) readPassed() error {
	x := n.x
	x.in.dialect = openai.Other
	status := 0
	if len(n.allowed) > 0 {
		status = http.StatusMethodNotAllowed
		x.answer.header().Set("Allow", strings.Join(n.allowed, ", "))
	}
	if err := x.findPassing(status); err != nil {
		return err
	}
	if id, below, ok := openai.ResponsePath(x.in.r.URL.Path); ok && id != "" && (x.in.r.Method != http.MethodPost || below != "") {
		return notExplained()
	}
	return x.readPassed()
}

// peek looks at the limits as charge takes from them.
func (n *explainer) peek(c *tenants.Charge) (_ *store.Grant, v tenants.Verdict, err error) {
	v, n.limits, n.partial, err = n.x.s.limits.Peek(c)
	return nil, v, err
}

// refuse keeps the refusal of the request: it is an outcome.
func (n *explainer) refuse(stage string, err *openai.Error) { n.stage, n.refusal = stage, err }

// explanation is what the walk has found.
func (n *explainer) explanation() *Explanation {
	x, res := n.x, &n.x.resolution
	e := &Explanation{Outcome: wouldRoute, Dialect: x.in.dialect.String(), Generation: x.snap.generation, SnapshotAt: x.in.start.UTC(),
		RequestedModel: res.requested, Rule: res.Rule, Note: res.Note, Model: res.model, Classified: res.Explained,
		PromptTokens: cmp.Or(x.facts.PromptTokens, x.parsed.estimate), Blocks: len(x.facts.Blocks)}
	if x.caller.Caller != nil {
		e.Tenant, e.Key = x.caller.Tenant, x.caller.Key
	}
	if res.pool != nil && res.Rule != "" {
		e.Tier, e.Policy = res.pool.Name, res.pool.Policy.Name
	}
	if p := x.parsed.prompt; p != nil {
		e.UserTextBytes = len(p.user)
	}
	if req := x.parsed.req; req != nil {
		e.Class, e.MaxTokens, e.Stream, e.Estimate = x.parsed.class.String(), req.MaxTokens, req.Stream, n.tokenEstimate()
		if x.in.dialect != openai.Other && req.Media {
			n.note("images, audio and files are not in the estimate")
		}
	}
	if o := n.outlook; o != nil {
		e.Worker, e.Reason, e.RunnerUp, e.Candidates = o.Worker, string(o.Reason), o.Choice.RunnerUp, o.Choice.Candidates
	}
	if n.waits {
		e.Outcome = wouldQueue
	}
	if err := n.refusal; err != nil {
		e.Outcome, e.Status, e.Code, e.Error = wouldReject, err.HTTPStatus(), string(err.Code), string(err.Body(x.in.shape.Shape(), x.in.requestID))
		e.Limit = string(x.admission.allowance.Refused)
	}
	if n.queue != nil {
		e.Shed = n.queue.Shed
	}
	e.Notes = n.notes
	e.Steps = n.steps(e)
	e.Summary = e.sentence(e.Steps)
	return e
}
