package engines

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"tierway/telemetry"
)

// TestAnEngineTellsOfRequestsThatNameATrace counts spans alone: what is in them is
// looked at from outside, beside the gateway's.
func TestAnEngineTellsOfRequestsThatNameATrace(t *testing.T) {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	t.Cleanup(collector.Close)
	traces := telemetry.NewTraces(telemetry.TracesConfig{OTLP: collector.URL, Sample: 1, Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { traces.Run(ctx) })
	e := New(Config{Model: "m", Traces: traces})
	for _, parent := range []string{"", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"} {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}]}`))
		if parent != "" {
			r.Header.Set("Traceparent", parent)
		}
		w := httptest.NewRecorder()
		if e.ServeHTTP(w, r); w.Code != http.StatusOK {
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
	}
	stop()
	running.Wait()
	if got, want := traces.Counts(), (telemetry.TraceCounts{Exported: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if n := len(e.Accounts()); n != 0 {
		t.Errorf("%d accounts are kept, and nobody asked for them", n)
	}
}

func TestAnEnginesSpanHasItsUsage(t *testing.T) {
	s := spanOf("/v1/completions", "m", time.Unix(2, 0), usage{prompt: 3, cached: 2, output: 1}, true)
	got := map[string]int64{}
	for _, a := range s.Attributes {
		got[string(a.Key)] = a.Value.AsInt64()
	}
	if got["gen_ai.usage.input_tokens"] != 3 || got["gen_ai.usage.cache_read.input_tokens"] != 2 || got["gen_ai.usage.output_tokens"] != 1 || !s.Error {
		t.Errorf("the span is %+v", s)
	}
}
