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
	"tierway/telemetry"
)

// publishDecision counts the request's end, and writes what is made from its Decision.
func publishDecision(x *exchange, d *decisions.Decision) {
	x.s.metrics.TenantEnded(d.Tenant, outcomeIndex(d.Result), d.Usage.Prompt, d.Usage.Cached, d.Usage.Output)
	if limit := string(x.admission.allowance.Refused); limit != "" {
		x.s.metrics.Limited(limit)
		x.s.metrics.TenantLimited(d.Tenant, limit)
	}
	if p := x.resolution.pool; p != nil {
		p.Series.Duration.Observe(d.DurationMs / 1000)
		p.Series.Ended(int(x.in.dialect), outcomeIndex(d.Result))
		if len(x.dispatch.attempts) > 0 && !x.resolution.stored { // whose one worker is asked without a queue
			p.Waits.Granted(int(x.parsed.class), x.wait.total)
		}
	} else {
		x.s.metrics.EndedOutside(int(x.in.dialect), outcomeIndex(d.Result))
	}
	if !x.caller.trace.On { // the client is unknown, and its headers do not count
		x.caller.trace = x.s.traces.Begin(x.in.r.Header, false, x.in.start)
	}
	d.TraceID = x.caller.trace.ID()
	x.s.records.add(d)
}

// buildDecision fills the request's record with what its stages have returned.
func buildDecision(x *exchange, d *decisions.Decision) {
	res := &x.resolution
	*d = decisions.Decision{SchemaVersion: decisions.SchemaVersion, Time: x.in.start, Method: knownMethod(x.in.r.Method), Route: x.in.pattern,
		RequestID: x.in.requestID, Generation: x.snap.Generation, Dialect: x.in.dialect.String(),
		DurationMs: ms(time.Since(x.in.start)), OverheadMs: ms(x.overhead), TTFTMs: x.in.since(x.dispatch.firstAt),
		Result: x.ending.result, Code: x.ending.code, Cause: x.ending.cause, Status: x.answer.status,
		RequestedModel: res.requested, Model: res.model, Rule: res.Rule, RuleNote: res.Note,
		Limit: string(x.admission.allowance.Refused), QueueMs: ms(x.wait.total), Promoted: x.wait.promoted, Shed: x.wait.shed, Refused: x.wait.refused,
		Usage:     decisions.Usage{Prompt: x.settlement.usage.Prompt, Cached: x.settlement.usage.Cached, Output: x.settlement.usage.Output},
		Estimated: x.settlement.estimated, PromptTokens: cmp.Or(x.facts.PromptTokens, x.parsed.estimate)}
	if d.Result == decisions.ClientGone && x.answer.held() {
		d.Status = decisions.StatusClientGone
	}
	if x.caller.Caller != nil {
		d.Tenant = x.caller.Tenant
		if !x.caller.disabled {
			d.Key = x.caller.Key
		}
	}
	if res.pool != nil && res.Rule != "" {
		d.Tier = res.pool.Name
		if !res.stored {
			d.Policy = res.pool.Policy.Name
		}
	}
	if req := x.parsed.req; req != nil {
		d.Class, d.AskedClass, d.Stream = x.parsed.class.String(), x.parsed.askedClass, req.Stream
		if x.in.dialect != openai.Other {
			d.MaxTokens = req.MaxTokens
		}
		if keepsRecords(x) {
			d.Features = decisionFeatures(x)
		}
	}
	for _, a := range x.dispatch.attempts {
		d.Worker, d.Reason = a.m.Name, string(a.lease.Reason())
		d.Attempts = append(d.Attempts, buildAttempt(a))
	}
}

// decisionFeatures are what the request was classified and routed by, without its text.
func decisionFeatures(x *exchange) decisions.Features {
	e := &x.resolution.evidence
	f := decisions.Features{Header: headerTier(x),
		Classified: e.Classified, Counted: e.Counted, UserTextBytes: e.UserBytes, Groups: e.Groups,
		LimitRequired: x.in.dialect.RequiresMaxTokens(), Tools: x.parsed.req.Tools, Media: x.parsed.req.Media, Estimate: x.parsed.estimate}
	if x.parsed.prompt != nil {
		f.Session = routing.Hash(x.parsed.prompt.features.Session)
	}
	f.Model, f.Prefix, f.Blocks = routing.Hash(x.facts.Model), routing.Hash(x.facts.Prefix), len(x.facts.Blocks)
	f.Chain = routing.AppendChain(nil, x.facts.Blocks)
	return f
}

// headerTier is the tier that X-Model-Tier names: "other" for none of them, "" where
// there is no such header, and for a request that is not resolved.
func headerTier(x *exchange) string {
	asked := x.in.r.Header.Get("X-Model-Tier")
	if asked == "" || x.resolution.requested == "" && x.resolution.Target == "" {
		return ""
	}
	if p := x.snap.TierNamed(asked); p != nil {
		return p.Name
	}
	return "other"
}

