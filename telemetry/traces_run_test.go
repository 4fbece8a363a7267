package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"pgregory.net/rapid"
)

// RS-13: a collector that hangs keeps nobody, memory is bounded, and what is lost
// is counted. A stop waits three seconds for it.
func TestAHungCollectorHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, out := newTest(t, TracesConfig{Sample: 1, Env: env("OTEL_BSP_MAX_QUEUE_SIZE=10", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=4")})
		tr.exporter = &fakeExporter{do: func(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); tr.Run(ctx) }()
		began := time.Now()
		for range 1000 {
			tr.Export(tr.Begin(nil, true, rand.Uint64), some(2))
			synctest.Wait()
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("requests waited %v", waited)
		}
		if got, want := tr.Counts(), (TraceCounts{Dropped: 2000 - 24, Queued: 24}); got != want { // 10 that wait, 2 in the batch
			t.Errorf("%+v, want %+v", got, want)
		}
		time.Sleep(3 * time.Minute)
		stop()
		began = time.Now()
		<-done
		if waited := time.Since(began); waited > flushFor {
			t.Errorf("stopping took %v", waited)
		}
		if got := tr.Counts(); got.Queued != 0 || got.Exported != 0 || got.Failed+got.Dropped != 2000 {
			t.Errorf("in the end %+v", got)
		}
		if lines := strings.Count(out.String(), "\n"); lines < 1 || lines > 4 {
			t.Errorf("%d lines were logged in three minutes:\n%s", lines, out)
		}
	})
}

func TestEverySpanIsCountedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		exports := rapid.SliceOfN(rapid.IntRange(-1, 5), 1, 50).Draw(t, "requests; -1 sends")
		tr := &Traces{log: slog.New(slog.DiscardHandler), recover: func(_ string, step func() error) error { return step() }, queue: make(chan record, 5), most: 8, patience: time.Second, batch: &batch{}}
		tr.tracer = sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(spanIDs{}), sdktrace.WithSpanProcessor(tr.batch)).Tracer("")
		tr.exporter = &fakeExporter{do: func(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
			if len(spans)%2 == 0 {
				return errors.New("even")
			}
			return nil
		}}
		var made int64
		for _, n := range exports {
			if n < 0 {
				for len(tr.queue) > 0 {
					tr.make(<-tr.queue)
				}
				tr.send(context.Background())
				continue
			}
			tr.Export(TraceContext{On: true, Sampled: true, TraceID: [16]byte{1}, Span: [8]byte{1}}, some(n))
			made += int64(n)
		}
		c := tr.Counts()
		if sum := c.Exported + c.Failed + c.Dropped + c.Queued; sum != made || min(c.Exported, c.Failed, c.Dropped, c.Queued) < 0 {
			t.Fatalf("%d spans were made, counted are %+v", made, c)
		}
	})
}

// torn is a record on which making spans panics.
type torn struct{ some }

func (torn) Spans(TraceContext) []Span { panic("a prompt") }

func TestAPanicLosesItsRecordOrItsBatchAndNothingElse(t *testing.T) {
	var panicked []string
	tr, _ := newTest(t, TracesConfig{Sample: 1, Recover: func(work string, step func() error) (err error) {
		defer func() {
			if recover() != nil {
				panicked, err = append(panicked, work), errors.New("recovered")
			}
		}()
		return step()
	}})
	to := &fakeExporter{}
	tr.exporter = to
	send := func(all ...Spans) {
		for _, s := range all {
			tr.Export(tr.Begin(nil, true, rand.Uint64), s)
			tr.make(<-tr.queue)
		}
		tr.send(t.Context())
	}
	send(some(1), torn{3}, some(1))
	to.do = func(context.Context, []sdktrace.ReadOnlySpan) error { panic("an answer of the collector") }
	send(some(2))
	to.do = nil
	send(some(1))
	if got, want := tr.Counts(), (TraceCounts{Exported: 3, Failed: 5}); got != want || len(to.took) != 3 {
		t.Errorf("%+v, want %+v", got, want)
	}
	if want := []string{"making the spans of a request", "sending spans"}; !slices.Equal(panicked, want) {
		t.Errorf("panics in %q, want %q", panicked, want)
	}
}

func TestLossesAreToldAtOnceAndThenEverMoreRarely(t *testing.T) {
	var w worries
	start := time.Unix(0, 0)
	var told []time.Duration
	lost := int64(0)
	for at := time.Duration(0); at < 5*time.Hour; at += time.Second {
		lost++
		if _, _, due := w.due(start.Add(at), lost); due {
			told = append(told, at)
		}
	}
	want := []time.Duration{0, time.Minute, 3 * time.Minute, 7 * time.Minute, 15 * time.Minute, 31 * time.Minute, 63 * time.Minute, 123 * time.Minute, 183 * time.Minute, 243 * time.Minute}
	if d := cmp.Diff(want, told); d != "" {
		t.Errorf("lines (-want +got):\n%s", d)
	}
	if _, _, due := w.due(start.Add(20*time.Hour), lost+1); !due {
		t.Error("a new loss is not told")
	}
	if _, since, due := w.due(start.Add(20*time.Hour+time.Minute), lost+3); !due || since != 2 {
		t.Errorf("a minute later: told %v, lost %d", due, since)
	}
	if _, _, due := w.due(start.Add(30*time.Hour), lost+3); due {
		t.Error("a line without a loss")
	}
}
