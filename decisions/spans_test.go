package decisions

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"pgregory.net/rapid"

	"tierway/routing"
	"tierway/telemetry"
)

// retriedDecision is a request that waited, failed on one worker and was answered by another.
func retriedDecision() *Decision {
	return &Decision{
		Time: time.Unix(1000, 0), RequestID: "req-1", Generation: 3, Tenant: "acme", Key: "k1", Class: "interactive",
		Method: "POST", Route: "/v1/chat/completions", Dialect: "chat", Stream: true, RequestedModel: "auto", Model: "qwen",
		Tier: "small", Rule: "default", Policy: "kv_aware", Worker: "w2", Reason: "cost", PromptTokens: 90, MaxTokens: 50,
		QueueMs: 20, TTFTMs: 60, DurationMs: 100, OverheadMs: 0.5, Result: OK, Status: 200,
		Usage: Usage{Prompt: 100, Cached: 64, Output: 10},
		Attempts: []Attempt{
			{Worker: "w1", Reason: "cost", AtMs: 25, QueueMs: 20, Status: 503, ErrorType: "503", DurationMs: 5, EndAtMs: 30,
				Span: 0xa1},
			{Worker: "w2", Reason: "cost", AtMs: 31, SelectionUs: 100, Status: 200, DurationMs: 20, FirstAtMs: 60, EndAtMs: 99,
				Span:      0xa2,
				Predicted: 64, Usage: Usage{Prompt: 100, Cached: 64, Output: 10},
				Choice: &routing.Choice{Policy: "kv_aware", KeyOf: "prefix", RunnerUp: "w3", Seen: 2,
					Candidates: []routing.Candidate{
						{Worker: "w3", Score: 2}, {Worker: "w2", Score: 1, Overlap: 64, Inflight: 5}}}},
		},
	}
}

func spansOf(d *Decision) []telemetry.Span {
	spans, _ := Trace{Decision: d}.Spans(nil)
	return spans
}

// inShort is a span in short.
func inShort(s telemetry.Span, begin time.Time) string {
	text := fmt.Sprintf("%s %d-%dms", s.Name, s.Start.Sub(begin).Milliseconds(), s.End.Sub(begin).Milliseconds())
	if s.Error {
		text += " error"
	}
	return text
}

func TestRequestHasItsSpans(t *testing.T) {
	d := retriedDecision()
	spans := spansOf(d)
	var got []string
	for _, s := range spans {
		got = append(got, inShort(s, d.Time))
	}
	want := []string{
		"POST /v1/chat/completions 0-100ms",
		"queue 5-25ms",
		"route 25-25ms",
		"chat qwen 25-30ms error",
		"route 30-31ms",
		"chat qwen 31-99ms",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "qwen",
		"gen_ai.request.stream":     "true",
		"gen_ai.request.max_tokens": "50", "gen_ai.usage.input_tokens": "100", "gen_ai.usage.output_tokens": "10",
		"gen_ai.usage.cache_read.input_tokens": "64", "gen_ai.response.time_to_first_chunk": "0.029",
		"http.response.status_code": "200",
		"tierway.worker":            "w2", "tierway.attempt": "2", "tierway.predicted_cached_tokens": "64",
		"tierway.requested_model": "auto",
	}, attributes(spans[5].Attributes)); diff != "" {
		t.Errorf("the attempt's attributes (-want +got):\n%s", diff)
	}
	if e := spans[5].Events; len(e) != 1 || e[0].Name != "first_content" || e[0].At != d.Time.Add(60*time.Millisecond) {
		t.Errorf("the attempt's events are %v", e)
	}
	root := attributes(spans[0].Attributes)
	for key, value := range map[string]string{"http.request.method": "POST", "http.route": "/v1/chat/completions",
		"http.response.status_code": "200",
		"gen_ai.request.model":      "auto", "tierway.tier": "small", "tierway.rule": "default", "tierway.tenant": "acme",
		"tierway.request_id": "req-1",
		"tierway.outcome":    "ok", "tierway.config_generation": "3", "tierway.queue_ms": "20", "tierway.overhead_ms": "0.5",
		"tierway.attempts": "2"} {
		if root[key] != value {
			t.Errorf("%s is %q, want %q", key, root[key], value)
		}
	}
	if root["error.type"] != "" {
		t.Error("a request that was answered well has an error type")
	}
	if e := attributes(spans[3].Attributes)["error.type"]; e != "503" {
		t.Errorf("the failed attempt's error type is %q", e)
	}
}

