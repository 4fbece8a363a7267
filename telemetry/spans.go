package telemetry

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// TraceContext is a request's place in a trace. The zero value belongs to no trace.
type TraceContext struct {
	On      bool // there is tracing, whether or not this request is exported
	Sampled bool // the request is exported
	span    trace.Span
	tracer  trace.Tracer
	traces  *Traces
}

// Span describes a span of a request that is over. The first of a request is the
// request's own; all others are its children.
type Span struct {
	Begun      trace.Span // of Attempt; nil: End makes a span of the request's inner work
	Name       string
	Start, End time.Time // Start counts where Begun is nil
	Error      bool      // the span's status is error
	Attributes []attribute.KeyValue
	Events     []SpanEvent
}

// SpanEvent is a moment of a span.
type SpanEvent struct {
	Name       string
	At         time.Time
	Attributes []attribute.KeyValue
}

// Begin starts the span of a request that came at start: in its caller's trace if the
// headers name one and the caller is trusted, else in a new one. A caller that is not
// trusted decides neither the ids nor whether the request is exported.
func (t *Traces) Begin(h http.Header, trusted bool, start time.Time) TraceContext {
	if t == nil {
		return TraceContext{}
	}
	ctx := context.Background()
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(start)}
	if trusted && len(h["Traceparent"]) == 1 {
		caller := propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
			"traceparent": knownFlags(h["Traceparent"][0]), "tracestate": strings.Join(h["Tracestate"], ",")})
		if t.link {
			options = append(options, trace.WithLinks(trace.LinkFromContext(caller)))
		} else {
			ctx = caller
		}
	}
	tracer := *t.tracer.Load()
	_, span := tracer.Start(ctx, "", options...)
	return TraceContext{On: true, Sampled: span.SpanContext().IsSampled(), span: span, tracer: tracer, traces: t}
}

// knownFlags returns a traceparent of version 00 with only the flags that its
// specification names. It reserves the others; the SDK refuses a header that has them.
func knownFlags(parent string) string {
	const version, length = "00-", 55
	if len(parent) != length || parent[:len(version)] != version {
		return parent
	}
	flags, err := strconv.ParseUint(parent[length-2:], 16, 8)
	if err != nil || flags <= 3 {
		return parent
	}
	return parent[:length-2] + "0" + strconv.FormatUint(flags&3, 16)
}

// ID returns the trace's id as 32 hexadecimal digits, or nothing if the request is not
// exported: nobody would find the trace.
func (c TraceContext) ID() string {
	if !c.Sampled || c.span == nil {
		return ""
	}
	return c.span.SpanContext().TraceID().String()
}

// Attempt starts the span of a call of a worker; End ends it. For a request that is not
// exported it is the request's own span, and nil without tracing.
func (c TraceContext) Attempt(start time.Time) trace.Span {
	if !c.Sampled || c.span == nil {
		return c.span
	}
	ctx := trace.ContextWithSpan(context.Background(), c.span)
	_, span := c.tracer.Start(ctx, "", trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(start))
	return span
}

// Inject replaces the trace headers (W3C Trace Context) by those of a span. With nil it
// leaves them as they are.
func Inject(h http.Header, span trace.Span) {
	if span == nil {
		return
	}
	delete(h, "Tracestate")
	ctx := trace.ContextWithSpan(context.Background(), span)
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
}

// SpanMaker makes the spans of a request that has ended.
type SpanMaker interface {
	Len() int // the number of spans
	// Spans appends the spans' attributes to list, and returns the spans and the extended
	// list, whose memory they share. The caller reuses the list once the spans have ended.
	// Spans is called at most once, on another goroutine.
	Spans(list []attribute.KeyValue) ([]Span, []attribute.KeyValue)
}

// End ends the request's span, which is the first of the spans, and its children, and
// exports them. It never blocks. A request that is not exported costs nothing.
func (c TraceContext) End(spans SpanMaker) {
	if c.Sampled {
		c.traces.add(endedRequest{c, spans, int64(spans.Len())})
	}
}

// endSpans ends the spans, on the goroutine that makes them.
func (c TraceContext) endSpans(spans []Span) {
	parent := trace.ContextWithSpan(context.Background(), c.span)
	for i := range spans {
		s, span := &spans[i], spans[i].Begun
		if i == 0 {
			span = c.span
		} else if span == nil {
			_, span = c.tracer.Start(parent, "", trace.WithTimestamp(s.Start))
		}
		span.SetName(s.Name)
		span.SetAttributes(s.Attributes...)
		for _, e := range s.Events {
			span.AddEvent(e.Name, trace.WithTimestamp(e.At), trace.WithAttributes(e.Attributes...))
		}
		if s.Error {
			span.SetStatus(codes.Error, "") // error.type says which
		}
		span.End(trace.WithTimestamp(s.End))
	}
}
