package decisions

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"tierway/routing"
	"tierway/telemetry"
)

// RouteOther is what a record has of a request that no route takes.
const RouteOther = "other"

// Trace is a Decision of which spans are made.
type Trace struct {
	*Decision
	Calls []trace.Span // of the attempts
}

// Spans returns the request's span and its children: for each attempt its wait in
// the queue, the choice of the worker and the call, then a wait that ended without
// a worker.
func (t Trace) Spans() []telemetry.Span {
	spans := append(make([]telemetry.Span, 0, 2+3*len(t.Attempts)), t.root())
	for i := range t.Attempts {
		a := &t.Attempts[i]
		if a.QueueMs > 0 {
			spans = append(spans, t.queued(a.AtMs-a.QueueMs, a.AtMs, i, ""))
		}
		if routed(a) {
			spans = append(spans, t.routed(a, i))
		}
		spans = append(spans, t.called(a, i))
	}
	if lost := t.lostWait(); lost > 0 {
		spans = append(spans, t.queued(t.DurationMs-lost, t.DurationMs, len(t.Attempts), t.Shed))
	}
	return spans
}

// routed tells whether the attempt's worker was chosen: one that holds a stored
// response is not.
func routed(a *Attempt) bool { return a.Choice != nil || a.Reason != "" }

// lostWait is how long the request waited for a worker that it did not get, in
// milliseconds: the part of the whole wait that is no attempt's.
func (t Trace) lostWait() float64 {
	lost := t.QueueMs
	for i := range t.Attempts {
		lost -= t.Attempts[i].QueueMs
	}
	if lost < 0.002 { // what rounding leaves
		return 0
	}
	return min(lost, t.DurationMs)
}

// at is a moment of the request.
func (t Trace) at(ms float64) time.Time {
	return t.Time.Add(time.Duration(ms * float64(time.Millisecond)))
}

// root is the request as its client has it.
func (t Trace) root() telemetry.Span {
	s := telemetry.Span{Start: t.Time, End: t.at(t.DurationMs)}
	verb, method := t.Method, t.Method
	if method == "OTHER" { // as the conventions have it
		verb, method = "HTTP", "_OTHER"
	}
	route := t.Route
	if route == RouteOther { // which is none
		route = ""
	}
	s.Name = strings.TrimSpace(verb + " " + route)
	a := attrs{list: make([]attribute.KeyValue, 0, 40)} // as many as there can be
	a.text(telemetry.AttrHTTPMethod, method)
	a.text(telemetry.AttrHTTPRoute, route)
	if t.Status != StatusClientGone { // which is no status of an answer
		a.number(telemetry.AttrHTTPStatus, int64(t.Status))
	}
	// A stream that was opened for heartbeats fails with the status 200.
	if s.Error = t.Status >= http.StatusInternalServerError || t.Result == Failed || t.Result == Truncated; s.Error {
		a.text(telemetry.AttrErrorType, t.errorType())
	}
	t.asked(&a)
	t.decided(&a)
	t.measured(&a)
	s.Attributes = a.list
	return s
}

// errorType names a failure of the whole request.
func (t Trace) errorType() string {
	switch {
	case t.Code != "":
		return t.Code
	case t.Result == Truncated:
		return string(Truncated)
	}
	return strconv.Itoa(t.Status)
}

// asked says what the request asked for, and who asked.
func (t Trace) asked(a *attrs) {
	if t.RequestedModel != "" {
		a.text(telemetry.AttrGenAIModel, t.RequestedModel)
		a.yes(telemetry.AttrGenAIStream, t.Stream)
		a.count(telemetry.AttrGenAIMaxTokens, t.MaxTokens)
	}
	a.text(telemetry.AttrRequestID, t.RequestID)
	a.text(telemetry.AttrTenant, t.Tenant)
	a.text(telemetry.AttrKey, t.Key)
	a.text(telemetry.AttrClass, t.Class)
	a.text(telemetry.AttrAskedClass, t.AskedClass)
	a.text(telemetry.AttrDialect, t.Dialect)
	a.count(telemetry.AttrEstimate, t.PromptTokens)
}

// decided says what was decided.
func (t Trace) decided(a *attrs) {
	a.text(telemetry.AttrTier, t.Tier)
	a.text(telemetry.AttrRule, t.Rule)
	a.text(telemetry.AttrRuleNote, t.RuleNote)
	a.text(telemetry.AttrPolicy, t.Policy)
	a.text(telemetry.AttrWorker, t.Worker)
	a.text(telemetry.AttrReason, t.Reason)
	a.yes(telemetry.AttrPromoted, t.Promoted)
	a.text(telemetry.AttrOutcome, string(t.Result))
	a.text(telemetry.AttrCode, t.Code)
	a.text(telemetry.AttrLimit, t.Limit)
	a.text(telemetry.AttrShed, t.Shed)
	a.number(telemetry.AttrAttempts, int64(len(t.Attempts)))
	a.count(telemetry.AttrGeneration, t.Generation)
}

// measured says how long things took and what they cost.
func (t Trace) measured(a *attrs) {
	a.ms(telemetry.AttrOverheadMs, t.OverheadMs)
	a.ms(telemetry.AttrQueueMs, t.QueueMs)
	a.ms(telemetry.AttrTTFTMs, t.TTFTMs)
	// Not by the conventions' names, and no operation: the attempts have both, and who
	// sums up the tokens of generating spans would count them twice.
	a.count(telemetry.AttrPrompt, t.Usage.Prompt)
	a.count(telemetry.AttrCached, t.Usage.Cached)
	a.count(telemetry.AttrOutput, t.Usage.Output)
	a.yes(telemetry.AttrEstimated, t.Estimated)
}