// A sum over the tokens of all spans counts each token once.
func TestTraceHasTheTokensOnce(t *testing.T) {
	d := retriedDecision()
	sums := map[string]string{}
	for _, s := range spansOf(d) {
		got := attributes(s.Attributes)
		for _, name := range []string{"gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "tierway.prompt_tokens",
			"tierway.cached_tokens", "tierway.output_tokens"} {
			sums[name] += got[name]
		}
		if (got["gen_ai.operation.name"] != "") != strings.HasPrefix(s.Name, "chat ") {
			t.Errorf("%s is the operation %q", s.Name, got["gen_ai.operation.name"])
		}
	}
	if diff := cmp.Diff(map[string]string{"gen_ai.usage.input_tokens": "100", "gen_ai.usage.output_tokens": "10",
		"tierway.prompt_tokens": "100", "tierway.cached_tokens": "64", "tierway.output_tokens": "10"}, sums); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRequestWithoutModelIsNoGenerationSpan(t *testing.T) {
	for name, change := range map[string]func(*Decision){
		"a passed path":   func(d *Decision) { d.Dialect, d.Rule = "other", "path" },
		"a stored answer": func(d *Decision) { d.Dialect, d.Rule = "responses", RuleStored },
	} {
		d := retriedDecision()
		change(d)
		s := Trace{Decision: d}.callSpan(new(attrs), &d.Attempts[0], 0)
		for key := range attributes(s.Attributes) {
			if strings.HasPrefix(key, "gen_ai.") {
				t.Errorf("%s has %s", name, key)
			}
		}
		if s.Name != "POST" {
			t.Errorf("%s is %q", name, s.Name)
		}
	}
}

// A stream that was opened for heartbeats has the status 200 even if it fails.
func TestFailedRequestIsAnErrorSpanAtAnyStatus(t *testing.T) {
	for _, c := range []struct {
		outcome Result
		status  int
		code    string
		want    string // the error's type
	}{
		{OK, 200, "", ""},
		{Refused, 429, "rate_limited", ""},
		{ClientGone, StatusClientGone, "", ""},
		{Failed, 200, "worker_timeout", "worker_timeout"},
		{Failed, 502, "worker_error", "worker_error"},
		{Truncated, 200, "", "truncated"},
	} {
		d := retriedDecision()
		d.Result, d.Status, d.Code = c.outcome, c.status, c.code
		root := spansOf(d)[0]
		if got := attributes(root.Attributes)["error.type"]; got != c.want || root.Error != (c.want != "") {
			t.Errorf("%s with %d: error %v of type %q, want %q", c.outcome, c.status, root.Error, got, c.want)
		}
	}
}

func attributes(list []attribute.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range list {
		m[string(a.Key)] = a.Value.String()
	}
	return m
}

func TestRouteSpanHasItsCandidates(t *testing.T) {
	route := spansOf(retriedDecision())[4]
	if got := attributes(route.Attributes); got["tierway.policy"] != "kv_aware" ||
		got["tierway.route.key_of"] != "prefix" ||
		got["tierway.route.runner_up"] != "w3" || got["tierway.route.candidates"] != "2" ||
		got["tierway.route.selection_us"] != "100" {
		t.Errorf("the choice: %v", got)
	}
	if len(route.Events) != 2 {
		t.Fatalf("%d candidates", len(route.Events))
	}
	first := attributes(route.Events[0].Attributes)
	if first["tierway.worker"] != "w2" || first["tierway.candidate.score"] != "1" ||
		first["tierway.candidate.overlap_tokens"] != "64" || first["tierway.candidate.inflight"] != "5" {
		t.Errorf("the chosen one: %v", first)
	}
}

func TestRouteSpanKeepsTheChosenAndTheRunnerUp(t *testing.T) {
	c := &routing.Choice{RunnerUp: "w28", Seen: 40}
	for i := range 32 {
		c.Candidates = append(c.Candidates, routing.Candidate{Worker: fmt.Sprintf("w%d", i)})
	}
	var got []string
	for _, e := range candidates(new(attrs), c, "w31", time.Time{}) {
		got = append(got, attributes(e.Attributes)["tierway.worker"])
	}
	if want := []string{"w31", "w28", "w0", "w1", "w2", "w3", "w4", "w5"}; !slices.Equal(got, want) {
		t.Errorf("the candidates are %v, want %v", got, want)
	}
}

func TestFailedAttemptSetsItsErrorType(t *testing.T) {
	for name, c := range map[string]struct {
		change          func(*Decision)
		error           bool
		errorType, code string
	}{
		"refused": {change: func(d *Decision) {
			d.Status, d.Result, d.Code = 429, Refused, "rate_limit_exceeded"
		}, code: "429"},
		"failed": {change: func(d *Decision) { d.Status, d.Result, d.Code = 503, Failed, "overloaded" }, error: true,
			errorType: "overloaded", code: "503"},
		"relayed": {change: func(d *Decision) { d.Status, d.Result = 500, Failed }, error: true, errorType: "500",
			code: "500"},
		"truncated":  {change: func(d *Decision) { d.Result = Truncated }, error: true, errorType: "truncated", code: "200"},
		"left":       {change: func(d *Decision) { d.Status, d.Result = 499, ClientGone }},
		"left later": {change: func(d *Decision) { d.Result = ClientGone }, code: "200"},
	} {
		d := retriedDecision()
		c.change(d)
		s := Trace{Decision: d}.rootSpan(new(attrs))
		got := attributes(s.Attributes)
		if s.Error != c.error || got["error.type"] != c.errorType || got["http.response.status_code"] != c.code {
			t.Errorf("%s: error %v, type %q, status %q", name, s.Error, got["error.type"], got["http.response.status_code"])
		}
	}
	d := retriedDecision()
	d.Attempts[1].ErrorType = ErrorClientGone
	if s := (Trace{Decision: d}).callSpan(new(attrs), &d.Attempts[1], 1); s.Error {
		t.Error("a client that left is the worker's failure")
	}
}

func TestWaitWithoutWorkerHasASpan(t *testing.T) {
	d := &Decision{Time: time.Unix(0, 0), Method: "POST", Route: "/v1/completions", Class: "batch", QueueMs: 30,
		DurationMs: 31, Shed: "wait", Status: 503, Result: Failed}
	spans := spansOf(d)
	if len(spans) != 2 || inShort(spans[1], d.Time) != "queue 1-31ms" ||
		attributes(spans[1].Attributes)["tierway.shed"] != "wait" {
		t.Errorf("spans are %v", spans)
	}
}

// OB-04: text from a client is in spans with a bounded length, as valid UTF-8 and without
// control characters.
func TestSpanTextsAreClean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := string(rapid.SliceOf(rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte("a\n\x1b\x00é\xff")))).Draw(t, "text"))
		got := clean(raw)
		if !utf8.ValidString(got) || len(got) > maxAttribute*utf8.UTFMax || strings.ContainsAny(got, "\n\r\x1b\x00") {
			t.Fatalf("%q became %q", raw, got)
		}
		if clean(got) != got && len(got) <= maxAttribute {
			t.Fatalf("%q is not clean yet", got)
		}
	})
	for raw, want := range map[string]string{"qwen-7b": "qwen-7b", "größer": "größer", "a\nlevel=error": "a�level=error",
		"\xff": "�", strings.Repeat("é", 200): strings.Repeat("é", 128) + "…"} {
		if got := clean(raw); got != want {
			t.Errorf("%q became %q, want %q", raw, got, want)
		}
	}
}

