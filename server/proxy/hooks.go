package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"tierway/decisions"
	"tierway/hooks"
	"tierway/openai"
	"tierway/routing"
	"tierway/server/control"
	"tierway/telemetry"
	"tierway/tenants"
)

// hookCalls are the calls of hooks for a request. The zero value is a request without hooks.
type hookCalls struct {
	records []decisions.Hook
	spans   []trace.Span
	took    time.Duration
	renamed *hooks.Hook // the last one that changed the model; nil: none
}

// runHooks sends a request with a JSON body to the hooks, in their order. Each hook receives the body as the earlier
// ones have changed it. An error is the answer to the client.
func (x *exchange) runHooks(chain *hooks.Chain) error {
	if x.parsed.FromForm(&x.in) {
		return nil
	}
	if err := x.s.intake.NameModel(&x.in, &x.caller, &x.parsed); err != nil {
		return err
	}
	began := time.Now()
	defer func() {
		x.hooks.took = time.Since(began)
		if x.in.Snap.File.RoutingHeaders {
			x.answer.header()["X-Tierway-Hooks"] = []string{decisions.HooksText(x.hooks.records)}
		}
	}()
	for _, h := range chain.Hooks {
		if err := x.runHook(h, chain.Timeout-time.Since(began)); err != nil {
			return err
		}
	}
	return nil
}

// runHook calls one hook, records the call and applies its reply. left is the time that all hooks have left.
func (x *exchange) runHook(h *hooks.Hook, left time.Duration) error {
	at := time.Now()
	span := x.trace.Attempt(at)
	x.in.Memory.KeepBody() // net/http may read the body after the call
	traced := http.Header{}
	for _, name := range [...]string{"Traceparent", "Tracestate"} { // without tracing, that of the client
		if v := strings.Join(x.in.HTTP.Header[name], ","); v != "" && isPlain(v) {
			traced[name] = []string{v}
		}
	}
	telemetry.Inject(traced, span)
	reply := h.Call(x.in.HTTP.Context(), &hooks.Request{
		ID:     x.in.RequestID,
		Tenant: x.caller.Tenant,
		Path:   x.in.WorkerPath, // not the client's spelling, which services would have to know
		Model:  x.parsed.Req.Model,
		Header: x.in.HTTP.Header,
		Trace:  traced,
		Body:   x.parsed.Req.Body,
		Memory: &x.in.Memory,
	}, left)
	err := x.applyReply(h, &reply)
	took := time.Since(at)
	record := decisions.Hook{Name: h.Name, Result: reply.Result.String(), Shadow: h.Shadow, AtMs: msSince(x.in.Start, at),
		DurationMs: ms(took), IgnoredHeaders: reply.Ignored, Error: reply.Cause}
	if x.trace.Sampled {
		id := span.SpanContext().SpanID()
		record.Span = routing.Hash(binary.BigEndian.Uint64(id[:]))
	}
	x.hooks.records, x.hooks.spans = append(x.hooks.records, record), append(x.hooks.spans, span)
	if !x.explained && !h.Retired() { // a reload has removed the series of a retired hook
		x.s.metrics.HookCalled(h.Name, record.Result, took, reply.Ignored)
		if reply.Result.Failure() {
			h.RecordFailure(&reply, time.Now())
		}
	}
	return err
}

// isPlain reports whether a value is in printable ASCII, as the headers of a call must be. Otherwise a client could
// make calls fail.
func isPlain(v string) bool {
	return !strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' })
}

// applyReply applies the reply of a hook to the request. It changes a transformation that the gateway refuses to the
// result Refused.
func (x *exchange) applyReply(h *hooks.Hook, reply *hooks.Reply) error {
	if reply.Result == hooks.Transformed && !h.Shadow {
		if cause := x.transform(h, reply); cause != "" {
			reply.Result, reply.Cause = hooks.Refused, cause
		}
	}
	if reply.Body != nil && (h.Shadow || reply.Result != hooks.Transformed) {
		x.in.Memory.Return(int64(len(reply.Body)))
	}
	switch {
	case reply.Result == hooks.Cancelled && errors.Is(context.Cause(x.in.HTTP.Context()), ErrDrainCut):
		return shuttingDown()
	case reply.Result == hooks.Cancelled:
		return errClientGone
	case h.Shadow:
	case reply.Result == hooks.Rejected && h.OnReject != hooks.Pass:
		return rejectedByHook(h, reply, x.s.rand)
	case reply.Result.Failure() && h.OnError != hooks.Pass:
		return hookUnavailable(h, reply.Cause, x.s.rand)
	}
	return nil
}

