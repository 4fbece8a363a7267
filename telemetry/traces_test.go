package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"tierway/memnet"
)

const (
	callerTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerSpan  = "00f067aa0ba902b7"
	sampled     = "00-" + callerTrace + "-" + callerSpan + "-01"
	unsampled   = "00-" + callerTrace + "-" + callerSpan + "-00"
)

// fakeExporter keeps the spans of an export unless do returns an error.
type fakeExporter struct {
	do    func(ctx context.Context, spans []sdktrace.ReadOnlySpan) error
	ended chan struct{} // closed by Shutdown; nil: none

	mu   sync.Mutex // guards ended and took
	took []sdktrace.ReadOnlySpan
}

func (f *fakeExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if f.do != nil {
		if err := f.do(ctx, spans); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.took = append(f.took, spans...)
	return nil
}

func (f *fakeExporter) Shutdown(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended != nil {
		close(f.ended)
		f.ended = nil
	}
	return nil
}

// run starts traces that use an exporter. stop ends them.
func run(c TracesConfig, exporter sdktrace.SpanExporter) (t *Traces, log *bytes.Buffer, stop func()) {
	log = &bytes.Buffer{}
	c.Log = slog.New(slog.NewTextHandler(log, nil))
	t = newTraces(c, &url.URL{Scheme: "http", Host: "collector:4318", Path: "/secret"}, exporter)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { t.Run(ctx) })
	return t, log, func() { cancel(); running.Wait() }
}

// made is a SpanMaker with finished spans.
type made []Span

func (m made) Len() int { return len(m) }
func (m made) Spans(list []attribute.KeyValue) ([]Span, []attribute.KeyValue) {
	return m, list
}

// some returns a request of n spans.
func some(n int) (spans made) {
	for i := range n {
		spans = append(spans, Span{Name: fmt.Sprint(i), Start: time.Unix(10, 0), End: time.Unix(11, 0)})
	}
	return spans
}

func TestSamplingDecision(t *testing.T) {
	for name, c := range map[string]struct {
		config                  TracesConfig
		env                     string // OTEL_TRACES_SAMPLER
		header                  string
		unknown                 bool
		sampled, joined, linked bool // exported; in the caller's trace; linked to it
	}{
		"no caller's trace":                    {config: TracesConfig{Sample: 1}, sampled: true},
		"no caller's trace and the share is 0": {config: TracesConfig{Sample: 0}},
		"the caller samples": {config: TracesConfig{Sample: 0}, header: sampled, sampled: true,
			joined: true},
		"the caller does not sample": {config: TracesConfig{Sample: 1}, header: unsampled, joined: true},
		"an unknown caller samples":  {config: TracesConfig{Sample: 0}, header: sampled, unknown: true},
		"an unknown caller does not": {config: TracesConfig{Sample: 1}, header: unsampled, unknown: true,
			sampled: true},
		"reserved flags": {config: TracesConfig{Sample: 0}, header: sampled[:53] + "f5", sampled: true,
			joined: true},
		"no traceparent": {config: TracesConfig{Sample: 1}, header: sampled[1:], sampled: true},
		"linked": {config: TracesConfig{Sample: 1, Clients: "link"}, header: unsampled,
			sampled: true, linked: true},
		"linked, and the share is 0": {config: TracesConfig{Sample: 0, Clients: "link"}, header: sampled},
		"linked, and unknown": {config: TracesConfig{Sample: 1, Clients: "link"}, header: sampled,
			unknown: true, sampled: true},
		"the environment samples all": {config: TracesConfig{Sample: 1}, env: "always_on", header: unsampled,
			joined: true, sampled: true},
		"the environment samples none": {config: TracesConfig{Sample: 1}, env: "always_off", header: sampled,
			joined: true},
		"the environment samples a share":    {config: TracesConfig{Sample: 1}, env: "parentbased_traceidratio"},
		"the configuration takes precedence": {config: TracesConfig{Sample: .999999999}, env: "always_off", sampled: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_TRACES_SAMPLER", c.env)
			t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0")
			to := &fakeExporter{}
			tr, _, stop := run(c.config, to)
			h := http.Header{}
			if c.header != "" {
				h = http.Header{"Traceparent": {c.header}, "Tracestate": {"v=1", "w=2"}}
			}
			got := tr.Begin(h, !c.unknown, time.Unix(10, 0))
			call := got.Attempt(time.Unix(10, 0))
			Inject(h, call)
			spans := some(2)
			spans[1].Begun = call
			got.End(spans)
			stop()
			trace, state := h.Get("Traceparent"), h.Get("Tracestate")
			if len(trace) != 55 || trace[36:52] != call.SpanContext().SpanID().String() ||
				strings.Contains(trace, callerTrace) != c.joined || strings.HasSuffix(trace, "-01") != c.sampled {
				t.Errorf("the worker is sent %q", trace)
			}
			if want := map[bool]string{true: "v=1,w=2"}[c.joined]; state != want {
				t.Errorf("the worker is sent the tracestate %q, want %q", state, want)
			}
			if !got.On || got.Sampled != c.sampled || len(to.took) == 2 != c.sampled || c.sampled && got.ID() != trace[3:35] ||
				!c.sampled && got.ID() != "" {
				t.Fatalf("%+v, id %q, exported %d", got, got.ID(), len(to.took))
			}
			if c.sampled {
				s := to.took[0]
				if links := s.Links(); len(links) == 1 != c.linked ||
					c.linked && links[0].SpanContext.SpanID().String() != callerSpan {
					t.Errorf("links are %v", links)
				}
				if p := s.Parent(); p.IsValid() != c.joined || c.joined && (p.SpanID().String() != callerSpan || !p.IsRemote()) {
					t.Errorf("the parent is %v", p)
				}
			}
		})
	}
}

