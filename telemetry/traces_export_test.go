package telemetry

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"tierway/memnet"
)

// RS-13: a collector that hangs delays no request, memory is bounded, and lost spans are
// counted. A stop waits three seconds for it.
func TestHungCollectorBlocksNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
		t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
		cut := make(chan struct{})
		tr, log, stop := run(TracesConfig{Sample: 1},
			&fakeExporter{ended: cut, do: func(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-cut:
					return errors.New("cut")
				}
			}})
		began := time.Now()
		for range 1000 {
			tr.Begin(nil, true, began).End(some(2))
			synctest.Wait()
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("requests waited %v", waited)
		}
		if got, want := tr.Counts(), (TraceCounts{Dropped: 1990, Queued: 10}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		time.Sleep(3 * time.Minute)
		tr.Begin(nil, true, began).End(some(2))
		time.Sleep(defaultDelay)
		began = time.Now()
		stop()
		if waited := time.Since(began); waited != flushTimeout {
			t.Errorf("stopping took %v", waited)
		}
		synctest.Wait()
		tr.Begin(nil, true, began).End(some(2))
		if got, want := tr.Counts(), (TraceCounts{Dropped: 1992, Failed: 12}); got != want {
			t.Errorf("in the end %+v, want %+v", got, want)
		}
		if lines := strings.Count(log.String(), "\n"); lines < 2 || lines > 4 || !strings.Contains(log.String(), "lost=2\n") {
			t.Errorf("%d lines were logged in three minutes and at the end:\n%s", lines, log)
		}
	})
}

func TestEverySpanIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "20")
		tr, _, stop := run(TracesConfig{Sample: 1},
			&fakeExporter{do: func(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
				time.Sleep(time.Millisecond)
				if len(spans)%2 == 0 {
					return errors.New("even")
				}
				return nil
			}})
		var ending sync.WaitGroup
		for n := range 100 {
			ending.Go(func() {
				time.Sleep(time.Duration(n%10)*defaultDelay + defaultDelay/2)
				tr.Begin(nil, true, time.Now()).End(some(1 + n%3))
			})
		}
		ending.Wait()
		stop()
		c := tr.Counts()
		if c.Exported+c.Failed+c.Dropped != 199 || c.Queued != 0 || min(c.Exported, c.Failed, c.Dropped) == 0 {
			t.Errorf("199 spans were made, counted are %+v", c)
		}
	})
}

// broken panics instead of making three spans.
type broken struct{}

func (broken) Len() int                                                  { return 3 }
func (broken) Spans([]attribute.KeyValue) ([]Span, []attribute.KeyValue) { panic("a mistake") }

func TestPanicLosesOnlyItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		panicked := ""
		to := &fakeExporter{}
		tr, _, stop := run(TracesConfig{Sample: 1, Recover: func(work string, step func() error) (err error) {
			defer func() {
				if recover() != nil {
					panicked, err = work, errors.New("recovered")
				}
			}()
			return step()
		}}, to)
		to.do = func(context.Context, []sdktrace.ReadOnlySpan) error { panic("an answer of the collector") }
		tr.Begin(nil, true, time.Now()).End(some(2))
		time.Sleep(defaultDelay)
		synctest.Wait()
		if panicked != "sending spans" {
			t.Errorf("the first panic was in %q", panicked)
		}
		to.do = nil
		tr.Begin(nil, true, time.Now()).End(broken{})
		tr.Begin(nil, true, time.Now()).End(some(1))
		stop()
		if got, want := tr.Counts(), (TraceCounts{Exported: 1, Failed: 2, Dropped: 3}); got != want ||
			panicked != "making spans" {
			t.Errorf("%+v, want %+v; the second panic was in %q", got, want, panicked)
		}
	})
}

func TestLossesAreLoggedOncePerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, log, stop := run(TracesConfig{Sample: 1},
			&fakeExporter{do: func(context.Context, []sdktrace.ReadOnlySpan) error { return errors.New("connection refused") }})
		for range 90 {
			tr.Begin(nil, true, time.Now()).End(some(1))
			time.Sleep(defaultDelay)
		}
		stop()
		if got := tr.Counts().Failed; got != 90 {
			t.Errorf("%d spans failed", got)
		}
		if n := strings.Count(log.String(), "\n"); n != 2 ||
			strings.Count(log.String(), `endpoint=http://collector:4318 cause="connection refused" lost=`) != 2 {
			t.Errorf("the log:\n%s", log)
		}
	})
}

// sendTo sends spans to a collector on a network and returns the counts and the log.
func sendTo(t *testing.T, network *memnet.Network, url string) (TraceCounts, string) {
	transport := network.Transport()
	defer transport.CloseIdleConnections()
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(url),
		otlptracehttp.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		t.Fatal(err)
	}
	tr, log, stop := run(TracesConfig{Sample: 1}, exporter)
	tr.Begin(nil, true, time.Unix(10, 0)).End(some(5))
	stop()
	return tr.Counts(), log.String()
}

