package server

import (
	"errors"
	"strconv"
	"time"

	"tierway/decisions"
	"tierway/openai"
	"tierway/routing"
	"tierway/telemetry"
)

// record completes the Decision and writes what is made from it.
func (x *exchange) record() {
	d := x.d
	d.DurationMs = ms(time.Since(x.start))
	d.Stream = x.req != nil && x.req.Stream
	d.Usage = decisions.Usage{Prompt: x.usage.Prompt, Cached: x.usage.Cached, Output: x.usage.Output}
	if d.Result == decisions.ClientGone && x.answer.held() {
		d.Status = statusClientGone
	} else {
		d.Status = x.answer.status
	}
	x.s.metrics.TenantEnded(d.Tenant, outcomeIndex(d.Result), d.Usage.Prompt, d.Usage.Cached, d.Usage.Output)
	if d.Limit != "" {
		x.s.metrics.TenantLimited(d.Tenant, d.Limit)
	}
	if x.pool != nil {
		x.pool.series.Duration.Observe(d.DurationMs / 1000)
		x.pool.series.Ended(int(x.dialect), outcomeIndex(d.Result))
		if len(d.Attempts) > 0 && d.Rule != ruleStored { // whose one worker is asked without a queue
			x.pool.waits.Granted(int(x.class), time.Duration(d.QueueMs*float64(time.Millisecond)))
		}
	} else {
		x.s.metrics.EndedOutside(int(x.dialect), outcomeIndex(d.Result))
	}
	x.exportTrace()
	x.s.logAccess(d)
	x.s.decided(d)
}

// countPrefix compares what the worker was believed to have of the prompt with what
// its engine says.
func (a *attempt) countPrefix() {
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
	a.x.pool.series.Prefix(result, a.lease.Overlap(), cached)
}

// countPace counts the time between two tokens of a generated stream whose engine has told
// how many there were.
func (a *attempt) countPace() {
	if n := a.usage.Output; n > 1 && !a.firstAt.IsZero() {
		a.x.pool.series.TPOT.Observe(a.lastAt.Sub(a.firstAt).Seconds() / float64(n-1))
	}
}

// exportTrace hands a sampled request's record to those who make spans of it. The
// trace of somebody unknown begins here, whatever headers came.
func (x *exchange) exportTrace() {
	if x.s.traces == nil {
		return
	}
	if !x.trace.On {
		x.trace = x.s.traces.Begin(x.r.Header, false, x.s.rand)
	}
	x.d.TraceID = x.trace.ID()
	if x.trace.Sampled {
		x.s.traces.Export(x.trace, spansOf{x.d})
	}
}

// statusClientGone is what nginx logs for a client that left; it is never sent.
const statusClientGone = 499

func outcomeIndex(o decisions.Result) int {
	for i, name := range outcomes {
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
func (x *exchange) keepsRecords() bool {
	return x.explanation != nil || x.trace.Sampled || x.s.keepsRecords.Load()
}

// recordChoice has the next pick recorded.
func (x *exchange) recordChoice() {
	x.placed = placed{}
	if x.facts.Record = nil; x.keepsRecords() {
		x.placed.choice = &routing.Choice{Candidates: make([]routing.Candidate, 0, min(len(x.pool.Workers), routing.MaxCandidates))}
		x.facts.Record = x.placed.choice
	}
}

// describeTier keeps what the tier was decided by.
func (x *exchange) describeTier() {
	if !x.keepsRecords() {
		return
	}
	f, e := &x.d.Features, &x.seen
	if asked := x.r.Header.Get("X-Model-Tier"); asked != "" {
		f.Header = "other"
		if p := x.snap.tierNamed(asked); p != nil {
			f.Header = p.Name
		}
	}
	f.Classified, f.Counted, f.UserTextBytes, f.Groups = e.Classified, e.Counted, e.UserBytes, e.Groups
	f.LimitRequired, f.Tools, f.Media = x.dialect.RequiresMaxTokens(), x.req.Tools, x.req.Media
	f.Estimate = x.d.PromptTokens // before gather makes it that of the pool
	if x.prompt != nil {
		f.Session = routing.Hash(x.prompt.features.Session)
	}
}

// describePrompt keeps the hashes that a policy may go by.
func (x *exchange) describePrompt() {
	if !x.keepsRecords() {
		return
	}
	f := &x.d.Features
	f.Model, f.Prefix, f.Blocks = routing.Hash(x.facts.Model), routing.Hash(x.facts.Prefix), len(x.facts.Blocks)
	f.Chain = routing.AppendChain(nil, x.facts.Blocks)
}

// since is a moment as a record has it: in milliseconds from the request's
// beginning.
func (x *exchange) since(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return ms(t.Sub(x.start))
}

// attempted adds the attempt to the record.
func (a *attempt) attempted(f *failure) {
	x := a.x
	try := decisions.Attempt{Worker: a.m.name, Reason: string(a.lease.Reason()), Status: a.status,
		AtMs: x.since(a.started), QueueMs: ms(x.placed.waited), SelectionUs: float64(x.placed.selection.Nanoseconds()) / 1000,
		FirstAtMs: x.since(a.firstAt), EndAtMs: ms(time.Since(x.start)), ErrorType: a.errorType(f), Predicted: a.lease.Overlap(),
		Usage: decisions.Usage{Prompt: a.usage.Prompt, Cached: a.usage.Cached, Output: a.usage.Output}, Choice: x.placed.choice}
	if x.trace.Sampled {
		try.Span = routing.Hash(a.span)
	}
	if a.headAt.IsZero() {
		try.DurationMs = ms(time.Since(a.started))
	} else {
		try.DurationMs = ms(a.headAt.Sub(a.started))
	}
	x.d.Attempts = append(x.d.Attempts, try)
}

// errorType says in one word what the attempt failed by, "" of one that did not.
func (a *attempt) errorType(f *failure) string {
	blame, status := a.blame, 0
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
	case errors.Is(blame, errDrainCut):
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
