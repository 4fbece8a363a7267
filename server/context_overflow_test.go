package server

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// constantStatus answers every request with the same status and body.
func constantStatus(status int, contentType, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		w.Write([]byte(body)) // the client may be gone
	})
}

// TestContextOverflowHasTheVendorsMessage: agents parse it and shorten their prompt.
func TestContextOverflowHasTheVendorsMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTieredRig(t, "")
		long := strings.Repeat("word", 20_000)
		for _, c := range []struct{ path, body, want string }{
			{"/v1/chat/completions", chatBody("small-model", long, ""),
				`"message":"This model's maximum context length is 8000 tokens. However, your messages resulted in 20000 tokens.`},
			{"/v1/responses", `{"model":"small-model","input":"` + long + `"}`, `However, your input resulted in 20000 tokens.`},
			{"/v1/messages", chatBody("small-model", long, `,"max_tokens":9`),
				`{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 20000 tokens > 8000 maximum"}`},
			{"/v1/messages", chatBody("small-model", "Hi", `,"max_tokens":9000`),
				"exceed context limit: 1 + 9000 > 8000, decrease input length or `max_tokens` and try again"},
		} {
			if got := r.post(c.path, c.body); got.status != http.StatusBadRequest || !strings.Contains(got.body, c.want) {
				t.Errorf("%s: %d %.300s\nwant %s", c.path, got.status, got.body, c.want)
			}
		}
	})
}

// TestAnEnginesContextOverflowHasTheStandardCode, as an error status and as the first event of a
// stream.
func TestAnEnginesContextOverflowHasTheStandardCode(t *testing.T) {
	const words = "This model's maximum context length is 64 tokens. However, your prompt contains at least 65 input tokens"
	vllm := `{"error":{"message":"` + words + `","type":"BadRequestError","param":"input_tokens","code":400}}`
	const llamacpp = `{"error":{"code":400,"message":"request (9000 tokens) exceeds the available context size (8192 tokens)","type":"exceed_context_size_error","n_ctx":8192}}`
	stream := chatBody("small", "Hi", `,"stream":true`)
	for _, c := range []struct {
		name, path, body string
		engine           http.Handler
		want             []string
	}{
		{"vLLM", "/v1/chat/completions", chatBody("small", "Hi", ""), constantStatus(400, "application/json", vllm),
			[]string{`"code":"context_length_exceeded"`, words, `"param":"input_tokens"`}},
		{"vLLM, in a stream", "/v1/chat/completions", stream,
			constantStatus(200, "text/event-stream", "data: "+vllm+"\n\ndata: [DONE]\n\n"),
			[]string{`"code":"context_length_exceeded"`, words}},
		{"vLLM, for Anthropic's clients", "/v1/messages", chatBody("small", "Hi", `,"max_tokens":9`),
			constantStatus(400, "application/json", vllm),
			[]string{`"type":"error"`, "prompt is too long: 65 tokens > 64 maximum"}},
		{"llama.cpp", "/v1/chat/completions", chatBody("small", "Hi", ""), constantStatus(400, "application/json", llamacpp),
			[]string{`"code":"context_length_exceeded"`, "This model's maximum context length is 8192 tokens.", `"n_ctx":8192`}},
		{"llama.cpp's old form", "/v1/chat/completions", chatBody("small", "Hi", ""),
			constantStatus(500, "application/json", strings.Replace(
				strings.Replace(llamacpp, "400", "500", 1), "exceed_context_size_error", "server_error", 1)),
			[]string{`"code":"context_length_exceeded"`, "This model's maximum context length is 8192 tokens."}},
		{"a code in a 502", "/v1/chat/completions", chatBody("small", "Hi", ""),
			constantStatus(502, "application/json", `{"error":{"message":"too long","code":"context_length_exceeded"}}`),
			[]string{`"code":"context_length_exceeded"`, "too long"}},
		{"words in a stream without a status", "/v1/chat/completions", stream,
			constantStatus(200, "text/event-stream", `data: {"error":{"message":"`+words+`","type":"server_error"}}`+"\n\n"),
			[]string{`"code":"context_length_exceeded"`, words}},
		{"SGLang's old form", "/v1/chat/completions", chatBody("small", "Hi", ""),
			constantStatus(400, "application/json",
				`{"object":"error","message":"The input (9000 tokens) is longer than the model's context length (8192 tokens).","type":"BadRequestError","param":null,"code":400}`),
			[]string{`{"error":{`, `"code":"context_length_exceeded"`, "This model's maximum context length is 8192 tokens."}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, plain, c.engine)
				got := r.post(c.path, c.body)
				if got.status != http.StatusBadRequest {
					t.Fatalf("%d %s", got.status, got.body)
				}
				for _, want := range c.want {
					if !strings.Contains(got.body, want) {
						t.Errorf("%s lacks %s", got.body, want)
					}
				}
				if line := r.accessLog(); !strings.Contains(line, `"code":"context_length_exceeded"`) ||
					strings.Contains(line, "maximum") {
					t.Errorf("the access log has %s", line)
				}
			})
		})
	}
}