// OB-01: no log has the collector's path or answer.
func TestExportResultsAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		want   TraceCounts
		log    string
	}{
		"all": {answer: func(http.ResponseWriter) {}, want: TraceCounts{Exported: 5}},
		"a part": {want: TraceCounts{Exported: 3, Failed: 2}, log: "2 spans rejected", answer: func(w http.ResponseWriter) {
			b, _ :=
				proto.Marshal(
					&coltracepb.ExportTraceServiceResponse{PartialSuccess: &coltracepb.ExportTracePartialSuccess{RejectedSpans: 2,
						ErrorMessage: "full (of it)"}})
			w.Header().Set("Content-Type", "application/x-protobuf")
			_, _ = w.Write(b)
		}},
		"nothing": {want: TraceCounts{Failed: 5}, log: "400 Bad Request", answer: func(w http.ResponseWriter) {
			http.Error(w, "a stranger's words", http.StatusBadRequest)
		}},
	} {
		network := memnet.New()
		s := network.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.answer(w) }))
		defer s.Close()
		got, log := sendTo(t, network, s.URL+"/secret/v1/traces")
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if !strings.Contains(log, c.log) || (log != "") != (c.log != "") || strings.Contains(log, "stranger") ||
			strings.Contains(log, "secret") {
			t.Errorf("%s: the log is %q, want %q in it", name, log, c.log)
		}
	}
}

func TestExportErrorsAreLogged(t *testing.T) {
	network := memnet.New()
	grpc, err := network.Listen("tcp", "127.0.0.1:0")
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
			_, _ = c.Read(make([]byte, 1)) // the request has arrived
			// the SETTINGS frame that begins HTTP/2
			_, _ = c.Write([]byte("\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00"))
			_ = c.Close()
		}
	}()
	for want, url := range map[string]string{"by default 4318": "http://" + grpc.Addr().String(),
		"connection refused": "http://127.0.0.1:1"} {
		if got, log := sendTo(t, network, url); got.Failed != 5 || !strings.Contains(log, want) {
			t.Errorf("%+v, the log is %q, want %q in it", got, log, want)
		}
	}
}

// listed makes a span that stores its attributes, and those of its event, in the list.
type listed string

func (listed) Len() int { return 1 }
func (l listed) Spans(list []attribute.KeyValue) ([]Span, []attribute.KeyValue) {
	list = append(list, attribute.String("of", string(l)), attribute.String("of the event", string(l)))
	return []Span{{Name: string(l), Start: time.Unix(10, 0), End: time.Unix(11, 0), Attributes: list[:1:1],
		Events: []SpanEvent{{Name: "event", Attributes: list[1:]}}}}, list
}

// TestEachRequestKeepsItsAttributes: requests share the memory of their attributes.
func TestEachRequestKeepsItsAttributes(t *testing.T) {
	to := &fakeExporter{}
	tr, _, stop := run(TracesConfig{Sample: 1}, to)
	for _, name := range []string{"a", "b", "c"} {
		tr.Begin(nil, true, time.Unix(10, 0)).End(listed(name))
	}
	stop()
	var got []string
	for _, s := range to.took {
		got = append(got, s.Name()+s.Attributes()[0].Value.AsString()+s.Events()[0].Attributes[0].Value.AsString())
	}
	if want := []string{"aaa", "bbb", "ccc"}; !slices.Equal(got, want) {
		t.Errorf("the spans, their attributes and those of their events are %q, want %q", got, want)
	}
}

func BenchmarkUnsampledRequest(b *testing.B) {
	tr, _, stop := run(TracesConfig{Sample: 0}, &fakeExporter{})
	defer stop()
	for name, h := range map[string]http.Header{
		"no_trace":   {"Authorization": {"Bearer x"}},
		"of_a_trace": {"Traceparent": {unsampled}, "Tracestate": {"vendor=value,other@system=1234"}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c := tr.Begin(h, true, time.Unix(10, 0))
				Inject(http.Header{}, c.Attempt(time.Unix(10, 0)))
				c.End(made(nil))
			}
		})
	}
}

// rich returns a typical request: three spans with about forty attributes.
func rich() made {
	spans := make(made, 3)
	for i, n := range []int{25, 8, 14} {
		attrs := make([]attribute.KeyValue, 0, n)
		for j := range n {
			if j%3 == 0 {
				attrs = append(attrs, attribute.Int("tierway.candidate.term."+string(rune('a'+j)), j))
			} else {
				attrs = append(attrs, attribute.String("tierway.candidate.term."+string(rune('a'+j)), "a value"))
			}
		}
		spans[i] = Span{Name: "POST /v1/chat/completions", Start: time.Unix(10, 0), End: time.Unix(11, 0), Attributes: attrs,
			Events: []SpanEvent{{Name: "candidate", At: time.Unix(10, 0), Attributes: attrs[:6]}}}
	}
	return spans
}

// BenchmarkSampledRequest measures making the spans of a request.
func BenchmarkSampledRequest(b *testing.B) {
	tr, _, stop := run(TracesConfig{Sample: 1},
		&fakeExporter{do: func(context.Context, []sdktrace.ReadOnlySpan) error { return errors.New("no") }})
	defer stop()
	b.ReportAllocs()
	for b.Loop() {
		c := tr.Begin(nil, true, time.Unix(10, 0))
		spans := rich()
		spans[2].Begun = c.Attempt(time.Unix(10, 0))
		Inject(http.Header{}, spans[2].Begun)
		c.endSpans(spans)
	}
}

// BenchmarkExport measures the whole cost of a sampled request, including a collector on the same
// machine that discards the spans.
func BenchmarkExport(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer s.Close()
	exporter, err := otlptracehttp.New(b.Context(), otlptracehttp.WithEndpointURL(s.URL))
	if err != nil {
		b.Fatal(err)
	}
	tr, _, stop := run(TracesConfig{Sample: 1}, exporter)
	defer stop()
	b.ReportAllocs()
	for b.Loop() {
		for tr.queued.Load() > tr.queueLimit/2 {
			time.Sleep(time.Millisecond) // the collector is slower
		}
		tr.Begin(nil, true, time.Unix(10, 0)).End(rich())
	}
	if lost := tr.dropped.Load(); lost > 0 {
		b.Errorf("%d spans were dropped", lost)
	}
}
