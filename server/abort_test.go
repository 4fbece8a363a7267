package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/breaker"
)

// constantAnswer answers every request with the same body of one media type.
func constantAnswer(kind, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a client that left reads no answer
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, body)
	})
}

// Chunks of chat streams. vLLM omits the abort chunk if no token precedes it.
const (
	roleChunk  = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
	textChunk  = `data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}` + "\n\n"
	abortChunk = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}` + "\n\n"
	usageChunk = `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}` + "\n\n"
	doneChunk  = "data: [DONE]\n\n"
)

// Events of the other dialects' streams that are aborted.
const (
	startEvent = "event: message_start\n" +
		`data: {"type":"message_start","message":{"id":"msg_1","stop_reason":null,"usage":{"input_tokens":3,"output_tokens":0}}}` + "\n\n"
	textEvent = "event: content_block_delta\n" +
		`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}` + "\n\n"
	stopReasonMissing = "event: message_delta\n" +
		`data: {"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":1}}` +
		"\n\nevent: message_stop\n" + `data: {"type":"message_stop"}` + "\n\n"
	cancelledEvent = "event: response.completed\n" +
		`data: {"type":"response.completed","sequence_number":2,"response":{"id":"resp_s1","object":"response","status":"cancelled"}}` + "\n\n"
)

// TestAnAbortBeforeContentIsRetried: the client has received nothing, so another worker can answer.
func TestAnAbortBeforeContentIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct{ kind, answer, path, body string }{
			"a chat": {"application/json",
				`{"choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"abort"}]}`,
				"/v1/chat/completions", chatBody("fake-7b", "Hi", "")},
			"a completion with an error": {"application/json", `{"choices":[{"index":0,"text":"x","finish_reason":"error"}]}`,
				"/v1/completions", `{"model":"fake-7b","prompt":"Hi"}`},
			"a message": {"application/json",
				`{"id":"m","type":"message","role":"assistant","content":[],"stop_reason":null}`, "/v1/messages",
				chatBody("fake-7b", "Hi", `,"max_tokens":5`)},
			"a response": {"application/json", `{"id":"r","object":"response","status":"cancelled","output":[]}`,
				"/v1/responses", `{"model":"fake-7b","input":"Hi","store":false}`},
			"a stream": {"text/event-stream", roleChunk + abortChunk + usageChunk + doneChunk,
				"/v1/chat/completions", chatBody("fake-7b", "Hi", `,"stream":true`)},
			"a stream without a reason": {"text/event-stream", roleChunk + usageChunk + doneChunk, "/v1/chat/completions",
				chatBody("fake-7b", "Hi", `,"stream":true`)},
			"a stream of a message": {"text/event-stream", startEvent + stopReasonMissing, "/v1/messages",
				chatBody("fake-7b", "Hi", `,"max_tokens":5,"stream":true`)},
			"a stream of a response": {"text/event-stream", createdEvent + cancelledEvent, "/v1/responses",
				`{"model":"fake-7b","input":"Hi","store":false,"stream":true}`},
		} {
			r := newRig(t, strings.Replace(plain, "tiers:", "policy: { name: round_robin }\ntiers:", 1), constantAnswer(c.kind,
				c.answer),
				fakeEngine())
			for range 2 {
				a := r.post(c.path, c.body)
				if a.status != http.StatusOK || strings.Contains(a.body, "abort") ||
					strings.Contains(a.body, `"status":"cancelled"`) || strings.Contains(a.body, `"error":{`) || len(a.body) < 200 {
					t.Errorf("%s is answered %d: %s", name, a.status, a.body)
				}
			}
			if m := r.scrape(); !strings.Contains(m, `tierway_attempts_total{result="error",tier="small",worker="w0"}`) {
				t.Errorf("%s is not counted as a failure of its worker:\n%s", name, m)
			}
		}
	})
}

// TestAnAbortByAllWorkersIsAnError: the answer is 502, not an empty completion.
func TestAnAbortByAllWorkersIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := constantAnswer("application/json",
			`{"choices":[{"index":0,"message":{"role":"assistant","content":"half"},"finish_reason":"abort"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`)
		streamed := constantAnswer("text/event-stream", roleChunk+abortChunk+doneChunk)
		for more, h := range map[string]http.Handler{"": whole, `,"stream":true`: streamed} {
			r := newRig(t, retryYAML, h, h)
			for range 20 {
				if a := r.post("/v1/chat/completions", chatBody("fake-7b", "Hi", more)); a.status != http.StatusBadGateway ||
					!strings.Contains(a.body, `"worker_error"`) {
					t.Errorf("%q: %d: %s", more, a.status, a.body)
				}
			}
			for _, name := range []string{"w0", "w1"} {
				if st := r.stateOf(name); st != breaker.Closed { // one prompt of one tenant may provoke it
					t.Errorf("%q: %s is %v", more, name, st)
				}
			}
		}
	})
}

