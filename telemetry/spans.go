package telemetry

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net/http"
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
}

// Span is one span of a request. The first of a request is the request's own; all
// others are its children.
type Span struct {
	Name       string
	Kind       trace.SpanKind // ignored for the request's own: it is a server's
	ID         uint64         // 0: any; ignored for the request's own
	Start, End time.Time
	Error      bool // the span's status is error
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
			"traceparent": h["Traceparent"][0], "tracestate": strings.Join(h["Tracestate"], ",")})
		if t.link {
			options = append(options, trace.WithLinks(trace.LinkFromContext(caller)))
		} else {
			ctx = caller
		}
	}
	tracer := *t.tracer.Load()
	_, span := tracer.Start(ctx, "", options...)
	return TraceContext{On: true, Sampled: span.SpanContext().IsSampled(), span: span, tracer: tracer}
}

// ID returns the trace's id as 32 hexadecimal digits, or nothing if the request is not
// exported: nobody would find the trace.
func (c TraceContext) ID() string {
	if !c.Sampled || c.span == nil {
		return ""
	}
	return c.span.SpanContext().TraceID().String()
}

// Inject replaces the trace headers (W3C Trace Context) by those of the given span of
// the trace. Without tracing it leaves them as they are.
func (c TraceContext) Inject(h http.Header, span uint64) {
	if !c.On {
		return
	}
	delete(h, "Tracestate")
	at := c.span.SpanContext().WithSpanID(spanID(span))
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), at), propagation.HeaderCarrier(h))
}

// End ends the request's span, which is the first of spans, and exports all of them.
// It never blocks. A request that is not exported costs nothing.
func (c TraceContext) End(spans []Span) {
	if !c.Sampled {
		return
	}
	parent := trace.ContextWithSpan(context.Background(), c.span)
	for i := range spans {
		s, span := &spans[i], c.span
		if i == 0 {
			span.SetName(s.Name)
		} else {
			ctx := context.WithValue(parent, spanIDKey{}, s.ID)
			_, span = c.tracer.Start(ctx, s.Name, trace.WithSpanKind(s.Kind), trace.WithTimestamp(s.Start))
		}
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

// spanIDs makes random ids, except for a span whose context has the id that a worker
// was sent.
type spanIDs struct{}

type spanIDKey struct{}

// NewIDs is part of sdktrace.IDGenerator: for a span that begins a trace.
func (g spanIDs) NewIDs(ctx context.Context) (id trace.TraceID, span trace.SpanID) {
	binary.BigEndian.PutUint64(id[:8], rand.Uint64()|1) // zero is no id
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID is part of sdktrace.IDGenerator: for a span that has a parent.
func (spanIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	id, _ := ctx.Value(spanIDKey{}).(uint64)
	for id == 0 { // is no id
		id = rand.Uint64()
	}
	return spanID(id)
}

func spanID(n uint64) (id trace.SpanID) {
	binary.BigEndian.PutUint64(id[:], n)
	return id
}
