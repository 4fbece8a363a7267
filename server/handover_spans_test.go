package server

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"tierway/decisions"
	"tierway/engines/chaos"
	"tierway/telemetry"
)

// spansOf returns the spans of the last request.
func (s *stagesRig) spansOf() []telemetry.Span {
	synctest.Wait()
	spans, _ := decisions.Trace{Decision: s.recorded().Last(1)[0]}.Spans(nil)
	return spans
}

// wantAttributes verifies that a span has exactly the attributes that docs/observability.md lists, and these values.
func wantAttributes(t *testing.T, s *telemetry.Span, names string, values map[string]string) {
	t.Helper()
	got := map[string]string{}
	for _, a := range s.Attributes {
		got[string(a.Key)] = a.Value.String()
	}
	if diff := cmp.Diff(strings.Fields(names), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("attributes of %s (-want +got):\n%s", s.Name, diff)
	}
	for name, value := range values {
		if got[name] != value {
			t.Errorf("%s of %s is %q, want %q", name, s.Name, got[name], value)
		}
	}
}

// TestTraceOfAHandedOverRequestHasBothStages, and that of a failed prefill stage one span more. The workers receive the
// span of their own stage, and no token counts twice.
func TestTraceOfAHandedOverRequestHasBothStages(t *testing.T) {
	const prefill = "http.response.status_code tierway.attempt tierway.predicted_cached_tokens tierway.reason tierway.worker"
	const attempt = "gen_ai.operation.name gen_ai.provider.name gen_ai.request.max_tokens gen_ai.request.model " +
		"gen_ai.request.stream gen_ai.response.time_to_first_chunk gen_ai.usage.cache_read.input_tokens " +
		"gen_ai.usage.input_tokens gen_ai.usage.output_tokens " +
		"http.response.status_code tierway.attempt tierway.handover tierway.predicted_cached_tokens tierway.requested_model " +
		"tierway.worker"
	for _, handover := range []string{"nixl", "p2p_nccl", "shared", "sglang"} {
		synctest.Test(t, func(t *testing.T) {
			const exported = "\ntelemetry: { otlp: \"http://127.0.0.1:1\", sample: 1 }"
			s := newStagesRig(t, handover, steadyKeys+exported, nil, "p0", "p1", "d0")
			if err := s.prefills[0].faults.Set(chaos.Fault{Kind: chaos.Status, Status: 500}); err != nil {
				t.Fatal(err)
			}
			exports, stop := context.WithCancel(context.Background())
			var running sync.WaitGroup
			running.Go(func() { s.traces.Run(exports) })
			defer running.Wait()
			defer stop()
			retried := 0
			for i := range 2 {
				q := oneRequest(4*i, 100, true)
				wantAnswer(t, q, s.post(q.path, q.body))
				spans := s.spansOf()
				var names []string
				for j := range spans {
					names = append(names, spans[j].Name)
				}
				d := s.recorded().Last(1)[0]
				stages := d.Attempts[0].Handover.Prefills
				want := []string{"POST /chat/completions", "route", "prefill", "chat fake-7b"}
				if len(stages) == 2 {
					retried++
					want = slices.Insert(want, 2, "prefill")
					wantAttributes(t, &spans[2], strings.Replace(prefill, "http", "error.type http", 1),
						map[string]string{"error.type": "500", "tierway.worker": "p0", "tierway.attempt": "1"})
				}
				if !slices.Equal(names, want) {
					t.Fatalf("%s: the spans are %q, want %q", handover, names, want)
				}
				last, call := &spans[len(spans)-2], &spans[len(spans)-1]
				wantAttributes(t, last, prefill, map[string]string{"http.response.status_code": "200", "tierway.worker": "p1",
					"tierway.reason": "round_robin"})
				wantAttributes(t, call, attempt, map[string]string{"tierway.handover": "remote", "tierway.worker": "d0",
					"gen_ai.usage.output_tokens": "8"})
				if last.End.After(call.End) || last.Start.Before(spans[0].Start) || last.Error || call.Error {
					t.Errorf("%s: the stages are %+v and %+v", handover, last, call)
				}
				s.wantOwnSpans(d)
			}
			if retried == 0 {
				t.Errorf("%s: no prefill stage was repeated", handover)
			}
		})
	}
}

// wantOwnSpans verifies that each worker of a request received the span of its stage.
func (s *stagesRig) wantOwnSpans(d *decisions.Decision) {
	s.t.Helper()
	own := map[string]string{}
	for _, a := range d.Attempts {
		text, _ := a.Span.MarshalText()
		own[a.Worker] = string(text)
		for _, p := range a.Handover.Prefills {
			text, _ = p.Span.MarshalText()
			own[p.Worker] = string(text)
		}
	}
	for _, w := range s.stages {
		requests := w.Requests()
		if own[w.name] == "" {
			continue
		}
		got := requests[len(requests)-1].Header.Get("Traceparent")
		if want := "00-" + d.TraceID + "-" + own[w.name] + "-01"; got != want || strings.Trim(own[w.name], "0") == "" {
			s.t.Errorf("%s got the span %q, want %q", w.name, got, want)
		}
	}
}