// TestAnAbortAfterContentEndsWithAnError: the error has the form of the dialect. The answer counts as
// truncated. The worker is not blamed without other evidence.
func TestAnAbortAfterContentEndsWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct{ stream, path, body, sent string }{
			"chat": {roleChunk + textChunk + abortChunk + usageChunk + doneChunk, "/v1/chat/completions",
				chatBody("fake-7b", "Hi", `,"stream":true`), roleChunk + textChunk},
			"messages": {startEvent + textEvent + stopReasonMissing, "/v1/messages",
				chatBody("fake-7b", "Hi", `,"max_tokens":5,"stream":true`), startEvent + textEvent},
			"responses": {createdEvent + fmt.Sprintf(deltaEvent, 1) + cancelledEvent, "/v1/responses",
				`{"model":"fake-7b","input":"Hi","stream":true}`,
				createdEvent + fmt.Sprintf(deltaEvent, 1)},
		} {
			r := newRig(t, plain, constantAnswer("text/event-stream", c.stream))
			a := r.post(c.path, c.body)
			rest, ok := strings.CutPrefix(a.body, c.sent)
			if a.status != http.StatusOK || !ok || !strings.Contains(rest, "aborted") || !strings.Contains(rest, "error") ||
				strings.Contains(rest, "[DONE]") || strings.Contains(rest, "message_stop") ||
				strings.Contains(rest, "response.completed") {
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
			if name == "responses" && !strings.Contains(rest, "event: response.failed\n") {
				t.Errorf("%s: there is no response.failed: %s", name, rest)
			}
			m := r.scrape()
			if !strings.Contains(m, `tierway_stream_end_total{reason="truncated"} 1`) ||
				!strings.Contains(m, `outcome="truncated",tier="small"} 1`) ||
				!strings.Contains(m, `tierway_attempts_total{result="excluded",tier="small",worker="w0"} 1`) {
				t.Errorf("%s does not count as truncated, or is blamed at once:\n%s", name, m)
			}
		}
	})
}

// TestAClientMayCancelAResponse: a stream that ends with status cancelled is complete.
func TestAClientMayCancelAResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plain, constantAnswer("text/event-stream", createdEvent+fmt.Sprintf(deltaEvent, 1)+cancelledEvent))
		if a := r.post("/v1/responses",
			`{"model":"fake-7b","input":"Hi","stream":true,"background":true}`); !strings.HasSuffix(a.body, cancelledEvent) {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

// TestAFullEngineQueueIsBackpressure, as a status and as the first event of a stream. The 503 of vLLM and
// SGLang has no Retry-After.
func TestAFullEngineQueueIsBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const vllm = `{"error":{"message":"The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.","type":"ServiceUnavailableError","param":null,"code":503}}`
		for name, c := range map[string]struct {
			status     int
			kind, body string
			busy       bool
		}{
			"vLLM": {503, "application/json", vllm, true},
			"vLLM's tokens": {503, "application/json",
				strings.Replace(vllm, "is currently busy", "has reached its prefill token backlog limit", 1), true},
			"vLLM in a stream": {200, "text/event-stream", "data: " + vllm + "\n\ndata: [DONE]\n\n", true},
			"SGLang": {503, "application/json",
				`{"object":"error","message":"The request queue is full.","type":"ServiceUnavailable","code":503}`, true},
			"a 500":       {500, "application/json", `{"error":{"message":"The request queue is full.","code":500}}`, true},
			"another 500": {500, "application/json", `{"error":{"message":"The engine is dead.","code":500}}`, false},
			"a 500 alone": {500, "text/html", "<h1>queue is full</h1>", false},
			"no JSON":     {503, "text/html", "<h1>queue is full</h1>", true},
		} {
			full := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			r := newRig(t, strings.Replace(retryYAML, "least_load", "round_robin", 1), full, fakeEngine())
			if a := r.post("/v1/chat/completions", chatBody("fake-7b", "Hi", `,"stream":true`)); a.status != http.StatusOK {
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
			result := "error"
			if c.busy {
				result = "excluded"
			}
			m := r.scrape()
			if !strings.Contains(m, `tierway_attempts_total{result="`+result+`",tier="small",worker="w0"} 1`) ||
				strings.Contains(m, `tierway_worker_backoff{tier="small",worker="w0"} 1`) != c.busy {
				t.Errorf("%s is not counted as %s:\n%s", name, result, m)
			}
		}
		r := newRig(t, retryYAML, constantAnswer("application/json", vllm))
		if a := r.post("/v1/chat/completions", chatBody("fake-7b", "Hi", "")); a.status != http.StatusServiceUnavailable ||
			a.header.Get("Retry-After") != "1" {
			t.Errorf("without another worker: %d, Retry-After %q: %s", a.status, a.header.Get("Retry-After"), a.body)
		}
	})
}
