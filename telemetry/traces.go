package telemetry

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// TracesConfig says where traces go and which requests have one.
type TracesConfig struct {
	OTLP    string                      // the collector's URL, as http://jaeger:4318; empty: the environment's
	Sample  float64                     // share of the traces that begin here to export; 1 leaves it to OTEL_TRACES_SAMPLER
	Clients string                      // what a caller's trace is to the request's: parent (the default, also for "") or link
	Version string                      // of the program
	Env     func(string) (string, bool) // looks up OTEL_* variables; nil: none is set
	Log     *slog.Logger                // required
	// Recover runs a step that reads records or a collector's answer. It returns the
	// step's error, and an error instead of a panic. Nil: a panic ends the process.
	Recover func(work string, step func() error) error
}

// Traces exports what happened to requests as spans over OTLP/HTTP. A request
// costs its ids and a place in a bounded queue: spans are made and sent by the
// goroutine that calls Run. A collector that is away, slow or hung therefore costs
// requests nothing; what does not fit into the queue is dropped and counted. A nil
// Traces is tracing turned off. All methods are safe for concurrent use.
type Traces struct {
	log      *slog.Logger
	recover  func(work string, step func() error) error
	url      string // of the collector
	endpoint string // its scheme and host, for the log
	link     bool
	fromEnv  sampler // in force while the share is 1
	sampler  atomic.Pointer[sampler]

	queue    chan record
	most     int           // spans that are sent at once
	every    time.Duration // how long a span waits for others at most
	patience time.Duration // how long sending a batch may take
	exporter sdktrace.SpanExporter
	tracer   trace.Tracer
	batch    *batch // of the goroutine that runs
	worries  worries

	closed                            atomic.Bool
	exported, failed, dropped, queued atomic.Int64 // spans
}

// record is what became of one request.
type record struct {
	c     TraceContext
	spans Spans
	n     int64 // of spans, as announced
}

// TraceCounts counts spans since the start: made = exported + failed + dropped +
// queued.
type TraceCounts struct {
	Exported int64 // that the collector took
	Failed   int64 // that it refused, or that could not be sent to it
	Dropped  int64 // that found the queue full, or came when the gateway had stopped sending
	Queued   int64 // that wait, or are being sent now
}

// Bounds, unless the environment says otherwise.
const (
	// usualQueue is how many requests wait: what the specification has for spans,
	// here some 10 MB of records.
	usualQueue = 2048
	// usualBatch is the specification's: about 250 KB.
	usualBatch = 512
	// usualEvery is less than the specification's 5 s: who has sent a request looks
	// at its trace at once.
	usualEvery = time.Second
	// usualPatience is the specification's. A collector that hangs is given up
	// after the exporter's own 10 s an attempt.
	usualPatience = 30 * time.Second
	// flushFor bounds what a stop waits for the collector.
	flushFor = 3 * time.Second
	// mostQueue and mostBatch are bounds of what the environment may say.
	mostQueue, mostBatch = 1 << 20, 1 << 16
)

// NewTraces returns the traces of a process, nil when nobody asks for any: neither
// the configuration nor the environment names a collector, or OTEL_SDK_DISABLED or
// OTEL_TRACES_EXPORTER=none turns them off. Mistakes in the environment are logged,
// and what they speak of is passed over; only a configured URL that is none is an
// error. Nothing is sent before Run.
func NewTraces(c TracesConfig) (*Traces, error) {
	silenceSDK()
	env := &environment{lookup: c.Env}
	t, err := newTraces(c, env)
	for _, w := range env.warnings {
		c.Log.Warn("the environment asks for traces that cannot be had", "why", w)
	}
	if errors.Is(err, errNoEndpoint) {
		return nil, nil
	}
	return t, err
}