// queued is a wait for the n-th worker, from 0.
func (t Trace) queued(from, to float64, n int, shed string) telemetry.Span {
	a := attrs{}
	a.text(telemetry.AttrTier, t.Tier)
	a.text(telemetry.AttrClass, t.Class)
	a.text(telemetry.AttrShed, shed)
	a.number(telemetry.AttrAttempt, int64(n)+1)
	return telemetry.Span{Name: telemetry.SpanQueue, Start: t.at(from), End: t.at(to), Attributes: a.list}
}

// routed is the choice of the n-th worker, from 0. After a wait it has no length:
// the queue chose.
func (t Trace) routed(try *Attempt, n int) telemetry.Span {
	from := try.AtMs
	if try.QueueMs == 0 {
		from -= try.SelectionUs / 1000
	}
	a := attrs{list: make([]attribute.KeyValue, 0, 12)}
	a.text(telemetry.AttrWorker, try.Worker)
	a.text(telemetry.AttrReason, try.Reason)
	a.number(telemetry.AttrPredicted, try.Predicted)
	a.ms(telemetry.AttrSelectionUs, try.SelectionUs)
	a.number(telemetry.AttrAttempt, int64(n)+1)
	s := telemetry.Span{Name: telemetry.SpanRoute, Start: t.at(from), End: t.at(try.AtMs)}
	if c := try.Choice; c != nil {
		a.text(telemetry.AttrPolicy, c.Policy)
		a.text(telemetry.AttrKeyOf, c.KeyOf)
		a.text(telemetry.AttrRunnerUp, c.RunnerUp)
		a.number(telemetry.AttrSeen, int64(c.Seen))
		a.yes(telemetry.AttrHeld, c.Held)
		s.Events = candidates(c, try.Worker, s.End)
	}
	s.Attributes = a.list
	return s
}

// shownCandidates is how many candidates a span tells of: a page of Jaeger's. The
// record of the decision has more.
const shownCandidates = 8

// candidates are the workers that could have been chosen: the chosen one, the one
// that came next, then the others.
func candidates(c *routing.Choice, chosen string, at time.Time) []telemetry.SpanEvent {
	n := min(len(c.Candidates), shownCandidates)
	events := make([]telemetry.SpanEvent, 0, n)
	add := func(v *routing.Candidate) {
		if v != nil && len(events) < n {
			events = append(events, telemetry.SpanEvent{Name: telemetry.EventCandidate, At: at, Attributes: candidateAttrs(v)})
		}
	}
	add(c.Of(chosen))
	if c.RunnerUp != chosen {
		add(c.Of(c.RunnerUp))
	}
	for i := range c.Candidates {
		if v := &c.Candidates[i]; v.Worker != chosen && v.Worker != c.RunnerUp {
			add(v)
		}
	}
	return events
}

func candidateAttrs(v *routing.Candidate) []attribute.KeyValue {
	a := attrs{list: make([]attribute.KeyValue, 0, 10)}
	a.text(telemetry.AttrWorker, v.Worker)
	a.list = append(a.list, attribute.Float64(telemetry.AttrCandidateScore, v.Score))
	a.text(telemetry.AttrCandidatePassed, v.Passed)
	a.number(telemetry.AttrCandidateOverlap, v.Overlap)
	a.count(telemetry.AttrCandidatePending, v.PendingTokens)
	a.count(telemetry.AttrCandidateLoad, int64(v.Inflight))
	v.Terms.All(func(name string, value float64) {
		a.list = append(a.list, attribute.Float64(telemetry.AttrCandidateTerm+name, value))
	})
	return a.list
}

// called is the n-th call of a worker, from 0: as the conventions for generative AI
// describe one where a model is asked, else as they do any call over HTTP.
func (t Trace) called(try *Attempt, n int) telemetry.Span {
	end := try.EndAtMs
	if end == 0 {
		end = try.AtMs + try.DurationMs
	}
	s := telemetry.Span{Name: t.Method, Start: t.at(try.AtMs), End: t.at(max(end, try.AtMs)),
		Error: try.ErrorType != "" && try.ErrorType != ErrorClientGone}
	if n < len(t.Calls) {
		s.Begun = t.Calls[n]
	}
	a := attrs{list: make([]attribute.KeyValue, 0, 20)}
	if t.asksModel() {
		s.Name = strings.TrimSpace(t.operation() + " " + clean(t.Model))
		a.text(telemetry.AttrGenAIOperation, t.operation())
		a.text(telemetry.AttrGenAIProvider, t.provider())
		a.text(telemetry.AttrGenAIModel, t.Model)
		if t.RequestedModel != t.Model {
			a.text(telemetry.AttrAskedModel, t.RequestedModel)
		}
		a.yes(telemetry.AttrGenAIStream, t.Stream)
		a.count(telemetry.AttrGenAIMaxTokens, t.MaxTokens)
		a.usage(try.Usage)
	}
	a.count(telemetry.AttrHTTPStatus, int64(try.Status))
	a.text(telemetry.AttrErrorType, try.ErrorType)
	a.text(telemetry.AttrWorker, try.Worker)
	a.number(telemetry.AttrPredicted, try.Predicted)
	a.number(telemetry.AttrAttempt, int64(n)+1)
	if try.FirstAtMs > 0 {
		a.list = append(a.list, attribute.Float64(telemetry.AttrGenAIFirst, max(try.FirstAtMs-try.AtMs, 0)/1000))
		s.Events = []telemetry.SpanEvent{{Name: telemetry.EventFirst, At: t.at(try.FirstAtMs)}}
	}
	s.Attributes = a.list
	return s
}

// RuleStored is the rule of requests about a stored response.
const RuleStored = "stored"

// StatusClientGone is what nginx logs for a client that left; it is never sent.
const StatusClientGone = 499
