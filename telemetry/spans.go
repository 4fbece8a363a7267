package telemetry

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Spans is a request's record, of which spans are made once the request is over.
type Spans interface {
	// Spans returns the request's spans, its own first. It is called on another
	// goroutine than Export, so that the record must not change any more.
	Spans(c TraceContext) []Span
	// Len returns how many Spans returns, at little cost: it is asked for what is
	// dropped, too.
	Len() int
}

// Span is one span of a request. The first of a request is the request's own,
// whose ids are the TraceContext's; all others are its children.
type Span struct {
	Name       string
	Kind       SpanKind
	ID         uint64 // 0: any; the first one's is the TraceContext's whatever stands here
	Start, End time.Time
	Error      bool // the span's status is error
	Attributes []Attr
	Events     []SpanEvent
}

// SpanEvent is a moment of a span.
type SpanEvent struct {
	Name       string
	At         time.Time
	Attributes []Attr
}

// SpanKind says what a span is of its callers and callees.
type SpanKind = trace.SpanKind

// The kinds of spans that there are here.
const (
	KindInternal = trace.SpanKindInternal
	KindServer   = trace.SpanKindServer
	KindClient   = trace.SpanKindClient
)

// Attr is one attribute of a span or event.
type Attr = attribute.KeyValue

// String returns an attribute. The value must be valid UTF-8.
func String(key, value string) Attr { return attribute.String(key, value) }

// Int returns an attribute.
func Int(key string, value int64) Attr { return attribute.Int64(key, value) }

// Float returns an attribute.
func Float(key string, value float64) Attr { return attribute.Float64(key, value) }

// Bool returns an attribute.
func Bool(key string, value bool) Attr { return attribute.Bool(key, value) }

// spanIDs hands the SDK the ids that were made when the request began.
type spanIDs struct{}

type idsKey struct{}

type ids struct {
	trace trace.TraceID
	span  trace.SpanID
}

// NewIDs is part of sdktrace.IDGenerator: for a span that begins a trace.
func (spanIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	i, _ := ctx.Value(idsKey{}).(ids)
	return i.trace, i.span
}

// NewSpanID is part of sdktrace.IDGenerator: for a span that has a parent.
func (spanIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	i, _ := ctx.Value(idsKey{}).(ids)
	return i.span
}

// makeSpans has the SDK make the spans of one request; each goes to the span
// processor when it ends.
func makeSpans(tracer trace.Tracer, c TraceContext, spans []Span) {
	state := parsedState(c.State)
	var root trace.SpanContext
	for i := range spans {
		s := &spans[i]
		at := ids{trace: c.TraceID, span: spanID(s.ID)}
		ctx := context.Background()
		options := []trace.SpanStartOption{trace.WithSpanKind(s.Kind), trace.WithTimestamp(s.Start), trace.WithAttributes(s.Attributes...)}
		switch {
		case i > 0:
			ctx = trace.ContextWithSpanContext(ctx, root)
		case c.Parent != [8]byte{}:
			at.span = c.Span
			ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: c.TraceID, SpanID: c.Parent, TraceFlags: c.flags(), TraceState: state, Remote: true}))
		default:
			at.span = c.Span
		}
		if i == 0 && c.Link != (SpanLink{}) {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: c.Link.context()}))
		}
		_, span := tracer.Start(context.WithValue(ctx, idsKey{}, at), s.Name, options...)
		if i == 0 {
			root = span.SpanContext()
		}
		for _, e := range s.Events {
			span.AddEvent(e.Name, trace.WithTimestamp(e.At), trace.WithAttributes(e.Attributes...))
		}
		if s.Error {
			span.SetStatus(codes.Error, "") // error.type says which
		}
		span.End(trace.WithTimestamp(s.End))
	}
}

// spanID returns a span's id, a random one for 0, which is none.
func spanID(n uint64) (id trace.SpanID) {
	for n == 0 {
		n = rand.Uint64()
	}
	binary.BigEndian.PutUint64(id[:], n)
	return id
}

// parsedState is what the SDK makes of a tracestate, nothing of one that it does
// not like.
func parsedState(s string) trace.TraceState {
	state, err := trace.ParseTraceState(s)
	if err != nil {
		return trace.TraceState{}
	}
	return state
}

func (c TraceContext) flags() (f trace.TraceFlags) {
	if c.Sampled {
		f |= trace.FlagsSampled
	}
	if c.Random {
		f |= trace.FlagsRandom
	}
	return f
}

func (l SpanLink) context() trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: l.TraceID, SpanID: l.Span, Remote: true,
		TraceFlags: trace.TraceFlags(0).WithSampled(l.Sampled), TraceState: parsedState(l.State)})
}

// batch is a span processor that keeps ended spans until they are exported. One
// goroutine has it. Unlike the SDK's own it drops nothing: the bound is on the
// requests that wait to become spans.
type batch struct {
	spans []sdktrace.ReadOnlySpan
}

// OnStart is part of sdktrace.SpanProcessor.
func (b *batch) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd is part of sdktrace.SpanProcessor.
func (b *batch) OnEnd(s sdktrace.ReadOnlySpan) { b.spans = append(b.spans, s) }

// Shutdown is part of sdktrace.SpanProcessor.
func (b *batch) Shutdown(context.Context) error { return nil }

// ForceFlush is part of sdktrace.SpanProcessor.
func (b *batch) ForceFlush(context.Context) error { return nil }
