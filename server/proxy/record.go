package proxy

import (
	"cmp"
	"encoding/binary"
	"errors"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"

	"tierway/decisions"
	"tierway/openai"
	"tierway/routing"
	"tierway/server/control"
	"tierway/server/intake"
	"tierway/telemetry"
	"tierway/tenants"
)

// record returns what the request leaves, without its spans.
func (x *exchange) record(d *decisions.Decision, used settlement) record {
	r := record{
		Decision:   d,
		pool:       x.resolution.Pool,
		dialect:    x.in.Dialect,
		class:      x.parsed.Class,
		dispatched: len(d.Attempts) > 0 && !x.resolution.Stored, // stored responses bypass the queue
		waited:     x.wait.total,
	}
	if x.s.control.Stores.Ledger != nil && x.caller.Caller != nil && x.inLedger {
		r.booking = booking{booked: true, at: cmp.Or(x.admission.At, x.in.Start), key: x.caller.Key,
			model: x.resolution.KnownModel(), money: used.money(), saved: used.saved(), fromCache: used.kept}
	}
	return r
}

func (x *exchange) buildDecision(used settlement) *decisions.Decision {
	res := &x.resolution
	if !x.trace.On { // not authenticated: the trace headers of the client are ignored
		x.trace = x.s.traces.Begin(x.in.HTTP.Header, false, x.in.Start)
	}
	kept := &struct { // most requests have one attempt: its record costs no allocation of its own
		decisions.Decision
		first [1]decisions.Attempt
	}{Decision: decisions.Decision{
		TraceID:        x.trace.ID(),
		SchemaVersion:  decisions.SchemaVersion,
		Time:           x.in.Start,
		Method:         x.in.Method(),
		Route:          x.in.Pattern,
		RequestID:      x.in.RequestID,
		Generation:     x.in.Snap.Generation,
		Dialect:        x.in.Dialect.String(),
		DurationMs:     ms(time.Since(x.in.Start)),
		OverheadMs:     ms(x.overhead),
		TTFTMs:         msSince(x.in.Start, x.dispatch.firstAt),
		Result:         x.ending.result,
		Code:           x.ending.code,
		Cause:          x.ending.cause,
		Status:         x.answer.status,
		RequestedModel: res.Requested,
		Model:          res.ModelName,
		Rule:           res.Rule,
		RuleNote:       res.Note,
		Hooks:          x.hooks.records,
		Limit:          string(x.admission.Allowance.Refused),
		QueueMs:        ms(x.wait.total),
		Promoted:       x.wait.promoted,
		Shed:           x.wait.shed,
		Refused:        x.wait.refused,
		Usage:          decisions.Usage{Prompt: used.usage.Prompt, Cached: used.usage.Cached, Output: used.usage.Output},
		Estimated:      used.estimated,
		UsageNote:      used.note,
		PromptTokens:   cmp.Or(x.facts.PromptTokens, x.parsed.Estimate),
	}}
	d := &kept.Decision
	if len(x.dispatch.attempts) > 0 {
		d.Attempts = kept.first[:0]
	}
	if x.ending.result == decisions.ClientGone && x.answer.held() {
		d.Status = decisions.StatusClientGone
	}
	if x.caller.Caller != nil {
		d.Tenant = x.caller.Tenant
		if !x.caller.Disabled {
			d.Key = x.caller.Key
		}
	} else {
		d.ClientIP = x.in.Snap.ClientIP(x.in.HTTP)
		if keys := control.Credentials(x.in.HTTP.Header); cmp.Or(keys[:]...) != "" {
			d.KeyHint = tenants.Hint(cmp.Or(keys[:]...))
		}
	}
	if res.Pool != nil && res.Rule != "" {
		d.Tier = res.Pool.Name
		if !res.Stored && (x.cached == nil || x.cached.hit == nil) {
			d.Policy = res.Pool.Policy.Name
		}
	}
	if req := x.parsed.Req; req != nil {
		d.Class, d.AskedClass, d.Stream = x.parsed.Class.String(), x.parsed.AskedClass, req.Stream
		if x.in.Dialect != openai.Other {
			d.MaxTokens = req.MaxTokens
		}
		if x.s.records.keepsFull(x.trace.Sampled) {
			d.Features = features(&x.in, &x.parsed, res, &x.facts)
		}
	}
	if x.cached != nil {
		d.Cache = new(x.cached.record) // a copy, which does not keep the answer in memory
	}
	for _, m := range res.Moves {
		if m.Why != "" {
			d.Passed = append(d.Passed, m)
		}
	}
	for _, a := range x.dispatch.attempts {
		d.Worker, d.Reason = a.m.NameFor(x.in.Dialect), string(a.lease.Reason())
		d.Attempts = append(d.Attempts, a.buildAttempt())
	}
	return d
}

// features returns the features by which a request was classified and routed, without its text.
func features(in *intake.Inbound, p *intake.Parsed, res *intake.Resolution, facts *routing.Request,
) decisions.Features {
	e := &res.Evidence
	f := decisions.Features{
		Header:        headerTier(in, res),
		Classified:    e.Classified,
		Counted:       e.Counted,
		UserTextBytes: e.UserBytes,
		Groups:        e.Groups,
		Score:         e.Score,
		ModelScore:    e.Model,
		LimitRequired: in.Dialect.RequiresMaxTokens(),
		Tools:         p.Req.Tools,
		Media:         p.Req.Media,
		Estimate:      p.Estimate,
	}
	if p.Prompt != nil {
		f.Session = routing.Hash(p.Prompt.Session())
	}
	f.Model, f.Prefix, f.Blocks = routing.Hash(facts.Model), routing.Hash(facts.Prefix), len(facts.Blocks)
	f.Chain = routing.AppendChain(nil, facts.Blocks)
	return f
}