func TestSetSampleAffectsNewRequests(t *testing.T) {
	to := &fakeExporter{}
	tr, _, stop := run(TracesConfig{Sample: 1}, to)
	before := tr.Begin(nil, true, time.Unix(10, 0))
	tr.SetSample(0)
	if tr.Begin(nil, true, time.Unix(10, 0)).Sampled {
		t.Error("a share of 0 exports a request")
	}
	before.End(some(3))
	tr.SetSample(1)
	tr.Begin(nil, true, time.Unix(10, 0)).End(some(1))
	stop()
	if len(to.took) != 4 {
		t.Errorf("%d spans were exported", len(to.took))
	}
}

func TestNilTracesDoNothing(t *testing.T) {
	var tr *Traces
	h := http.Header{"Traceparent": {sampled}, "Tracestate": {"v=1"}}
	c := tr.Begin(h, true, time.Unix(10, 0))
	Inject(h, c.Attempt(time.Unix(10, 0)))
	c.End(some(1))
	tr.SetSample(.5)
	tr.Run(context.Background())
	if c != (TraceContext{}) || c.ID() != "" || tr.Counts() != (TraceCounts{}) || h.Get("Traceparent") != sampled ||
		h.Get("Tracestate") != "v=1" {
		t.Errorf("without tracing there is %+v, %+v and %v", c, tr.Counts(), h)
	}
}

func TestSpansAreChildrenOfTheRequestSpan(t *testing.T) {
	t.Setenv("OTEL_SERVICE_NAME", "gate")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=no,a=b%20c")
	to := &fakeExporter{}
	tr, _, stop := run(TracesConfig{Sample: 1, Version: "v9"}, to)
	spans := some(3)
	spans[2].Events = []SpanEvent{{Name: "moment", At: time.Unix(10, 5)}}
	c := tr.Begin(http.Header{"Traceparent": {sampled}}, true, time.Unix(10, 0))
	spans[1].Begun, spans[1].Error = c.Attempt(time.Unix(10, 0)), true
	c.End(spans)
	stop()
	if len(to.took) != 3 {
		t.Fatalf("%d spans were exported", len(to.took))
	}
	root := to.took[0]
	for i, s := range to.took {
		if i > 0 && s.Parent().SpanID() != root.SpanContext().SpanID() || s.SpanContext().TraceID().String() != callerTrace ||
			!s.SpanContext().IsValid() {
			t.Errorf("%v is not a child of the request's span", s.SpanContext())
		}
		if s.Name() != fmt.Sprint(i) || s.StartTime().Unix() != 10 || s.EndTime().Unix() != 11 ||
			s.InstrumentationScope().SchemaURL != semconv.SchemaURL {
			t.Errorf("%s from %v to %v by %v", s.Name(), s.StartTime(), s.EndTime(), s.InstrumentationScope())
		}
	}
	if got := to.took[1]; !got.SpanContext().Equal(spans[1].Begun.SpanContext()) || got.Status().Code != codes.Error {
		t.Errorf("the attempt's span is %v with %v", got.SpanContext(), got.Status())
	}
	if root.SpanKind() != trace.SpanKindServer || to.took[1].SpanKind() != trace.SpanKindClient ||
		to.took[2].SpanKind() != trace.SpanKindInternal {
		t.Errorf("kinds %v, %v, %v", root.SpanKind(), to.took[1].SpanKind(), to.took[2].SpanKind())
	}
	if events := to.took[2].Events(); len(events) != 1 || events[0].Name != "moment" || events[0].Time.Nanosecond() != 5 {
		t.Errorf("events are %v", events)
	}
	said := map[string]string{}
	for _, a := range root.Resource().Attributes() {
		said[string(a.Key)] = a.Value.AsString()
	}
	delete(said, "telemetry.sdk.version")
	want := map[string]string{"service.name": "gate", "service.version": "v9", "a": "b c",
		"telemetry.sdk.name": "opentelemetry", "telemetry.sdk.language": "go"}
	if d := cmp.Diff(want, said); d != "" || root.Resource().SchemaURL() != semconv.SchemaURL {
		t.Errorf("the resource (-want +got):\n%s", d)
	}
}