func TestEverySpanHasANameAndEndsAfterItsStart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Float64Range(0, 1000)
		d := &Decision{QueueMs: ms.Draw(t, "queue"), DurationMs: ms.Draw(t, "duration"), Method: "OTHER", Dialect: "chat"}
		for i := range rapid.IntRange(0, 4).Draw(t, "attempts") {
			a := Attempt{Worker: fmt.Sprint(i), QueueMs: max(0, ms.Draw(t, "wait")-500), AtMs: ms.Draw(t, "at"),
				EndAtMs: ms.Draw(t, "end")}
			if rapid.Bool().Draw(t, "chosen") {
				a.Choice = &routing.Choice{}
			}
			d.Attempts = append(d.Attempts, a)
		}
		spans := spansOf(d)
		if n := (Trace{Decision: d}).Len(); n != len(spans) {
			t.Fatalf("Len is %d for %d spans", n, len(spans))
		}
		for _, s := range spans {
			if s.End.Before(s.Start) || s.Name == "" {
				t.Fatalf("%q ends before it begins", s.Name)
			}
		}
	})
}

func BenchmarkSpans(b *testing.B) {
	d := retriedDecision()
	var list []attribute.KeyValue
	b.ReportAllocs()
	for b.Loop() {
		_, list = Trace{Decision: d}.Spans(list[:0])
	}
}
