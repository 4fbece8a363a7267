package decisions

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	// the last version of the core conventions that contains the GenAI names
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"tierway/routing"
	"tierway/telemetry"
)

// RouteOther is the recorded route of a request that matches none.
const RouteOther = "other"

// RouteCountTokens and RouteInputTokens are the recorded routes of requests that return the length of a prompt.
const (
	RouteCountTokens = "/messages/count_tokens"
	RouteInputTokens = "/responses/input_tokens"
)

// Trace converts a Decision into spans.
type Trace struct {
	*Decision
	Calls     []trace.Span // spans of the attempts, already begun
	HookCalls []trace.Span // spans of the hooks, already begun
	LookUp    trace.Span   // span of the look-up in the response cache, if it has begun
	Prefills  []trace.Span // spans of their prefill stages, already begun
}

// Len returns the number of spans.
func (t Trace) Len() int {
	n := 1 + len(t.Attempts) + len(t.Hooks)
	if t.Cache.looked() {
		n++
	}
	for i := range t.Attempts {
		if t.Attempts[i].QueueMs > 0 {
			n++
		}
		if routed(&t.Attempts[i]) {
			n++
		}
		if h := t.Attempts[i].Handover; h != nil {
			n += len(h.Prefills)
		}
	}
	if t.lostWait() > 0 {
		n++
	}
	return n
}

// Spans returns the request's span and its children. Each attempt has its wait in the queue, the
// choice of the worker and the call. A wait that ended without a worker follows. Spans appends the
// attributes to list and returns the extended list.
func (t Trace) Spans(list []attribute.KeyValue) ([]telemetry.Span, []attribute.KeyValue) {
	a := &attrs{list: list, start: len(list)}
	spans := append(make([]telemetry.Span, 0, t.Len()), t.rootSpan(a))
	for i := range t.Hooks {
		spans = append(spans, t.hookSpan(a, i))
	}
	if t.Cache.looked() {
		spans = append(spans, t.cacheSpan(a))
	}
	prefills := 0
	for i := range t.Attempts {
		try := &t.Attempts[i]
		if try.QueueMs > 0 {
			spans = append(spans, t.queueSpan(a, try.AtMs-try.QueueMs, try.AtMs, i, ""))
		}
		if routed(try) {
			spans = append(spans, t.routeSpan(a, try, i))
		}
		if h := try.Handover; h != nil {
			for j := range h.Prefills {
				spans = append(spans, t.prefillSpan(a, &h.Prefills[j], prefills, i))
				prefills++
			}
		}
		spans = append(spans, t.callSpan(a, try, i))
	}
	if lost := t.lostWait(); lost > 0 {
		spans = append(spans, t.queueSpan(a, t.DurationMs-lost, t.DurationMs, len(t.Attempts), t.Shed))
	}
	return spans, a.list
}

// routed reports whether a policy or a queue chose the attempt's worker. A worker that holds a
// stored response is not chosen.
func routed(a *Attempt) bool { return a.Choice != nil || a.Reason != "" }

// lostWait returns how long the request waited for a worker that it did not get, in milliseconds:
// the total wait minus the waits of the attempts.
func (t Trace) lostWait() float64 {
	lost := t.QueueMs
	for i := range t.Attempts {
		lost -= t.Attempts[i].QueueMs
	}
	if lost < 0.002 { // rounding error
		return 0
	}
	return min(lost, t.DurationMs)
}

// at returns the time at an offset from the request's beginning.
func (t Trace) at(ms float64) time.Time {
	return t.Time.Add(time.Duration(ms * float64(time.Millisecond)))
}

// rootSpan returns the span of the whole request, as its client sees it.
func (t Trace) rootSpan(a *attrs) telemetry.Span {
	s := telemetry.Span{Start: t.Time, End: t.at(t.DurationMs)}
	verb, method := t.Method, t.Method
	if method == "OTHER" { // as the conventions require
		verb, method = "HTTP", "_OTHER"
	}
	route := t.Route
	if route == RouteOther { // no route matched
		route = ""
	}
	s.Name = strings.TrimSpace(verb + " " + route)
	a.text(semconv.HTTPRequestMethodKey, method)
	a.text(semconv.HTTPRouteKey, route)
	if t.Status != StatusClientGone { // 499 is never sent
		a.number(semconv.HTTPResponseStatusCodeKey, int64(t.Status))
	}
	// A stream that was opened for heartbeats can fail with the status 200.
	if s.Error = t.Status >= http.StatusInternalServerError || t.Result == Failed || t.Result == Truncated; s.Error {
		a.text(semconv.ErrorTypeKey, t.errorType())
	}
	t.addRequest(a)
	t.addDecision(a)
	t.addMeasurements(a)
	s.Attributes = a.next()
	return s
}

