package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"
)

// env is an environment in a test.
func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, p := range pairs {
			if n, v, _ := strings.Cut(p, "="); n == name {
				return v, true
			}
		}
		return "", false
	}
}

// newTest returns traces that go nowhere, and what they log.
func newTest(t testing.TB, c TracesConfig) (*Traces, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	if c.OTLP == "" {
		c.OTLP = "http://127.0.0.1:1"
	}
	c.Log = slog.New(slog.NewTextHandler(&out, nil))
	tr, err := NewTraces(c)
	if err != nil || tr == nil {
		t.Fatalf("NewTraces: %v, %v", tr, err)
	}
	return tr, &out
}

// fakeExporter takes spans, or does with them what do does.
type fakeExporter struct {
	do func(ctx context.Context, spans []sdktrace.ReadOnlySpan) error

	mu   sync.Mutex
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

func (f *fakeExporter) Shutdown(context.Context) error { return nil }

// some is a request of n spans.
type some int

func (n some) Len() int { return int(n) }

func (n some) Spans(TraceContext) []Span {
	spans := make([]Span, n)
	for i := range spans {
		spans[i] = Span{Name: fmt.Sprint(i), Kind: KindServer, Start: time.Unix(10, 0), End: time.Unix(11, 0)}
	}
	return spans
}

func TestWhoDecidesWhetherARequestIsExported(t *testing.T) {
	sampled := http.Header{"Traceparent": {someParent}, "Tracestate": {"v=1"}}
	unsampled := http.Header{"Traceparent": {strings.TrimSuffix(someParent, "1") + "0"}}
	for name, c := range map[string]struct {
		config           TracesConfig
		header           http.Header
		unknown          bool
		sampled, goes    bool // exported; in the caller's trace
		linked, hasState bool
	}{
		"nobody asks":                     {config: TracesConfig{Sample: 1}, sampled: true},
		"nobody asks and the share is 0":  {config: TracesConfig{Sample: 0}},
		"the caller wants it":             {config: TracesConfig{Sample: 0}, header: sampled, sampled: true, goes: true, hasState: true},
		"the caller does not want it":     {config: TracesConfig{Sample: 1}, header: unsampled, goes: true},
		"an unknown caller wants it":      {config: TracesConfig{Sample: 0}, header: sampled, unknown: true},
		"an unknown caller does not":      {config: TracesConfig{Sample: 1}, header: unsampled, unknown: true, sampled: true},
		"linked":                          {config: TracesConfig{Sample: 1, Clients: "link"}, header: unsampled, sampled: true, linked: true},
		"linked, and the share is 0":      {config: TracesConfig{Sample: 0, Clients: "link"}, header: sampled},
		"linked, and unknown":             {config: TracesConfig{Sample: 1, Clients: "link"}, header: sampled, unknown: true, sampled: true},
		"the environment wants all":       {config: TracesConfig{Sample: 1, Env: env("OTEL_TRACES_SAMPLER=always_on")}, header: unsampled, goes: true, sampled: true},
		"the environment wants none":      {config: TracesConfig{Sample: 1, Env: env("OTEL_TRACES_SAMPLER=always_off")}, header: sampled, goes: true, hasState: true},
		"the environment wants its share": {config: TracesConfig{Sample: 1, Env: env("OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0")}},
		"the configuration overrules it":  {config: TracesConfig{Sample: .999999999, Env: env("OTEL_TRACES_SAMPLER=always_off")}, sampled: true},
	} {
		tr, _ := newTest(t, c.config)
		got := tr.Begin(c.header, !c.unknown, rand.New(rand.NewPCG(1, 2)).Uint64)
		goes := got.Parent != [8]byte{}
		if !got.On || got.Sampled != c.sampled || goes != c.goes || (got.Link != SpanLink{}) != c.linked || (got.State != "") != c.hasState {
			t.Errorf("%s: %+v", name, got)
		}
		if own := TraceContext(got).TraceID != parseTraceparent(someParent).trace; own == c.goes {
			t.Errorf("%s: in its caller's trace: %v, want %v", name, !own, c.goes)
		}
		if got.Span == [8]byte{} || got.TraceID == [16]byte{} || (got.ID() != "") != c.sampled {
			t.Errorf("%s: ids are missing: %+v", name, got)
		}
	}
}

func TestAShareIsTheSDKs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.OneOf(rapid.Float64Range(0, 1), rapid.SampledFrom([]float64{0, 1, -1, 2, .5, math.SmallestNonzeroFloat64})).Draw(t, "share")
		var id [16]byte
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		want := sdktrace.TraceIDRatioBased(p).ShouldSample(sdktrace.SamplingParameters{TraceID: id}).Decision == sdktrace.RecordAndSample
		if got := (&sampler{below: ratio(p)}).sampled(id); got != want {
			t.Fatalf("share %v of %x: %v, the SDK says %v", p, id, got, want)
		}
	})
}

