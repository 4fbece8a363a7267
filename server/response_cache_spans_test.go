package server

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"tierway/decisions"
)

// TestTracesHaveTheLookUp: a request that the response cache is asked for has a span of it, and the embedding for it is
// in the same trace.
func TestTracesHaveTheLookUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, _ := newSemanticRig(t, "{ exact: {}, semantic: { embeddings: embed-1, threshold: 0.9 } }",
			"telemetry: { otlp: \"http://127.0.0.1:1\", sample: 1 }\n")
		exports, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { r.traces.Run(exports) })
		defer running.Wait()
		defer stop()
		const path, text = "/v1/chat/completions", "What is the tallest mountain of Europe?"
		for i, c := range []struct {
			body, want string
			spans      []string
			attributes string
		}{
			{chatWith("s", text), cacheMiss, []string{"POST /chat/completions", "response_cache", "route", "chat fake-7b"},
				"tierway.cache"},
			{chatWith("s", text), exactHit, []string{"POST /chat/completions", "response_cache"}, "tierway.cache"},
			{chatWith("s", text+"!"), semanticHit, []string{"POST /chat/completions", "response_cache"},
				"tierway.cache tierway.cache.similarity"},
			{chatWith("s", "hi"), cacheMiss, []string{"POST /chat/completions", "response_cache", "route", "chat fake-7b"},
				"tierway.cache"},
			{chatBody("small", text, ""), bypassed, []string{"POST /chat/completions", "route", "chat fake-7b"}, ""},
		} {
			_, result := r.cached(path, c.body)
			spans, _ := decisions.Trace{Decision: r.lastDecision()}.Spans(nil)
			var names []string
			for j := range spans {
				if names = append(names, spans[j].Name); names[j] == "response_cache" {
					wantAttributes(t, &spans[j], c.attributes, map[string]string{"tierway.cache": c.want})
				}
			}
			if result != c.want || !slices.Equal(names, c.spans) {
				t.Errorf("%d: %s with the spans %q, want %s with %q", i, result, names, c.want, c.spans)
			}
		}
		traces := map[string][]string{}
		for _, d := range r.recorded().Last(10) {
			traces[d.TraceID] = append(traces[d.TraceID], d.Tenant)
		}
		embedded := 0
		for id, of := range traces {
			if slices.Contains(of, "_gateway") {
				embedded++
			}
			if id == "" || len(of) > 1 && !slices.Contains(of, "_gateway") {
				t.Errorf("the trace %q has requests of %q", id, of)
			}
		}
		if len(traces) != 5 || embedded != 2 {
			t.Errorf("%d traces, %d of them with an embedding: %v", len(traces), embedded, traces)
		}
	})
}