// transform replaces the request by the one of a reply. It returns why it refuses the change, or "".
func (x *exchange) transform(h *hooks.Hook, reply *hooks.Reply) (cause string) {
	if !h.Transform {
		return hooks.CauseTransform
	}
	if cause := unknownHeader(x.in.Snap, reply.Headers); cause != "" {
		return cause
	}
	was, model := x.in.HTTP.Header, x.parsed.Req.Model
	if len(reply.Headers) > 0 {
		x.in.HTTP.Header = was.Clone()
		for _, changed := range reply.Headers {
			if changed.Value == "" {
				x.in.HTTP.Header.Del(changed.Name)
			} else {
				x.in.HTTP.Header[changed.Name] = []string{changed.Value}
			}
		}
	}
	if err := x.s.intake.Replace(&x.in, &x.caller, &x.parsed, reply.Body); err != nil {
		x.in.HTTP.Header = was
		return "the gateway refuses the changed request: " + err.Error()
	}
	if x.parsed.Req.Model != model {
		x.hooks.renamed = h
		setsTier := func(h hooks.Header) bool { return h.Name == "X-Model-Tier" && h.Value != "" }
		if !slices.ContainsFunc(reply.Headers, setsTier) {
			x.in.DropTierHeader()
		}
	}
	return ""
}

// unknownHeader returns why a change of a header is refused, or "". It omits the value, which may be a text of a
// prompt.
func unknownHeader(snap *control.Snapshot, changes []hooks.Header) (cause string) {
	for _, h := range changes {
		_, isClass := tenants.ParseClass(h.Value)
		switch {
		case h.Value == "":
		case h.Name == "X-Model-Tier" && snap.TierNamed(h.Value) == nil:
			return "it sets the header X-Model-Tier to a value that is no tier; write the name of a tier"
		case h.Name == "X-Request-Priority" && !isClass:
			return "it sets the header X-Request-Priority to a value that is no class; write " +
				strings.Join(tenants.Classes(), ", ")
		}
	}
	return ""
}

// blameForModel records that a request was rejected for its model if a hook had written that.
func (c *hookCalls) blameForModel(model string, rejection error) {
	if c.renamed == nil {
		return
	}
	if e, ok := errors.AsType[*openai.Error](rejection); ok && e.Code == openai.CodeModelNotFound {
		c.renamed.RecordFailure(&hooks.Reply{Result: hooks.Transformed, Cause: "the hook changes the model to " +
			openai.Quoted(model) + ", which does not exist or which the tenant may not use"}, time.Now())
	}
}

// rejectedByHook returns the answer to a request that a hook rejects.
func rejectedByHook(h *hooks.Hook, reply *hooks.Reply, rand func() uint64) error {
	e := &openai.Error{Code: openai.CodeRejectedByHook, Status: http.StatusForbidden, Message: reply.Reason}
	switch {
	case reply.Limited:
		e.Status, e.RetryAfter = http.StatusTooManyRequests, reply.RetryAfter
		if e.RetryAfter == 0 {
			e.RetryAfter = retryWait(rand)
		}
	case h.OnReject == hooks.Block400:
		e.Status = http.StatusBadRequest
	}
	if e.Message == "" {
		e.Message = "The request was rejected by a rule of the operator."
	}
	return e
}

// retryWait returns a wait of one to three seconds: clients that are rejected together must not retry together.
func retryWait(rand func() uint64) time.Duration {
	return time.Second + time.Duration(rand()%uint64(2*time.Second))
}

// hookUnavailable returns the answer to a request that a hook could not check.
func hookUnavailable(h *hooks.Hook, cause string, rand func() uint64) error {
	wait := retryWait(rand)
	if until := h.State().Until; !until.IsZero() {
		wait += max(0, time.Until(until))
	}
	return &openai.Error{Code: openai.CodeHookUnavailable, RetryAfter: wait, Cause: errors.New(h.Name + ": " + cause),
		Message: "The request cannot be checked at present. Try again in " + openai.ShortDuration(wait) + "."}
}

// explainHooks runs the hooks for an explanation if that was requested, and otherwise notes that it did not. Hooks of a
// draft are not called unless they are in force: a draft must not make the gateway connect to other servers.
func (n *explainer) explainHooks() error {
	x := n.x
	chain := x.in.Snap.Hooks
	switch {
	case chain == nil || x.parsed.FromForm(&x.in):
		return nil
	case !n.Hooks:
		n.addNote("the hooks were not called; ask for it to see their effect (--hooks)")
		return nil
	}
	inForce := x.s.control.Snapshot().Hooks
	for _, h := range chain.Hooks {
		if !inForce.Has(h) {
			n.addNote("the hooks were not called, because the draft changes them")
			return nil
		}
	}
	return x.runHooks(chain)
}