func TestNoTracesCostNothing(t *testing.T) {
	var tr *Traces
	c := tr.Begin(http.Header{"Traceparent": {someParent}}, true, rand.Uint64)
	tr.Export(c, some(1))
	tr.SetSample(.5)
	tr.Run(context.Background())
	if c != (TraceContext{}) || c.ID() != "" || tr.Counts() != (TraceCounts{}) {
		t.Errorf("without tracing there is %+v and %+v", c, tr.Counts())
	}
}

func TestIDsAreNeverZero(t *testing.T) {
	tr, _ := newTest(t, TracesConfig{Sample: 1})
	draws := 0
	c := tr.Begin(nil, true, func() uint64 {
		if draws++; draws < 5 {
			return 0
		}
		return 7
	})
	if c.Span == [8]byte{} || c.TraceID == [16]byte{} {
		t.Errorf("zeros are an id: %+v", c)
	}
}

func TestARequestsSpansAreChildrenOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, _ := newTest(t, TracesConfig{Sample: 1, Version: "v9", Env: env("OTEL_SERVICE_NAME=gate", "OTEL_RESOURCE_ATTRIBUTES=service.name=no,a=b%20c,broken")})
		to := &fakeExporter{}
		tr.exporter = to
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); tr.Run(ctx) }()
		child := tr.Begin(http.Header{"Traceparent": {someParent}, "Tracestate": {"v=1"}}, true, rand.Uint64)
		tr.Export(child, some(3))
		time.Sleep(usualEvery)
		stop()
		<-done
		if len(to.took) != 3 {
			t.Fatalf("%d spans were exported", len(to.took))
		}
		root := to.took[0]
		if p := root.Parent(); p.SpanID().String() != someSpan || !p.IsRemote() || p.TraceState().String() != "v=1" {
			t.Errorf("the request's parent is %v", p)
		}
		if got := root.SpanContext(); got.TraceID().String() != someTrace || got.SpanID() != trace.SpanID(child.Span) || got.TraceState().String() != "v=1" {
			t.Errorf("the request's span is %v, want %x", got, child.Span)
		}
		for _, s := range to.took[1:] {
			if s.Parent().SpanID() != root.SpanContext().SpanID() || s.SpanContext().TraceID() != root.SpanContext().TraceID() || !s.SpanContext().SpanID().IsValid() {
				t.Errorf("%v is no child of the request's", s.SpanContext())
			}
		}
		if root.StartTime().Unix() != 10 || root.EndTime().Unix() != 11 || root.InstrumentationScope().SchemaURL != SchemaURL {
			t.Errorf("from %v to %v by %v", root.StartTime(), root.EndTime(), root.InstrumentationScope())
		}
		said := map[string]string{}
		for _, a := range root.Resource().Attributes() {
			said[string(a.Key)] = a.Value.AsString()
		}
		delete(said, "telemetry.sdk.version")
		want := map[string]string{"service.name": "gate", "service.version": "v9", "a": "b c", "telemetry.sdk.name": "opentelemetry", "telemetry.sdk.language": "go"}
		if d := cmp.Diff(want, said); d != "" || root.Resource().SchemaURL() != SchemaURL {
			t.Errorf("the resource (-want +got):\n%s", d)
		}
	})
}

func TestALinkedRequestPointsToItsCaller(t *testing.T) {
	tr, _ := newTest(t, TracesConfig{Sample: 1, Clients: "link"})
	tr.make(record{c: tr.Begin(http.Header{"Traceparent": {someParent}}, true, rand.Uint64), spans: some(2), n: 2})
	root, child := tr.batch.spans[0], tr.batch.spans[1]
	if root.Parent().IsValid() || len(root.Links()) != 1 || len(child.Links()) != 0 {
		t.Fatalf("parent %v, links %v and %v", root.Parent(), root.Links(), child.Links())
	}
	if l := root.Links()[0].SpanContext; l.TraceID().String() != someTrace || l.SpanID().String() != someSpan || !l.IsSampled() || !l.IsRemote() {
		t.Errorf("the link is %v", l)
	}
}