func newTraces(c TracesConfig, env *environment) (*Traces, error) {
	if env.off() {
		return nil, errNoEndpoint
	}
	at, err := env.endpoint(c.OTLP)
	if err != nil {
		return nil, err
	}
	asJSON, ok := env.protocolJSON(c.OTLP != "")
	if !ok {
		return nil, errNoEndpoint
	}
	options, ok := env.options(at, asJSON)
	if !ok {
		return nil, errNoEndpoint
	}
	if c.Recover == nil {
		c.Recover = func(_ string, step func() error) error { return step() }
	}
	t := &Traces{log: c.Log, recover: c.Recover,
		url: at.String(), endpoint: at.Scheme + "://" + at.Host, link: c.Clients == "link", fromEnv: *env.sampler(1),
		queue: make(chan record, env.number(envQueue, "requests", usualQueue, mostQueue)), most: env.number(envBatch, "spans", usualBatch, mostBatch),
		every: env.milliseconds(envDelay, usualEvery), patience: env.milliseconds(envTimeout, usualPatience), batch: &batch{}}
	t.SetSample(c.Sample)
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithIDGenerator(spanIDs{}),
		sdktrace.WithResource(env.resource(c.Version)), sdktrace.WithRawSpanLimits(env.limits()), sdktrace.WithSpanProcessor(t.batch))
	t.tracer = provider.Tracer("tierway", trace.WithInstrumentationVersion(c.Version), trace.WithSchemaURL(SchemaURL))
	if t.exporter, err = otlptracehttp.New(context.Background(), options...); err != nil {
		env.warn("making the exporter of traces by OTEL_EXPORTER_OTLP_*: %v. Traces are off.", err)
		return nil, errNoEndpoint
	}
	return t, nil
}

// SetSample changes which share of the traces that begin here is exported, from 0
// to 1; 1 leaves it to the environment. Requests that have begun keep what was
// decided.
func (t *Traces) SetSample(p float64) {
	if t == nil {
		return
	}
	s := t.fromEnv
	if p != 1 {
		s = sampler{parent: true, below: ratio(p)}
	}
	t.sampler.Store(&s)
}

// Begin gives a request its place in a trace: in its caller's, when the headers
// name one and the caller is trusted, else in one that begins here. A caller that
// is not trusted decides nothing, neither the ids nor whether the request is
// exported. rand returns uniform bits.
func (t *Traces) Begin(h http.Header, trusted bool, rand func() uint64) TraceContext {
	if t == nil {
		return TraceContext{}
	}
	c := TraceContext{On: true}
	binary.BigEndian.PutUint64(c.Span[:], someBits(rand))
	s := t.sampler.Load()
	var from caller
	if trusted {
		from = readCaller(h)
	}
	if from.valid && !t.link {
		c.TraceID, c.Parent, c.State, c.Random = from.trace, from.span, from.tracestate(), from.flags&flagRandom != 0
		c.Sampled = from.flags&flagSampled != 0
		if !s.parent {
			c.Sampled = s.sampled(c.TraceID)
		}
		return c
	}
	binary.BigEndian.PutUint64(c.TraceID[:8], rand())
	binary.BigEndian.PutUint64(c.TraceID[8:], someBits(rand))
	c.Sampled = s.sampled(c.TraceID)
	if from.valid && c.Sampled {
		c.Link = SpanLink{TraceID: from.trace, Span: from.span, Sampled: from.flags&flagSampled != 0, State: from.tracestate()}
	}
	return c
}

// someBits returns random bits of which not all are 0, which is no id.
func someBits(rand func() uint64) uint64 {
	for {
		if n := rand(); n != 0 {
			return n
		}
	}
}

// Export hands over what became of a request, which must not change afterwards.
// It never blocks: what finds the queue full is dropped and counted. A request that
// is not exported costs nothing.
func (t *Traces) Export(c TraceContext, s Spans) {
	if t == nil || !c.Sampled {
		return
	}
	n := int64(s.Len())
	if t.closed.Load() {
		t.dropped.Add(n)
		return
	}
	t.queued.Add(n)
	select {
	case t.queue <- record{c: c, spans: s, n: n}:
	default:
		t.queued.Add(-n)
		t.dropped.Add(n)
	}
}

// Counts returns what became of all spans so far; zeros without tracing.
func (t *Traces) Counts() TraceCounts {
	if t == nil {
		return TraceCounts{}
	}
	return TraceCounts{Exported: t.exported.Load(), Failed: t.failed.Load(), Dropped: t.dropped.Load(), Queued: t.queued.Load()}
}
