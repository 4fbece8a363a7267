package proxy

import (
	"cmp"
	"encoding/binary"
	"errors"
	"strconv"
	"time"

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
	return record{
		Decision:   d,
		pool:       x.resolution.Pool,
		dialect:    x.in.Dialect,
		class:      x.parsed.Class,
		dispatched: len(d.Attempts) > 0 && !x.resolution.Stored, // stored responses bypass the queue
		waited:     x.wait.total,
		booking:    x.booking(used),
	}
}

// booking returns what the ledger's row of the request has beside the Decision.
func (x *exchange) booking(used settlement) booking {
	if x.s.control.Stores.Ledger == nil || x.caller.Caller == nil || !x.inLedger {
		return booking{}
	}
	at := x.admission.At
	if at.IsZero() {
		at = x.in.Start
	}
	return booking{booked: true, at: at, key: x.caller.Key, model: x.resolution.KnownModel(), money: used.money(),
		saved: used.saved(), fromCache: used.kept}
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
		if x.keepsRecords() {
			d.Features = x.features()
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

// features returns the features by which the request was classified and routed, without its text.
func (x *exchange) features() decisions.Features {
	e := &x.resolution.Evidence
	f := decisions.Features{
		Header:        headerTier(&x.in, &x.resolution),
		Classified:    e.Classified,
		Counted:       e.Counted,
		UserTextBytes: e.UserBytes,
		Groups:        e.Groups,
		Score:         e.Score,
		ModelScore:    e.Model,
		LimitRequired: x.in.Dialect.RequiresMaxTokens(),
		Tools:         x.parsed.Req.Tools,
		Media:         x.parsed.Req.Media,
		Estimate:      x.parsed.Estimate,
	}
	if x.parsed.Prompt != nil {
		f.Session = routing.Hash(x.parsed.Prompt.Session())
	}
	f.Model, f.Prefix, f.Blocks = routing.Hash(x.facts.Model), routing.Hash(x.facts.Prefix), len(x.facts.Blocks)
	f.Chain = routing.AppendChain(nil, x.facts.Blocks)
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

// spans returns the spans of the request, which is exported.
func (x *exchange) spans(d *decisions.Decision) *endedSpans {
	s := &endedSpans{trace: x.trace, Trace: decisions.Trace{Decision: d, HookCalls: x.hooks.spans,
		Prefills: x.dispatch.prefillSpans()}}
	for _, a := range x.dispatch.attempts {
		s.Calls = append(s.Calls, a.span)
	}
	if x.cached != nil {
		s.LookUp = x.cached.span
	}
	return s
}

// placement describes how the last worker of a request was selected.
type placement struct {
	waited    time.Duration   // queue time for this worker
	selection time.Duration   // time to select and book it; 0 after a wait
	choice    *routing.Choice // candidates and scores; nil if they are not recorded
}

// keepsRecords reports whether the full record of a request is kept or exported, not only its log line.
func (x *exchange) keepsRecords() bool {
	return x.trace.Sampled || x.s.records.keeps.Load()
}

// resetPlacement clears the placement. If records are kept, the next selection is recorded in it.
func (x *exchange) resetPlacement() {
	x.wait.placement = placement{}
	if x.facts.Record = nil; x.keepsRecords() {
		x.wait.placement.choice = &routing.Choice{Candidates: make([]routing.Candidate, 0,
			min(len(x.resolution.Pool.Workers), routing.MaxCandidates))}
		x.facts.Record = x.wait.placement.choice
	}
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
