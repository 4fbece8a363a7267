package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"tierway/openai"
	"tierway/queue"
	"tierway/routing"
	"tierway/tiers"
)

// Explanation is what is decided about one request, and why. It holds features
// and names, never text of a prompt.
type Explanation struct {
	Tenant  string   `json:"tenant"`
	Class   string   `json:"class,omitempty"`
	Dialect string   `json:"dialect,omitempty"`
	Stream  bool     `json:"stream,omitempty"`
	Notes   []string `json:"notes,omitempty"` // what differs from a request that a client sends

	RequestedModel string             `json:"requested_model,omitempty"`
	PromptTokens   int64              `json:"prompt_tokens_estimate"`
	MaxTokens      int64              `json:"max_tokens,omitempty"`
	UserTextBytes  int                `json:"user_text_bytes"`      // of the last user turn, as far as it is looked at
	Classified     *tiers.Explanation `json:"classified,omitempty"` // nil when no content was looked at

	Tier  string `json:"tier,omitempty"`
	Rule  string `json:"rule,omitempty"`
	Note  string `json:"note,omitempty"`
	Model string `json:"model,omitempty"` // the name that the worker is asked for

	Policy     string              `json:"policy,omitempty"`
	Blocks     int                 `json:"blocks"` // of the prompt's chain
	Worker     string              `json:"worker,omitempty"`
	Reason     string              `json:"reason,omitempty"`
	Candidates []routing.Candidate `json:"candidates,omitempty"`

	Status int    `json:"status,omitempty"` // of the refusal; 0 when the request would be sent
	Error  string `json:"error,omitempty"`  // its body
}

// explainKey marks the context of a request that is explained and not sent.
type explainKey struct{}

// Explain walks a request through the data plane up to the worker that it would
// be sent to, by the code that serves requests, and sends nothing. A request
// without a key is explained for a tenant who may use everything.
func (s *Server) Explain(r *http.Request) *Explanation {
	e := &Explanation{}
	if err := s.tokens.load(s.snapshot.Load().vocabulary); err != nil {
		e.Notes = append(e.Notes, err.Error())
	}
	w := &discarded{header: http.Header{}}
	s.dataHandler().ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), explainKey{}, e)))
	if w.status >= http.StatusBadRequest { // what is not refused is not answered either
		e.Status, e.Error = w.status, w.body.String()
	}
	return e
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

// explainOnly books the request as forward does, gives the booking back and
// writes down what was decided.
func (x *exchange) explainOnly() error {
	e := x.explanation
	e.describe(x)
	x.setDeadline()
	if err := x.stayWithStored(); err != nil {
		return err
	}
	x.facts.Now, x.facts.Record = time.Now(), &routing.Choice{}
	x.facts.Wait = x.mayWait()
	lease, err := x.pool.routing.Acquire(&x.facts, x.tried...)
	waiting := x.pool.queue.Waiting()
	if err != nil {
		return x.explainWaiting(err, waiting)
	}
	if waiting > 0 {
		e.Notes = append(e.Notes, fmt.Sprintf("%d requests wait in the queue, and are offered a worker in their order", waiting))
	}
	defer lease.Release(routing.Result{At: x.facts.Now, Err: routing.ErrExcluded})
	e.Worker, e.Reason, e.Candidates = lease.Worker().ID(), string(lease.Reason()), x.facts.Record.Candidates
	return nil
}

// mayWait tells whether requests of the class wait at all.
func (x *exchange) mayWait() bool {
	return x.pool.Queue.MaxDepth > 0 && x.pool.Queue.MaxWait[x.class] > 0
}

// explainWaiting says what becomes of a request that no worker takes now: it
// waits, or it is refused, and why.
func (x *exchange) explainWaiting(err error, waiting int) error {
	until := x.facts.Now.Add(x.pool.Queue.MaxWait[x.class])
	if x.patience.Before(until) {
		until = x.patience
	}
	var cooled *routing.CooledError
	var why string
	switch {
	case errors.Is(err, routing.ErrFull):
		why = "every worker is full"
	case errors.Is(err, routing.ErrHeld):
		why = "the worker to wait for is full"
	case errors.As(err, &cooled) && cooled.Until.Before(until):
		why = "every worker rests"
	case x.mayWait() && x.pool.Queue.EngineWait > 0:
		why = "no worker is up"
	default:
		return x.noWorker(err)
	}
	e := x.explanation
	var shed *queue.ShedError
	if err := x.pool.queue.Would(x.fillTicket(), x.facts.Now); errors.As(err, &shed) {
		e.Notes = append(e.Notes, fmt.Sprintf("%s, and the queue would refuse it (%s); %d requests wait now", why, shed.Reason, waiting))
		return x.noWorker(err)
	}
	e.Notes = append(e.Notes, fmt.Sprintf("%s: it would wait in the queue, where %d requests wait now", why, waiting))
	return nil
}

// describe writes down what was decided before a worker is chosen.
func (e *Explanation) describe(x *exchange) {
	e.Tenant, e.Class, e.Dialect = x.d.Tenant, x.d.Class, x.d.Dialect
	e.RequestedModel, e.PromptTokens, e.MaxTokens = x.d.RequestedModel, x.d.PromptTokens, x.d.MaxTokens
	e.Tier, e.Rule, e.Note, e.Model, e.Policy = x.d.Tier, x.d.Rule, x.d.RuleNote, x.d.Model, x.d.Policy
	e.Classified = x.verdict.Explained
	e.Stream = x.req != nil && x.req.Stream
	e.Blocks = len(x.facts.Blocks)
	if x.prompt != nil {
		e.UserTextBytes = len(x.prompt.user)
	}
	if x.req != nil && x.dialect != openai.Other && x.req.Media {
		e.Notes = append(e.Notes, "images, audio and files are not in the estimate")
	}
}