func (t Trace) errorType() string {
	switch {
	case t.Code != "":
		return t.Code
	case t.Result == Truncated:
		return string(Truncated)
	}
	return strconv.Itoa(t.Status)
}

// addRequest adds the request's parameters and its caller.
func (t Trace) addRequest(a *attrs) {
	if t.RequestedModel != "" {
		a.text(semconv.GenAIRequestModelKey, t.RequestedModel)
		a.yes(semconv.GenAIRequestStreamKey, t.Stream)
		a.count(semconv.GenAIRequestMaxTokensKey, t.MaxTokens)
	}
	a.text("tierway.request_id", t.RequestID)
	a.text("tierway.tenant", t.Tenant)
	a.text("tierway.key", t.Key)
	a.text("tierway.class", t.Class)
	a.text("tierway.asked_class", t.AskedClass)
	a.text("tierway.dialect", t.Dialect)
	a.count("tierway.prompt_tokens_estimate", t.PromptTokens)
}

func (t Trace) addDecision(a *attrs) {
	a.text("tierway.tier", t.Tier)
	a.text("tierway.rule", t.Rule)
	a.text("tierway.rule_note", t.RuleNote)
	a.text("tierway.policy", t.Policy)
	a.text("tierway.worker", t.Worker)
	a.text("tierway.reason", t.Reason)
	t.addCache(a)
	a.yes("tierway.promoted", t.Promoted)
	a.text("tierway.outcome", string(t.Result))
	a.text("tierway.code", t.Code)
	a.text("tierway.limit", t.Limit)
	a.text("tierway.shed", t.Shed)
	a.number("tierway.attempts", int64(len(t.Attempts)))
	a.count("tierway.config_generation", t.Generation)
}

func (t Trace) addMeasurements(a *attrs) {
	a.ms("tierway.overhead_ms", t.OverheadMs)
	a.ms("tierway.queue_ms", t.QueueMs)
	a.ms("tierway.ttft_ms", t.TTFTMs)
	// The attempts have the conventions' names and the operation. With them on this span too, a sum
	// over generating spans would count tokens twice.
	a.count("tierway.prompt_tokens", t.Usage.Prompt)
	a.count("tierway.cached_tokens", t.Usage.Cached)
	a.count("tierway.output_tokens", t.Usage.Output)
	a.yes("tierway.usage_estimated", t.Estimated)
	a.text("tierway.usage_note", t.UsageNote)
}

// queueSpan returns the span of the wait before attempt n, counted from 0.
func (t Trace) queueSpan(a *attrs, from, to float64, n int, shed string) telemetry.Span {
	a.text("tierway.tier", t.Tier)
	a.text("tierway.class", t.Class)
	a.text("tierway.shed", shed)
	a.number("tierway.attempt", int64(n)+1)
	return telemetry.Span{Name: "queue", Start: t.at(from), End: t.at(to), Attributes: a.next()}
}

// routeSpan returns the span of the choice of the worker of attempt n, counted from 0. After a wait
// its length is 0, because the queue chose.
func (t Trace) routeSpan(a *attrs, try *Attempt, n int) telemetry.Span {
	from := try.AtMs
	if try.QueueMs == 0 {
		from -= try.SelectionUs / 1000
	}
	a.text("tierway.worker", try.Worker)
	a.text("tierway.reason", try.Reason)
	a.number("tierway.predicted_cached_tokens", try.Predicted)
	a.ms("tierway.route.selection_us", try.SelectionUs)
	a.number("tierway.attempt", int64(n)+1)
	s := telemetry.Span{Name: "route", Start: t.at(from), End: t.at(try.AtMs)}
	if c := try.Choice; c != nil {
		a.text("tierway.policy", c.Policy)
		a.text("tierway.route.key_of", c.KeyOf)
		a.text("tierway.route.runner_up", c.RunnerUp)
		a.number("tierway.route.candidates", int64(c.Seen))
		a.yes("tierway.route.worker_full", c.WorkerFull)
	}
	s.Attributes = a.next()
	if try.Choice != nil {
		s.Events = candidates(a, try.Choice, try.Worker, s.End)
	}
	return s
}

// shownCandidates is how many candidates a span shows: a page in Jaeger. The decision holds more.
const shownCandidates = 8