// countPrefix compares what the worker was believed to have of the prompt with what
// its engine says.
func countPrefix(a *attempt) {
	result := telemetry.PrefixMiss
	switch {
	case a.lease.Worker() == nil:
		return
	case len(a.x.facts.Blocks) == 0:
		result = telemetry.PrefixNone
	case a.lease.Overlap() > 0:
		result = telemetry.PrefixHit
	}
	cached := int64(-1) // nothing is known
	if a.usage.CachedKnown {
		cached = a.usage.Cached
	}
	a.x.resolution.pool.Series.Prefix(result, a.lease.Overlap(), cached)
}

// countPace counts the time between two tokens of a generated stream whose engine has told
// how many there were.
func countPace(a *attempt) {
	if n := a.usage.Output; n > 1 && !a.firstAt.IsZero() {
		a.x.resolution.pool.Series.TPOT.Observe(a.lastAt.Sub(a.firstAt).Seconds() / float64(n-1))
	}
}

// exportTrace ends the spans of a sampled request.
func exportTrace(x *exchange, d *decisions.Decision) {
	if !x.caller.trace.Sampled {
		return
	}
	s := decisions.Trace{Decision: d}
	for _, a := range x.dispatch.attempts {
		s.Calls = append(s.Calls, a.span)
	}
	x.caller.trace.End(s.Spans())
}

func outcomeIndex(o decisions.Result) int {
	for i, name := range control.Outcomes {
		if string(o) == name {
			return i
		}
	}
	return 0
}

// placed is how a request came to the worker that it was given last.
type placed struct {
	waited    time.Duration // in the queue, for this worker
	selection time.Duration // that choosing and booking took; 0 after a wait
	choice    *routing.Choice
}

// keepsRecords tells whether anybody reads more of a request than its log line.
func keepsRecords(x *exchange) bool {
	return x.caller.trace.Sampled || x.s.records.keeps.Load()
}

// resetPlacement has the next pick recorded.
func resetPlacement(x *exchange) {
	x.wait.placed = placed{}
	if x.facts.Record = nil; keepsRecords(x) {
		x.wait.placed.choice = &routing.Choice{Candidates: make([]routing.Candidate, 0, min(len(x.resolution.pool.Workers), routing.MaxCandidates))}
		x.facts.Record = x.wait.placed.choice
	}
}

// buildAttempt is the attempt as the request's record has it.
func buildAttempt(a *attempt) decisions.Attempt {
	x := a.x
	try := decisions.Attempt{Worker: a.m.Name, Reason: string(a.lease.Reason()), Status: a.status,
		AtMs: x.in.since(a.started), QueueMs: ms(a.placed.waited), SelectionUs: float64(a.placed.selection.Nanoseconds()) / 1000,
		FirstAtMs: x.in.since(a.firstAt), EndAtMs: x.in.since(a.ended), ErrorType: errorType(a), Predicted: a.lease.Overlap(),
		Usage: decisions.Usage{Prompt: a.usage.Prompt, Cached: a.usage.Cached, Output: a.usage.Output}, Choice: a.placed.choice}
	if x.caller.trace.Sampled {
		id := a.span.SpanContext().SpanID()
		try.Span = routing.Hash(binary.BigEndian.Uint64(id[:]))
	}
	if a.headAt.IsZero() {
		try.DurationMs = ms(a.ended.Sub(a.started))
	} else {
		try.DurationMs = ms(a.headAt.Sub(a.started))
	}
	if a.verdict != nil {
		try.Error = a.verdict.Error()
	}
	return try
}

// errorType says in one word what the attempt failed by, "" of one that did not.
func errorType(a *attempt) string {
	f, blame, status := a.f, a.blame, 0
	if f != nil {
		blame, status = f.blame, f.status
	}
	if status == 0 && a.status >= 300 {
		status = a.status
	}
	switch {
	case blame == nil:
		return ""
	case status != 0:
		return strconv.Itoa(status)
	case errors.Is(blame, errFirstByteTimeout), errors.Is(blame, errIdleTimeout), errors.Is(blame, errTotalTimeout):
		return decisions.ErrorTimeout
	case errors.Is(blame, ErrDrainCut):
		return decisions.ErrorShutdown
	case errors.Is(blame, errClientGone), errors.Is(blame, errClientBody):
		return decisions.ErrorClientGone
	case f != nil && !f.left && errors.Is(blame, routing.ErrExcluded):
		return decisions.ErrorGateway
	case f != nil && !f.left: // and nobody else cut it
		return decisions.ErrorConnect
	case f != nil && f.err.Code == openai.CodeWorkerProtocol:
		return decisions.ErrorProtocol
	}
	return decisions.ErrorCut
}
