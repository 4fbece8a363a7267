package server

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"tierway/openai"
	"tierway/routing"
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

	as    *subject // who asks, where the request has no key; nil: whoever its key says
	draft *draft   // nil: the configuration in force
	rand  *uint64  // the random number that a worker is picked by; nil: a fresh one
	walk  walk
}

// subject is for whom a request is explained.
type subject struct {
	caller *tenants.Caller
	who    string
	barred error // what its requests are answered; nil: they are served
}

// explainKey marks the context of a request that is explained and not sent.
type explainKey struct{}

// Explain walks a request through the data plane up to the worker that it would
// be sent to, by the code that serves requests, and sends nothing. A request
// without a key is explained for a tenant who may use everything.
func (s *Server) Explain(r *http.Request) *Explanation {
	e := &Explanation{}
	s.explain(r, e)
	return e
}

// explain walks a request for an explanation, which says for whom and under which
// configuration. Nothing is booked, counted, learned, logged or written down.
func (s *Server) explain(r *http.Request, e *Explanation) {
	snap := s.snapshot.Load()
	if e.draft != nil {
		snap = e.draft.snap
	}
	if err := s.tokens.load(snap.vocabulary); err != nil {
		e.Notes = append(e.Notes, err.Error())
	}
	w := &discarded{header: http.Header{}}
	s.dataHandler().ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), explainKey{}, e)))
	if e.Outcome == "" { // no exchange was begun
		e.Outcome, e.Status, e.Error = wouldReject, w.status, w.body.String()
		e.Summary = "nothing is decided about such a request"
	}
}

// discarded keeps an answer that nobody is sent.
type discarded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header is part of http.ResponseWriter.
func (w *discarded) Header() http.Header { return w.header }

// WriteHeader is part of http.ResponseWriter.
func (w *discarded) WriteHeader(status int) { w.status = status }

// Write is part of http.ResponseWriter.
func (w *discarded) Write(p []byte) (int, error) { return w.body.Write(p) }

// Flush is part of http.Flusher.
func (w *discarded) Flush() {}

// SetReadDeadline does nothing: the request is all there.
func (w *discarded) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing: nobody reads.
func (w *discarded) SetWriteDeadline(time.Time) error { return nil }

// explaining begins the exchange of a request that is explained: with a draft it
// walks under the draft's configuration.
func (x *exchange) explaining() {
	e := x.explanation
	e.SnapshotAt = x.start.UTC()
	if e.draft != nil {
		x.draft, x.snap = e.draft, e.draft.snap
	}
}

// explainedCaller finds for whom a request is explained: for whom it was asked for,
// else whose key it has, else somebody who may use everything. Nobody is told of a
// wrong key.
func (x *exchange) explainedCaller() error {
	e := x.explanation
	is, err := e.as, error(nil)
	if is == nil {
		is, err = x.subject()
	}
	if err != nil {
		return err
	}
	x.d.Tenant, x.d.Key, e.walk.who = is.caller.Tenant, is.caller.Key, is.who
	if is.barred != nil {
		return is.barred
	}
	x.caller = is.caller
	return nil
}

// subject is who asks by the request's key.
func (x *exchange) subject() (*subject, error) {
	key, given := credential(x.r.Header)
	anonymous := &subject{caller: tenants.Anonymous(), who: "no key: explained for a tenant who may use everything"}
	if !given && x.r.Header.Get("Authorization") == "" && x.r.Header.Get("X-Api-Key") == "" {
		x.explanation.Notes = append(x.explanation.Notes, anonymous.who)
		return anonymous, nil
	}
	caller, err := x.snap.people.directory.Authenticate(key, x.start)
	switch {
	case err == nil:
		return &subject{caller: caller, who: "tenant " + caller.Tenant + ", key " + caller.Key}, nil
	case errors.Is(err, tenants.ErrDisabled):
		return &subject{caller: caller, who: "tenant " + caller.Tenant, barred: errTenantDisabled}, nil
	case x.snap.file.Auth.Required:
		return nil, errBadKey
	}
	anonymous.who = "an unknown key, where none is required"
	return anonymous, nil
}

// notExplained is said of a request that names a stored answer, or asks for no
// inference.
func (x *exchange) notExplained() error {
	if err := x.authenticate(); err != nil {
		return err
	}
	return &openai.Error{Code: openai.CodeEndpointNotSupported, Message: "Only requests that are routed by their model are explained; this one is not."}
}

// refused keeps the refusal of an explained request: it is an outcome.
func (x *exchange) refused(err *openai.Error) {
	e := x.explanation
	e.Status, e.Code, e.Error = err.HTTPStatus(), string(err.Code), string(err.Body(x.shape.Shape(), x.d.RequestID))
	e.Limit, e.Shed = x.d.Limit, x.d.Shed
	e.Outcome = wouldReject
	e.walk.failed, e.walk.why = e.walk.stage(x), err.Message
	if err.Cause != nil && e.walk.why == "" {
		e.walk.why = err.Cause.Error()
	}
}

// explained ends the exchange of a request that is explained.
func (x *exchange) explained() {
	e := x.explanation
	e.describe(x)
	e.Steps = e.steps(x)
	e.Summary = e.sentence()
	if x.prompt != nil {
		x.s.scratch.putPrompt(x.prompt)
		x.prompt = nil
	}
}

// describe writes down what was decided.
func (e *Explanation) describe(x *exchange) {
	e.Class, e.Dialect, e.Generation = x.d.Class, x.d.Dialect, x.d.Generation
	if x.d.Tenant != "" {
		e.Tenant, e.Key = x.d.Tenant, x.d.Key
	}
	e.RequestedModel, e.PromptTokens, e.MaxTokens = x.d.RequestedModel, x.d.PromptTokens, x.d.MaxTokens
	e.Tier, e.Rule, e.Note, e.Model, e.Policy = x.d.Tier, x.d.Rule, x.d.RuleNote, x.d.Model, x.d.Policy
	e.Classified = x.verdict.Explained
	e.Blocks = len(x.facts.Blocks)
	if x.prompt != nil {
		e.UserTextBytes = len(x.prompt.user)
	}
	if x.req == nil {
		return
	}
	e.Stream, e.Estimate = x.req.Stream, x.tokenEstimate()
	if x.dialect != openai.Other && x.req.Media {
		e.Notes = append(e.Notes, "images, audio and files are not in the estimate")
	}
}
