package telemetry

import (
	"cmp"
	"context"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"tierway/spool"
)

// TracesConfig says where traces go and which requests have one. The OpenTelemetry
// SDK reads everything else from the OTEL_* variables of the process.
type TracesConfig struct {
	OTLP    string       // the collector's URL, as http://jaeger:4318; empty: the environment's
	Sample  float64      // share of the traces that begin here to export; 1 leaves it to OTEL_TRACES_SAMPLER
	Clients string       // what a caller's trace is to the request's: parent (the default, also for "") or link
	Service string       // service.name, unless the environment has one; "" is tierway
	Version string       // of the program
	Log     *slog.Logger // required
	// Recover runs an export. It returns the export's error, and an error instead of a
	// panic. Nil: a panic ends the process.
	Recover func(work string, step func() error) error
}

// Traces exports the spans of requests over OTLP/HTTP with the SDK's batch processor.
// Requests never wait for the collector: the queue of spans is bounded, and spans that
// do not fit are dropped and counted. A nil Traces is tracing turned off. All methods
// are safe for concurrent use.
type Traces struct {
	log             *slog.Logger
	recover         func(work string, step func() error) error
	endpoint        string // scheme and host of the collector, for the log
	link            bool
	version         string
	options         []sdktrace.TracerProviderOption
	tracer          atomic.Pointer[trace.Tracer]
	exporter        sdktrace.SpanExporter
	processor       sdktrace.SpanProcessor
	ended           *spool.Spool[endedRequest]
	attributeBuffer []attribute.KeyValue // reused; of makeSpans alone
	most            int64                // spans in the queue
	lossAt          time.Time            // when the last line about lost spans was logged
	lossesTo        int64                // lost spans until then

	closed                            atomic.Bool
	exported, failed, dropped, queued atomic.Int64 // spans
}

const (
	// usualQueue holds some 2,000 requests, in 20 MB.
	usualQueue = 8192
	// usualDelay is shorter than the specification's 5 s: a user looks at a request's
	// trace right after the request.
	usualDelay = time.Second
	// makeDelay is how late the spans of a request are made. Made while the client waits
	// for the end of its answer, they would cost it 22 µs (BenchmarkSampledRequest).
	makeDelay = 200 * time.Millisecond
	// requestsAtOnce is how many ended requests end that delay early.
	requestsAtOnce = 1024
	// flushFor bounds how long a stop waits for the collector.
	flushFor = 3 * time.Second
	// mostNumber bounds the numbers of the environment: some GB of spans, and a delay of
	// 17 minutes.
	mostNumber = 1 << 20
	// lossEvery is the least time between two log lines about lost spans.
	lossEvery = time.Minute
	// tracesPath is where a collector takes traces, unless its URL has a path.
	tracesPath = "/v1/traces"
)

// NewTraces returns the traces of a process. It returns nil if neither the configuration
// nor the environment names a collector, or if OTEL_SDK_DISABLED or OTEL_TRACES_EXPORTER
// turns traces off. Mistakes in the environment are logged. Run must be called.
func NewTraces(c TracesConfig) *Traces {
	target := cmp.Or(c.OTLP, env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), env("OTEL_EXPORTER_OTLP_ENDPOINT"))
	kind := strings.ToLower(cmp.Or(env("OTEL_TRACES_EXPORTER"), "otlp"))
	if target == "" || kind == "none" || strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return nil
	}
	if kind != "otlp" {
		c.Log.Warn("traces are off: OTEL_TRACES_EXPORTER must be otlp or none", "exporter", kind)
		return nil
	}
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		c.Log.Warn("traces are off: the collector's address is no URL such as http://127.0.0.1:4318")
		return nil
	}
	var options []otlptracehttp.Option
	if c.OTLP != "" {
		if strings.Trim(u.Path, "/") == "" {
			u.Path = tracesPath
		}
		options = append(options, otlptracehttp.WithEndpointURL(u.String()))
	}
	exporter, err := otlptracehttp.New(context.Background(), options...)
	if err != nil {
		c.Log.Warn("traces are off: the exporter rejects the OTEL_EXPORTER_OTLP_* variables", "error", err)
		return nil
	}
	return newTraces(c, u, exporter)
}