func TestCollectorAddress(t *testing.T) {
	for name, c := range map[string]struct {
		otlp string   // # stands for the collector's address
		env  []string // names without OTEL_, and values
		path string   // the path of the request to the collector; "" without tracing
		log  string   // a part of the warning
	}{
		"not configured":    {},
		"configured":        {otlp: "http://#", path: "/v1/traces"},
		"with a path":       {otlp: "http://#/otlp/spans", path: "/otlp/spans"},
		"the environment's": {env: []string{"EXPORTER_OTLP_ENDPOINT", "http://#/base/"}, path: "/base/v1/traces"},
		"for traces": {env: []string{"EXPORTER_OTLP_TRACES_ENDPOINT", "http://#/x", "EXPORTER_OTLP_ENDPOINT",
			"http://127.0.0.1:1"}, path: "/x"},
		"configured first": {otlp: "http://#", env: []string{"EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1/x"},
			path: "/v1/traces"},
		"an empty one": {env: []string{"EXPORTER_OTLP_ENDPOINT", " "}},
		"disabled":     {otlp: "http://#", env: []string{"SDK_DISABLED", "TRUE"}},
		"no exporter":  {otlp: "http://#", env: []string{"TRACES_EXPORTER", "none"}},
		"another exporter": {otlp: "http://#", env: []string{"TRACES_EXPORTER", "zipkin"},
			log: "OTEL_TRACES_EXPORTER must be otlp or none"},
		"no URL": {env: []string{"EXPORTER_OTLP_ENDPOINT", "http://u:secret%zz@c"},
			log: "the address of the trace collector is not a URL"},
		"no scheme": {env: []string{"EXPORTER_OTLP_ENDPOINT", "c:4317"},
			log: "the address of the trace collector is not a URL"},
		"an impossible size": {otlp: "http://#", env: []string{"BSP_MAX_QUEUE_SIZE", "-1", "BSP_MAX_EXPORT_BATCH_SIZE", "-1",
			"BSP_SCHEDULE_DELAY", "-1"}, path: "/v1/traces"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := make(chan string, 1)
				network := memnet.New()
				s := network.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Path }))
				defer s.Close()
				client := &http.Client{Transport: network.Transport()}
				defer client.CloseIdleConnections()
				here := func(text string) string { return strings.ReplaceAll(text, "#", s.Listener.Addr().String()) }
				for i := 0; i < len(c.env); i += 2 {
					t.Setenv("OTEL_"+c.env[i], here(c.env[i+1]))
				}
				var log bytes.Buffer
				tr := newTracesWith(TracesConfig{OTLP: here(c.otlp), Sample: 1, Log: slog.New(slog.NewTextHandler(&log, nil))},
					otlptracehttp.WithHTTPClient(client))
				if (tr != nil) != (c.path != "") || (log.Len() > 0) != (c.log != "") || !strings.Contains(log.String(), c.log) ||
					strings.Contains(log.String(), "secret") {
					t.Fatalf("traces %v, the log is %q", tr != nil, &log)
				}
				if tr != nil {
					tr.Begin(nil, true, time.Unix(10, 0)).End(some(1))
					ended, stop := context.WithCancel(t.Context())
					stop()
					tr.Run(ended)
					if path := <-asked; path != c.path {
						t.Errorf("spans go to %s, want %s", path, c.path)
					}
				}
			})
		})
	}
}