// headerTier returns the tier in X-Model-Tier, or "other" if it names no tier. It returns "" without the
// header, and for a request that is not resolved.
func headerTier(in *intake.Inbound, res *intake.Resolution) string {
	asked := in.HTTP.Header.Get("X-Model-Tier")
	if asked == "" || res.Requested == "" && res.Target == "" {
		return ""
	}
	if p := in.Snap.TierNamed(asked); p != nil {
		return p.Name
	}
	return "other"
}

// countPrefix counts the predicted and the reported prefix hit of the attempt.
func (a *attempt) countPrefix() {
	result := telemetry.PrefixMiss
	switch {
	case a.lease.Worker() == nil, a.lease.HandedOver(): // the prefill stage counts
		return
	case len(a.x.facts.Blocks) == 0:
		result = telemetry.PrefixNone
	case a.lease.Overlap() > 0:
		result = telemetry.PrefixHit
	}
	cached := int64(-1) // unknown
	if a.usage.CachedKnown {
		cached = a.usage.Cached
	}
	a.x.resolution.Pool.Series.CountPrefix(result, a.lease.Overlap(), cached)
}

// countPace observes the time per output token of a generated stream, if the engine reported the number
// of tokens.
func (a *attempt) countPace() {
	if n := a.usage.Output; n > 1 && !a.firstAt.IsZero() {
		a.x.resolution.Pool.Series.TPOT.Observe(a.lastAt.Sub(a.firstAt).Seconds() / float64(n-1))
	}
}

// spans returns the spans of a request: of its record, its attempts, its hooks, and its look-up in the response cache.
// c is nil without one.
func (d *dispatch) spans(of *decisions.Decision, hookCalls []trace.Span, c *cached) decisions.Trace {
	s := decisions.Trace{Decision: of, HookCalls: hookCalls, Prefills: d.prefillSpans()}
	for _, a := range d.attempts {
		s.Calls = append(s.Calls, a.span)
	}
	if c != nil {
		s.LookUp = c.span
	}
	return s
}

// placement describes how the last worker of a request was selected.
type placement struct {
	waited    time.Duration   // queue time for this worker
	selection time.Duration   // time to select and book it; 0 after a wait
	choice    *routing.Choice // candidates and scores; nil if they are not recorded
}

// newPlacement returns the placement of a request before a worker of its pool is selected. With recorded, it has a
// choice, in which the selection is recorded.
func newPlacement(pool *control.Pool, recorded bool) placement {
	if !recorded {
		return placement{}
	}
	return placement{choice: &routing.Choice{Candidates: make([]routing.Candidate, 0,
		min(len(pool.Workers), routing.MaxCandidates))}}
}

func (a *attempt) buildAttempt() decisions.Attempt {
	x := a.x
	try := decisions.Attempt{
		Worker:      a.m.NameFor(x.in.Dialect),
		Reason:      string(a.lease.Reason()),
		Status:      a.status,
		AtMs:        msSince(x.in.Start, a.started),
		QueueMs:     ms(a.placement.waited),
		SelectionUs: float64(a.placement.selection.Nanoseconds()) / 1000,
		FirstAtMs:   msSince(x.in.Start, a.firstAt),
		EndAtMs:     msSince(x.in.Start, a.ended),
		ErrorType:   a.errorType(),
		Predicted:   a.lease.Overlap(),
		Usage:       decisions.Usage{Prompt: a.usage.Prompt, Cached: a.usage.Cached, Output: a.usage.Output},
		Choice:      a.placement.choice,
	}
	if a.pool != x.resolution.Pool {
		try.Tier = a.pool.Name
	}
	if x.trace.Sampled {
		id := a.span.SpanContext().SpanID()
		try.Span = routing.Hash(binary.BigEndian.Uint64(id[:]))
	}
	if a.headAt.IsZero() {
		try.DurationMs = ms(a.ended.Sub(a.started))
	} else {
		try.DurationMs = ms(a.headAt.Sub(a.started))
	}
	if a.reportedFault != nil {
		try.Error = a.reportedFault.Error()
	}
	if a.handover != nil {
		try.Handover = a.handover.record()
	}
	return try
}

// errorType returns the type of the attempt's error for records and spans, or "" without an error.
func (a *attempt) errorType() string {
	f, fault, status := a.failure, a.fault, 0
	if f != nil {
		fault, status = f.fault, f.status
	}
	if status == 0 && a.status >= 300 {
		status = a.status
	}
	switch {
	case fault == nil:
		return ""
	case status != 0:
		return strconv.Itoa(status)
	case errors.Is(fault, errFirstByteTimeout), errors.Is(fault, errIdleTimeout), errors.Is(fault, errTotalTimeout),
		errors.Is(fault, errStoppedSilence), errors.As(fault, new(*stoppedError)):
		return decisions.ErrorTimeout
	case errors.Is(fault, ErrDrainCut):
		return decisions.ErrorShutdown
	case errors.Is(fault, errClientGone), errors.Is(fault, errClientBody):
		return decisions.ErrorClientGone
	case f != nil && !f.sent && errors.Is(fault, routing.ErrExcluded):
		return decisions.ErrorGateway
	case f != nil && !f.sent:
		return decisions.ErrorConnect
	case f != nil && f.err.Code == openai.CodeWorkerProtocol:
		return decisions.ErrorProtocol
	}
	return decisions.ErrorCut
}
