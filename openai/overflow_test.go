package openai

import (
	"encoding/json"
	"strings"
	"testing"
)

// Clients that shorten their prompt recognize the code, or the wording of OpenAI or Anthropic with its
// numbers.
func TestContextOverflowOfEveryEngineHasOpenAIsCode(t *testing.T) {
	const vllm = "This model's maximum context length is 64 tokens. However, your prompt contains at least 65 input tokens, " +
		"which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. " +
		"(parameter=input_tokens, value=65)"
	tests := []struct {
		name, body        string
		openAI, anthropic string // the messages; "" means the engine's own
	}{
		{"vLLM", `{"error":{"message":"` + vllm + `","type":"BadRequestError","param":"input_tokens","code":400}}`,
			"", "prompt is too long: 65 tokens > 64 maximum"},
		{"vLLM, the decoder's prompt",
			`{"error":{"message":"The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that it is shorter.","code":400}}`,
			"This model's maximum context length is 4096 tokens. The engine answered: The decoder prompt (length 5000) is " +
				"longer than the maximum model length of 4096. Make sure that it is shorter.",
			"prompt is too long: 5000 tokens > 4096 maximum"},
		{"vLLM, the answer",
			`{"error":{"message":"'max_tokens' is too large: 5000. This model's maximum context length is 4096 tokens and your request has 10 input tokens (5000 > 4096 - 10).","code":400}}`,
			"", ""},
		{"SGLang",
			`{"object":"error","message":"The input (9000 tokens) is longer than the model's context length (8192 tokens).","type":"BadRequestError","param":null,"code":400}`,
			"This model's maximum context length is 8192 tokens. The engine answered: The input (9000 tokens) is longer than " +
				"the model's context length (8192 tokens).",
			"prompt is too long: 9000 tokens > 8192 maximum"},
		{"SGLang, with the answer",
			`{"error":{"message":"Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 10000 tokens: 9000 tokens from the input messages and 1000 tokens for the completion.","code":400}}`,
			"This model's maximum context length is 8192 tokens. The engine answered: Requested token count exceeds the " +
				"model's maximum context length of 8192 tokens. You requested a total of 10000 tokens: 9000 tokens from the " +
				"input messages and 1000 tokens for the completion.",
			"prompt is too long: 10000 tokens > 8192 maximum"},
		{"llama.cpp",
			`{"error":{"code":400,"message":"request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8192}}`,
			"This model's maximum context length is 8192 tokens. The engine answered: request (9000 tokens) exceeds the " +
				"available context size (8192 tokens), try increasing it",
			"prompt is too long: 9000 tokens > 8192 maximum"},
		{"llama.cpp without numbers",
			`{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error"}}`,
			"", "prompt is too long: the request exceeds the available context size, try increasing it"},
		{"Ollama", `{"error":{"message":"the input length exceeds the context length","type":"api_error"}}`,
			"", "prompt is too long: the input length exceeds the context length"},
		{"OpenAI",
			`{"error":{"message":"Your input exceeds the context window of this model.","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}`,
			"", "prompt is too long: Your input exceeds the context window of this model."},
		{"Anthropic",
			`{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}`,
			"", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, ok := ErrorOf([]byte(tt.body))
			if !ok {
				t.Fatal("no error")
			}
			for d, want := range map[Dialect]string{Chat: tt.openAI, Messages: tt.anthropic} {
				got, ok := e.Overflow(d)
				if !ok || got.Code != CodeContextLengthExceeded {
					t.Fatalf("%v: %v, %v", d, got, ok)
				}
				if want == "" {
					want = e.Message
				}
				if got.Message != want {
					t.Errorf("%v:\n got %s\nwant %s", d, got.Message, want)
				}
			}
		})
	}
}

// An engine may repeat a prompt that contains the wording.
func TestOtherErrorsAreNotContextOverflows(t *testing.T) {
	for _, message := range []string{
		"max_tokens=300000 cannot be greater than max_model_len=32768. Please request fewer output tokens.",
		"The model `x` does not exist.",
		"1 validation error: " + strings.Repeat("x", overflowWithin) + "This model's maximum context length is 4096 tokens",
		"",
	} {
		if e, ok := (EngineError{Status: 400, Message: message}).Overflow(Chat); ok {
			t.Errorf("%s: %v", message, e)
		}
	}
}

// Clients read llama.cpp's n_ctx.
func TestRewrittenBodyKeepsItsOtherMembers(t *testing.T) {
	const body = `{"error":{"code":400,"message":"request (9000 tokens) exceeds the available context size (8192 tokens)","type":"exceed_context_size_error","n_ctx":8192},"id":"x"}`
	seen, _ := ErrorOf([]byte(body))
	e, _ := seen.Overflow(Chat)
	var got struct {
		ID    string
		Error struct {
			Code, Message, Type string
			NCtx                int `json:"n_ctx"`
		}
	}
	if err := json.Unmarshal(e.RewriteBody([]byte(body), Chat), &got); err != nil {
		t.Fatal(err)
	}
	if got.ID != "x" || got.Error.NCtx != 8192 || got.Error.Type != "exceed_context_size_error" ||
		got.Error.Code != "context_length_exceeded" ||
		!strings.HasPrefix(got.Error.Message, "This model's maximum context length is 8192 tokens. ") {
		t.Errorf("%+v", got)
	}
	for _, other := range []string{`{"error":"text"}`, `[]`, ``, `{"error":null}`} {
		if got := string(e.RewriteBody([]byte(other), Chat)); got != other {
			t.Errorf("%s became %s", other, got)
		}
	}
	if got := string(e.RewriteBody([]byte(`{"type":"error","error":{"type":"t","message":"m"}}`),
		Messages)); strings.Contains(
		got, "code") {
		t.Errorf("Anthropic's form has no code: %s", got)
	}
}

func TestContextExceededHasTheVendorsWording(t *testing.T) {
	for _, tt := range []struct {
		d                       Dialect
		field                   string
		context, prompt, output int64
		want                    string
	}{
		{Chat, "messages", 8000, 9000, 0, "This model's maximum context length is 8000 tokens. However, your messages " +
			"resulted in 9000 tokens. Please reduce the length of the messages."},
		{Chat, "messages", 8000, 7000, 2000, "This model's maximum context length is 8000 tokens. However, you requested " +
			"9000 tokens (7000 in the messages, 2000 in the completion). Please reduce the length of the messages or " +
			"completion."},
		{Completions, "prompt", 10, 20, 0, "This model's maximum context length is 10 tokens. However, your prompt " +
			"resulted in 20 tokens. Please reduce the length of the prompt."},
		{Messages, "messages", 8000, 9000, 100, "prompt is too long: 9000 tokens > 8000 maximum"},
		{Messages, "messages", 8000, 7000, 2000, "input length and `max_tokens` exceed context limit: 7000 + 2000 > 8000, " +
			"decrease input length or `max_tokens` and try again"},
	} {
		if got := ContextExceeded(tt.d, tt.field, tt.context, tt.prompt, tt.output); got.Message != tt.want ||
			got.Code != CodeContextLengthExceeded || got.Param != tt.field {
			t.Errorf("got  %+v\nwant %s", got, tt.want)
		}
	}
}