// candidates returns the events of the workers that could have been chosen: the chosen one, the
// runner-up, then the others.
func candidates(a *attrs, c *routing.Choice, chosen string, at time.Time) []telemetry.SpanEvent {
	n := min(len(c.Candidates), shownCandidates)
	events := make([]telemetry.SpanEvent, 0, n)
	add := func(v *routing.Candidate) {
		if v != nil && len(events) < n {
			events = append(events, telemetry.SpanEvent{Name: "candidate", At: at, Attributes: candidateAttrs(a, v)})
		}
	}
	add(c.CandidateOf(chosen))
	if c.RunnerUp != chosen {
		add(c.CandidateOf(c.RunnerUp))
	}
	for i := range c.Candidates {
		if v := &c.Candidates[i]; v.Worker != chosen && v.Worker != c.RunnerUp {
			add(v)
		}
	}
	return events
}

func candidateAttrs(a *attrs, v *routing.Candidate) []attribute.KeyValue {
	a.text("tierway.worker", v.Worker)
	a.list = append(a.list, attribute.Float64("tierway.candidate.score", v.Score))
	a.text("tierway.candidate.excluded", v.Excluded)
	a.number("tierway.candidate.overlap_tokens", v.Overlap)
	a.count("tierway.candidate.pending_tokens", v.PendingTokens)
	a.count("tierway.candidate.inflight", int64(v.Inflight))
	v.Terms.All(func(name string, value float64) {
		a.list = append(a.list, attribute.Float64("tierway.candidate.term."+name, value))
	})
	return a.next()
}

// callSpan returns the span of attempt n, counted from 0. It follows the conventions for generative
// AI if a model is called, and those for HTTP otherwise.
func (t Trace) callSpan(a *attrs, try *Attempt, n int) telemetry.Span {
	end := try.EndAtMs
	if end == 0 {
		end = try.AtMs + try.DurationMs
	}
	s := telemetry.Span{Name: t.Method, Start: t.at(try.AtMs), End: t.at(max(end, try.AtMs)),
		Error: try.ErrorType != "" && try.ErrorType != ErrorClientGone}
	if n < len(t.Calls) {
		s.Begun = t.Calls[n]
	}
	if t.asksModel() {
		s.Name = strings.TrimSpace(t.operation() + " " + clean(t.Model))
		a.text(semconv.GenAIOperationNameKey, t.operation())
		a.text(semconv.GenAIProviderNameKey, t.provider())
		a.text(semconv.GenAIRequestModelKey, t.Model)
		if t.RequestedModel != t.Model {
			a.text("tierway.requested_model", t.RequestedModel)
		}
		a.yes(semconv.GenAIRequestStreamKey, t.Stream)
		a.count(semconv.GenAIRequestMaxTokensKey, t.MaxTokens)
		a.usage(try.Usage)
	}
	if try.Handover != nil {
		a.text("tierway.handover", try.Handover.Result)
	}
	a.count(semconv.HTTPResponseStatusCodeKey, int64(try.Status))
	a.text(semconv.ErrorTypeKey, try.ErrorType)
	a.text("tierway.worker", try.Worker)
	a.number("tierway.predicted_cached_tokens", try.Predicted)
	a.number("tierway.attempt", int64(n)+1)
	if try.FirstAtMs > 0 {
		a.list = append(a.list, semconv.GenAIResponseTimeToFirstChunkKey.Float64(max(try.FirstAtMs-try.AtMs, 0)/1000))
		s.Events = []telemetry.SpanEvent{{Name: "first_content", At: t.at(try.FirstAtMs)}}
	}
	s.Attributes = a.next()
	return s
}

// prefillSpan returns the span of the prefill stage n of the request, which belongs to an attempt; both are counted
// from 0.
func (t Trace) prefillSpan(a *attrs, p *Prefill, n, attempt int) telemetry.Span {
	s := telemetry.Span{Name: "prefill", Start: t.at(p.AtMs), End: t.at(max(p.EndAtMs, p.AtMs)),
		Error: p.ErrorType != "" && p.ErrorType != ErrorClientGone}
	if n < len(t.Prefills) {
		s.Begun = t.Prefills[n]
	}
	a.count(semconv.HTTPResponseStatusCodeKey, int64(p.Status))
	a.text(semconv.ErrorTypeKey, p.ErrorType)
	a.text("tierway.worker", p.Worker)
	a.text("tierway.reason", p.Reason)
	a.number("tierway.predicted_cached_tokens", p.Predicted)
	a.number("tierway.attempt", int64(attempt)+1)
	s.Attributes = a.next()
	return s
}

// RuleStored is the rule of requests about a stored response.
const RuleStored = "stored"

// StatusClientGone is the recorded status if the client left, as in nginx. It is never sent.
const StatusClientGone = 499