// newTraces returns traces that go to an exporter.
func newTraces(c TracesConfig, to *url.URL, exporter sdktrace.SpanExporter) *Traces {
	t := &Traces{log: c.Log, recover: c.Recover, endpoint: to.Scheme + "://" + to.Host, link: c.Clients == "link",
		version: c.Version, exporter: exporter}
	if t.recover == nil {
		t.recover = func(_ string, step func() error) error { return step() }
	}
	queue := number("OTEL_BSP_MAX_QUEUE_SIZE", usualQueue)
	batch := min(number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", sdktrace.DefaultMaxExportBatchSize), queue)
	delay := number("OTEL_BSP_SCHEDULE_DELAY", int(usualDelay.Milliseconds()))
	t.most = int64(queue)
	t.ended = spool.New(spool.Config[endedRequest]{Write: t.makeSpans, Max: queue, Batch: requestsAtOnce, Delay: makeDelay})
	t.processor = sdktrace.NewBatchSpanProcessor(countedExporter{exporter, t}, sdktrace.WithMaxQueueSize(queue),
		sdktrace.WithMaxExportBatchSize(batch), sdktrace.WithBatchTimeout(time.Duration(delay)*time.Millisecond))
	// WithResource reports errors in the environment's attributes: it reads them again.
	own, _ := resource.New(context.Background(), resource.WithTelemetrySDK(), resource.WithAttributes(
		semconv.ServiceName(cmp.Or(c.Service, "tierway")), semconv.ServiceVersion(c.Version)), resource.WithFromEnv())
	t.options = []sdktrace.TracerProviderOption{sdktrace.WithSpanProcessor(t.processor),
		sdktrace.WithResource(resource.NewWithAttributes(semconv.SchemaURL, own.Attributes()...))}
	t.SetSample(c.Sample)
	return t
}

// env returns a variable of the environment; an empty one counts as unset, as the
// specification says.
func env(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// number reads a positive number. The SDK takes any, and panics at a negative queue.
func number(name string, usual int) int {
	if n, err := strconv.Atoi(env(name)); err == nil && 0 < n && n <= mostNumber {
		return n
	}
	return usual
}

// SetSample changes which share of the traces that begin here is exported, from 0
// to 1; 1 leaves it to the environment. Requests that have begun keep their decision.
func (t *Traces) SetSample(share float64) {
	if t == nil {
		return
	}
	options := t.options
	if share != 1 {
		sampler := sdktrace.ParentBased(sdktrace.TraceIDRatioBased(share))
		options = append(slices.Clip(options), sdktrace.WithSampler(sampler))
	}
	tracer := sdktrace.NewTracerProvider(options...).Tracer("tierway",
		trace.WithInstrumentationVersion(t.version), trace.WithSchemaURL(semconv.SchemaURL))
	t.tracer.Store(&tracer)
}

// Run exports spans until ctx ends, then for at most three seconds more, and returns.
// It is called once.
func (t *Traces) Run(ctx context.Context) {
	if t == nil {
		return
	}
	t.ended.Run(ctx)
	t.closed.Store(true)
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushFor)
	defer cancel()
	if t.processor.Shutdown(flush) != nil {
		t.log.Warn("spans are lost: the collector did not take them before the gateway stopped",
			"endpoint", t.endpoint, "lost", t.queued.Load())
		_ = t.exporter.Shutdown(flush) // ends the export that is under way; those of the remaining spans fail
	}
}

// Counts returns the number of spans by result since the start; zeros without tracing.
func (t *Traces) Counts() TraceCounts {
	if t == nil {
		return TraceCounts{}
	}
	return TraceCounts{Exported: t.exported.Load(), Failed: t.failed.Load(), Dropped: t.dropped.Load(), Queued: t.queued.Load()}
}
