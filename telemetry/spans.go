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
	On      bool // tracing is on, whether or not this request is exported
	Sampled bool // the request is exported
	span    trace.Span
	tracer  trace.Tracer
	traces  *Traces
}

// Span describes a span of an ended request. The first span of a request is the request's own;
// the others are its children.
type Span struct {
	Begun      trace.Span // from Attempt; if nil, End makes an internal span
	Name       string
	Start, End time.Time // Start is used only if Begun is nil
	Error      bool      // the span's status is error
	Attributes []attribute.KeyValue
	Events     []SpanEvent
}

// SpanEvent is an event of a span.
type SpanEvent struct {
	Name       string
	At         time.Time
	Attributes []attribute.KeyValue
}

// Begin starts the span of a request that arrived at start: in its caller's trace if the
// headers name one and the caller is trusted, else in a new trace. An untrusted caller decides
// neither the ids nor whether the request is exported.
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

// knownFlags returns a traceparent of version 00 with only the flags that its specification
// defines. The other flags are reserved, and the SDK rejects a header that sets them.
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

// ID returns the id of the trace as 32 hexadecimal digits, or "" if the request is not
// exported, because the collector does not have the trace.
func (c TraceContext) ID() string {
	if !c.Sampled || c.span == nil {
		return ""
	}
	return c.span.SpanContext().TraceID().String()
}

// Attempt starts the span of an attempt on a worker; End ends it. For a request that is not
// exported, Attempt returns the request's own span; without tracing, nil.
func (c TraceContext) Attempt(start time.Time) trace.Span {
	if !c.Sampled || c.span == nil {
		return c.span
	}
	ctx := trace.ContextWithSpan(context.Background(), c.span)
	_, span := c.tracer.Start(ctx, "", trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(start))
	return span
}

// Inject replaces the trace headers (W3C Trace Context) in h by those of span. If span is nil,
// h stays unchanged.
func Inject(h http.Header, span trace.Span) {
	if span == nil {
		return
	}
	delete(h, "Tracestate")
	ctx := trace.ContextWithSpan(context.Background(), span)
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
}

// SpanMaker makes the spans of an ended request.
type SpanMaker interface {
	Len() int // the number of spans
	// Spans appends the attributes of the spans to list. It returns the spans and the extended
	// list; they share memory. The caller reuses the list after the spans have ended.
	// Spans is called at most once.
	Spans(list []attribute.KeyValue) ([]Span, []attribute.KeyValue)
}

// End ends the spans of a request, its own span, which is the first, and its children, and queues them for the
// export. It does not wait for the collector, but costs 22 µs (BenchmarkSampledRequest). For a request that is not
// exported it does nothing.
func (c TraceContext) End(spans SpanMaker) {
	if c.Sampled {
		c.traces.add(c, spans)
	}
}

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
			span.SetStatus(codes.Error, "") // the attribute error.type has the cause
		}
		span.End(trace.WithTimestamp(s.End))
	}
}
