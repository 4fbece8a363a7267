package telemetry

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

func TestWhereTracesGo(t *testing.T) {
	for _, c := range []struct {
		otlp string
		env  []string
		url  string // "" when there is no tracing
		warn string // a part of the warning
		err  string // a part of the error
	}{
		{},
		{otlp: "http://jaeger:4318", url: "http://jaeger:4318/v1/traces"},
		{otlp: "http://jaeger:4318/", url: "http://jaeger:4318/v1/traces"},
		{otlp: "https://collector/otlp/spans", url: "https://collector/otlp/spans"},
		{env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:1"}, url: "http://c:1/v1/traces"},
		{env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:1/base/"}, url: "http://c:1/base/v1/traces"},
		{env: []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c:1/x", "OTEL_EXPORTER_OTLP_ENDPOINT=http://d"}, url: "http://c:1/x"},
		{env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT= "}},
		{otlp: "http://mine", env: []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c:1/x"}, url: "http://mine/v1/traces"},
		{otlp: "http://mine", env: []string{"OTEL_SDK_DISABLED=TRUE"}},
		{otlp: "http://mine", env: []string{"OTEL_TRACES_EXPORTER=none"}},
		{otlp: "http://mine", env: []string{"OTEL_TRACES_EXPORTER=zipkin"}, warn: `OTEL_TRACES_EXPORTER="zipkin"`},
		{otlp: "http://mine", env: []string{"OTEL_TRACES_EXPORTER=otlp"}, url: "http://mine/v1/traces"},
		{env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, warn: `OTEL_EXPORTER_OTLP_PROTOCOL="grpc": traces are sent over HTTP only; set it to http/protobuf`},
		{env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json"}, url: "http://c/v1/traces"},
		{otlp: "http://mine", env: []string{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, url: "http://mine/v1/traces", warn: "http/protobuf"},
		{otlp: "http://mine", env: []string{"OTEL_TRACES_SAMPLER=jaeger_remote"}, url: "http://mine/v1/traces", warn: `OTEL_TRACES_SAMPLER="jaeger_remote"`},
		{otlp: "http://mine", env: []string{"OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=2"}, url: "http://mine/v1/traces", warn: `OTEL_TRACES_SAMPLER_ARG="2"`},
		{otlp: "http://mine", env: []string{"OTEL_BSP_MAX_QUEUE_SIZE=-1"}, url: "http://mine/v1/traces", warn: `OTEL_BSP_MAX_QUEUE_SIZE="-1"`},
		{otlp: "http://mine", env: []string{"OTEL_RESOURCE_ATTRIBUTES=a"}, url: "http://mine/v1/traces", warn: `OTEL_RESOURCE_ATTRIBUTES`},
		{env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=c:4317"}, warn: "OTEL_EXPORTER_OTLP_ENDPOINT: the URL must begin with http"},
		{env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://u:secret@c"}, warn: "OTEL_EXPORTER_OTLP_HEADERS"},
		// OB-01: what cannot be read may hold a secret.
		{otlp: "http://mine", env: []string{"OTEL_EXPORTER_OTLP_HEADERS=Authorization: Bearer secret"}, warn: "OTEL_EXPORTER_OTLP_HEADERS: the headers must have"},
		{otlp: "http://mine", env: []string{"OTEL_EXPORTER_OTLP_TRACES_HEADERS=a=b,c=secret%"}, warn: "OTEL_EXPORTER_OTLP_TRACES_HEADERS"},
		{otlp: "http://mine", env: []string{"OTEL_EXPORTER_OTLP_HEADERS=se cret=b"}, warn: "OTEL_EXPORTER_OTLP_HEADERS"},
		{otlp: "http://mine", env: []string{"OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20secret, x=y,"}, url: "http://mine/v1/traces"},
		{otlp: "http://mine", env: []string{"OTEL_EXPORTER_OTLP_HEADERS=a=b%0d%0asecret: x"}, warn: "OTEL_EXPORTER_OTLP_HEADERS"},
		{env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://u:secret%zz@c"}, warn: "OTEL_EXPORTER_OTLP_ENDPOINT: the value is no URL"},
		{otlp: "http://mine", env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://u:secret%zz@c"}, url: "http://mine/v1/traces"}, // it is not asked
		{otlp: "jaeger:4318", err: "telemetry.otlp: the URL must begin with http"},
		{otlp: "http://u:secret@c", err: "OTEL_EXPORTER_OTLP_HEADERS"},
		{otlp: "http://c?key=secret", err: "query"},
		{otlp: "http://[", err: "telemetry.otlp: the value is no URL"},
	} {
		var out bytes.Buffer
		tr, err := NewTraces(TracesConfig{OTLP: c.otlp, Sample: 1, Env: env(c.env...), Log: slog.New(slog.NewTextHandler(&out, nil))})
		said := strings.ReplaceAll(out.String(), `\"`, `"`)
		if err != nil {
			said += err.Error()
		}
		switch {
		case (err != nil) != (c.err != "") || !strings.Contains(said, c.err):
			t.Errorf("%q %v: the error is %v", c.otlp, c.env, err)
		case (tr != nil) != (c.url != "") || tr != nil && tr.url != c.url:
			t.Errorf("%q %v: tracing %v, want %q", c.otlp, c.env, tr, c.url)
		case (out.Len() > 0) != (c.warn != "") || !strings.Contains(said, c.warn):
			t.Errorf("%q %v: the log is %q, want %q in it", c.otlp, c.env, out.String(), c.warn)
		case strings.Contains(said, "secret"):
			t.Errorf("a password was repeated: %s", said)
		}
	}
}

// collector answers exports as answer does, and returns its URL.
func collector(t *testing.T, answer func(w http.ResponseWriter, spans int)) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked coltracepb.ExportTraceServiceRequest
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = proto.Unmarshal(body, &asked)
		}
		if err != nil || r.URL.Path != "/secret/v1/traces" {
			t.Errorf("%s was sent what is no export: %v", r.URL.Path, err)
		}
		n := 0
		for _, rs := range asked.ResourceSpans {
			if rs.SchemaUrl != SchemaURL {
				t.Errorf("the resource is of %q", rs.SchemaUrl)
			}
			for _, ss := range rs.ScopeSpans {
				n += len(ss.Spans)
			}
		}
		answer(w, n)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestWhatACollectorTakesIsCounted(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, spans int)
		want   TraceCounts
		log    string
	}{
		"all": {answer: func(http.ResponseWriter, int) {}, want: TraceCounts{Exported: 5}},
		"a part": {want: TraceCounts{Exported: 3, Failed: 2}, log: "2 spans rejected", answer: func(w http.ResponseWriter, _ int) {
			b, _ := proto.Marshal(&coltracepb.ExportTraceServiceResponse{PartialSuccess: &coltracepb.ExportTracePartialSuccess{RejectedSpans: 2, ErrorMessage: "full (of it)"}})
			w.Header().Set("Content-Type", "application/x-protobuf")
			_, _ = w.Write(b)
		}},
		"nothing": {want: TraceCounts{Failed: 5}, log: "400 Bad Request", answer: func(w http.ResponseWriter, _ int) {
			http.Error(w, "a stranger's words", http.StatusBadRequest)
		}},
	} {
		tr, out := newTest(t, TracesConfig{OTLP: collector(t, c.answer) + "/secret/v1/traces", Sample: 1})
		tr.Export(tr.Begin(nil, true, rand.Uint64), some(5))
		tr.make(<-tr.queue)
		tr.send(t.Context())
		if got := tr.Counts(); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if !strings.Contains(out.String(), c.log) || (out.Len() > 0) != (c.log != "") || strings.Contains(out.String(), "stranger") || strings.Contains(out.String(), "secret") {
			t.Errorf("%s: the log is %q, want %q in it", name, out, c.log)
		}
	}
}

func TestWhyACollectorTakesNothingIsToldInPlainWords(t *testing.T) {
	grpc, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer grpc.Close()
	go func() {
		for {
			c, err := grpc.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1))                                                         // the request is on its way
			_, _ = c.Write([]byte("\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00")) // SETTINGS, with which HTTP/2 begins
			_ = c.Close()
		}
	}()
	over, cut := context.WithCancel(t.Context())
	cut()
	for want, c := range map[string]struct {
		ctx  context.Context
		otlp string
	}{
		"by default 4318": {t.Context(), "http://" + grpc.Addr().String()},
		"stopped before":  {over, "http://127.0.0.1:1"},
	} {
		tr, out := newTest(t, TracesConfig{OTLP: c.otlp, Sample: 1})
		tr.make(record{c: tr.Begin(nil, true, rand.Uint64), spans: some(1), n: 1})
		tr.send(c.ctx)
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log is %q, want %q in it", out, want)
		}
	}
}

func TestACollectorThatIsAwayIsToldOfOnce(t *testing.T) {
	tr, out := newTest(t, TracesConfig{Sample: 1})
	for range 3 {
		tr.make(record{c: tr.Begin(nil, true, rand.Uint64), spans: some(1), n: 1})
		tr.send(t.Context())
	}
	if got := tr.Counts().Failed; got != 3 {
		t.Errorf("%d spans failed", got)
	}
	if n := strings.Count(out.String(), "\n"); n != 1 || !strings.Contains(out.String(), "endpoint=http://127.0.0.1:1 ") || !strings.Contains(out.String(), "refused") {
		t.Errorf("the log:\n%s", out)
	}
}

func TestTheEnvironmentSetsThePace(t *testing.T) {
	tr, _ := newTest(t, TracesConfig{Env: env("OTEL_BSP_MAX_QUEUE_SIZE=7", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=3", "OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_BSP_EXPORT_TIMEOUT=900")})
	if cap(tr.queue) != 7 || tr.most != 3 || tr.every != 100*time.Millisecond || tr.patience != 900*time.Millisecond {
		t.Errorf("%d, %d, %v, %v", cap(tr.queue), tr.most, tr.every, tr.patience)
	}
}

func BenchmarkUnsampledRequest(b *testing.B) {
	tr, _ := newTest(b, TracesConfig{Sample: 0})
	for name, h := range map[string]http.Header{
		"alone":      {"Authorization": {"Bearer x"}},
		"of_a_trace": {"Traceparent": {strings.TrimSuffix(someParent, "1") + "0"}, "Tracestate": {"vendor=value,other@system=1234"}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c := tr.Begin(h, true, rand.Uint64)
				_ = c.Traceparent(rand.Uint64())
				tr.Export(c, some(5))
			}
		})
	}
}

func BenchmarkSampledRequest(b *testing.B) {
	tr, _ := newTest(b, TracesConfig{Sample: 1, Env: env("OTEL_BSP_MAX_QUEUE_SIZE=1024")})
	s := some(5)
	var spans Spans = &s
	b.ReportAllocs()
	for b.Loop() {
		c := tr.Begin(nil, true, rand.Uint64)
		_ = c.Traceparent(rand.Uint64())
		tr.Export(c, spans)
		if len(tr.queue) == cap(tr.queue) {
			for len(tr.queue) > 0 {
				<-tr.queue
			}
		}
	}
}

// BenchmarkMakeSpans is what a sampled request costs the goroutine that exports,
// without the network.
func BenchmarkMakeSpans(b *testing.B) {
	tr, _ := newTest(b, TracesConfig{Sample: 1})
	c := tr.Begin(nil, true, rand.Uint64)
	b.ReportAllocs()
	for b.Loop() {
		tr.make(record{c: c, spans: some(5), n: 5})
		if len(tr.batch.spans) > usualBatch {
			tr.batch.spans = tr.batch.spans[:0]
		}
	}
}

// rich is a request as the gateway tells it: three spans with some forty attributes.
type rich struct{}

func (rich) Len() int { return 3 }

func (rich) Spans(TraceContext) []Span {
	spans := make([]Span, 3)
	for i, n := range []int{25, 8, 14} {
		attrs := make([]Attr, 0, n)
		for j := range n {
			if j%3 == 0 {
				attrs = append(attrs, Int(AttrCandidateTerm+string(rune('a'+j)), int64(j)))
			} else {
				attrs = append(attrs, String(AttrCandidateTerm+string(rune('a'+j)), "a value"))
			}
		}
		spans[i] = Span{Name: "POST /v1/chat/completions", Kind: KindServer, Start: time.Unix(10, 0), End: time.Unix(11, 0), Attributes: attrs,
			Events: []SpanEvent{{Name: EventCandidate, At: time.Unix(10, 0), Attributes: attrs[:6]}}}
	}
	return spans
}

// BenchmarkExport is what a sampled request costs in all beside its own goroutine,
// a collector on the same machine that reads and forgets included.
func BenchmarkExport(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer s.Close()
	tr, _ := newTest(b, TracesConfig{Sample: 1, OTLP: s.URL})
	c := tr.Begin(nil, true, rand.Uint64)
	b.ReportAllocs()
	for b.Loop() {
		tr.make(record{c: c, spans: rich{}, n: 3})
		if len(tr.batch.spans) >= usualBatch {
			tr.send(b.Context())
		}
	}
}
