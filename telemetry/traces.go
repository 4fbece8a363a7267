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
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

// TracesConfig names the collector and selects the requests that are exported. The
// OpenTelemetry SDK reads all other settings from the OTEL_* variables of the process.
type TracesConfig struct {
	OTLP    string       // URL of the collector, such as http://jaeger:4318; "": the environment's
	Sample  float64      // exported share of the traces that begin here; at 1, OTEL_TRACES_SAMPLER decides
	Clients string       // relation of a request to its caller's trace: parent (the default, also for "") or link
	Service string       // service.name, unless the environment has one; "" means tierway
	Version string       // of the program
	Log     *slog.Logger // required
	// Recover runs an export. It returns the error of the export, or an error instead of a
	// panic. If Recover is nil, a panic ends the process.
	Recover func(work string, step func() error) error
}

// Traces exports the spans of requests over OTLP/HTTP with the SDK's batch processor.
// Requests never wait for the collector: the queue of spans is bounded, and spans beyond the
// bound are dropped and counted. A nil *Traces turns tracing off. All methods are safe for
// concurrent use.
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
	making          sync.Mutex           // guards attributeBuffer
	attributeBuffer []attribute.KeyValue // reused by makeSpans
	queueLimit      int64                // spans
	lossLoggedAt    time.Time            // time of the last log line about lost spans
	lossesLogged    int64                // lost spans until then

	closed                            atomic.Bool
	exported, failed, dropped, queued atomic.Int64 // spans
}

const (
	// defaultQueue is the number of spans of about 2,700 requests, in 20 MB.
	defaultQueue = 8192
	// defaultDelay is shorter than the specification's 5 s, because a user opens a trace
	// right after the request.
	defaultDelay = time.Second
	// flushTimeout limits how long a stop waits for the collector.
	flushTimeout = 3 * time.Second
	// maxNumber limits the numbers of the environment: to some GB of spans, and to a delay of
	// 17 minutes.
	maxNumber = 1 << 20
	// lossLogInterval is the minimum time between two log lines about lost spans.
	lossLogInterval = time.Minute
	// tracesPath is the path of the collector, unless its URL has a path.
	tracesPath = "/v1/traces"
)

// NewTraces returns the traces of a process. It returns nil if neither the configuration nor
// the environment names a collector, or if OTEL_SDK_DISABLED or OTEL_TRACES_EXPORTER turns
// traces off. It logs invalid values of the environment. The caller must call Run.
func NewTraces(c TracesConfig) *Traces { return newTracesWith(c) }

// newTracesWith is NewTraces with further options of the exporter.
func newTracesWith(c TracesConfig, options ...otlptracehttp.Option) *Traces {
	target := cmp.Or(c.OTLP, env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), env("OTEL_EXPORTER_OTLP_ENDPOINT"))
	kind := strings.ToLower(cmp.Or(env("OTEL_TRACES_EXPORTER"), "otlp"))
	if target == "" || kind == "none" || strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return nil
	}
	if kind != "otlp" {
		c.Log.Warn("tracing disabled: OTEL_TRACES_EXPORTER must be otlp or none", "exporter", kind)
		return nil
	}
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		// The address may contain a password and is not logged.
		c.Log.Warn("tracing disabled: the address of the trace collector is not a URL; " +
			"set telemetry.otlp or OTEL_EXPORTER_OTLP_ENDPOINT to one such as http://127.0.0.1:4318")
		return nil
	}
	if c.OTLP != "" {
		if strings.Trim(u.Path, "/") == "" {
			u.Path = tracesPath
		}
		options = append(options, otlptracehttp.WithEndpointURL(u.String()))
	}
	exporter, err := otlptracehttp.New(context.Background(), options...)
	if err != nil {
		c.Log.Warn("tracing disabled: the exporter rejects the OTEL_EXPORTER_OTLP_* variables", "cause", err)
		return nil
	}
	return newTraces(c, u, exporter)
}

// newTraces returns traces that use an exporter.
func newTraces(c TracesConfig, to *url.URL, exporter sdktrace.SpanExporter) *Traces {
	t := &Traces{log: c.Log, recover: c.Recover, endpoint: to.Scheme + "://" + to.Host,
		link: c.Clients == "link", version: c.Version, exporter: exporter}
	if t.recover == nil {
		t.recover = func(_ string, step func() error) error { return step() }
	}
	queue := positiveNumber("OTEL_BSP_MAX_QUEUE_SIZE", defaultQueue)
	batch := min(positiveNumber("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", sdktrace.DefaultMaxExportBatchSize), queue)
	delay := positiveNumber("OTEL_BSP_SCHEDULE_DELAY", int(defaultDelay.Milliseconds()))
	t.queueLimit = int64(queue)
	t.processor = sdktrace.NewBatchSpanProcessor(countedExporter{exporter, t}, sdktrace.WithMaxQueueSize(queue),
		sdktrace.WithMaxExportBatchSize(batch), sdktrace.WithBatchTimeout(time.Duration(delay)*time.Millisecond))
	// WithResource reads the environment's attributes again and reports their errors.
	own, _ := resource.New(context.Background(), resource.WithTelemetrySDK(), resource.WithAttributes(
		semconv.ServiceName(cmp.Or(c.Service, "tierway")), semconv.ServiceVersion(c.Version)), resource.WithFromEnv())
	t.options = []sdktrace.TracerProviderOption{sdktrace.WithSpanProcessor(t.processor),
		sdktrace.WithResource(resource.NewWithAttributes(semconv.SchemaURL, own.Attributes()...))}
	t.SetSample(c.Sample)
	return t
}

// env returns a variable of the environment. The specification treats an empty one as unset.
func env(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// positiveNumber returns a number of the environment, or standard if it is not in range. The
// SDK accepts any number and panics at a negative queue size.
func positiveNumber(name string, standard int) int {
	if n, err := strconv.Atoi(env(name)); err == nil && 0 < n && n <= maxNumber {
		return n
	}
	return standard
}

// SetSample sets the exported share of the traces that begin here, from 0 to 1. At 1, the
// environment decides. Requests that have begun keep their decision.
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

// Run exports spans until ctx ends, and then the remaining ones for at most three seconds.
// Call it once.
func (t *Traces) Run(ctx context.Context) {
	if t == nil {
		return
	}
	<-ctx.Done()
	t.closed.Store(true)
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if t.processor.Shutdown(flush) != nil {
		t.log.Warn("spans lost: the trace collector did not accept them before the gateway stopped",
			"endpoint", t.endpoint, "lost", t.queued.Load())
		_ = t.exporter.Shutdown(flush) // ends the running export; exports of the remaining spans fail
	}
}

// Counts returns the number of spans by result since the start; zeros without tracing.
func (t *Traces) Counts() TraceCounts {
	if t == nil {
		return TraceCounts{}
	}
	return TraceCounts{Exported: t.exported.Load(), Failed: t.failed.Load(),
		Dropped: t.dropped.Load(), Queued: t.queued.Load()}
}
