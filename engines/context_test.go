package engines

import (
	"fmt"
	"strings"
	"testing"
)

// The texts are those of vLLM 0.32.0.
func TestContextOverflowHasTheWordingOfVLLM(t *testing.T) {
	const (
		tooMany = "%[1]s=65 cannot be greater than max_model_len=64. Please request fewer output tokens. (parameter=%[1]s, value=65)"
		tooLong = "This model's maximum context length is 64 tokens. However, your prompt contains at least 65 input tokens, " +
			"which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. " +
			"(parameter=input_tokens, value=65)"
	)
	long := strings.Repeat("word ", 100)
	table := []struct{ path, body, param, message string }{
		{"/v1/chat/completions", `{"model":"m",` + hello + `,"max_tokens":65}`, "max_tokens",
			fmt.Sprintf(tooMany, "max_tokens")},
		{"/v1/chat/completions", `{"model":"m",` + hello + `,"max_completion_tokens":65}`, "max_completion_tokens",
			fmt.Sprintf(tooMany, "max_completion_tokens")},
		{"/v1/completions", `{"model":"m","prompt":"a","max_tokens":65}`, "max_tokens", fmt.Sprintf(tooMany, "max_tokens")},
		{"/v1/responses", `{"model":"m","input":"a","max_output_tokens":65}`, "max_output_tokens",
			fmt.Sprintf(tooMany, "max_output_tokens")},
		{"/v1/messages", `{"model":"m",` + hello + `,"max_tokens":65}`, "", fmt.Sprintf(tooMany, "max_completion_tokens")},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"` + long + `"}]}`, "input_tokens",
			tooLong},
		{"/v1/completions", `{"model":"m","prompt":"` + long + `"}`, "input_tokens", tooLong},
		{"/v1/responses", `{"model":"m","input":"` + long + `"}`, "input_tokens", tooLong},
		{"/v1/messages", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"` + long + `"}]}`, "", tooLong},
		{"/v1/embeddings", `{"model":"m","input":"` + long + `"}`, "input_tokens", tooLong},
		{"/v1/completions", `{"model":"m","prompt":"` + long[:4*64] + `","max_tokens":9}`, "max_tokens",
			"max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)"},
	}
	for _, row := range table {
		status, body := call(t, New(Config{Model: "m", Context: 64}), "POST", row.path, row.body)
		refused := at(t, object(t, body), "error").(map[string]any)
		if status != 400 || refused["message"] != row.message {
			t.Errorf("%s %.90s:\n%d %s\nwant\n400 %s", row.path, row.body, status, refused["message"], row.message)
		}
		if row.path != "/v1/messages" && (refused["type"] != "BadRequestError" || refused["param"] != row.param ||
			refused["code"] != 400.0) {
			t.Errorf("%s: type %v, param %v, code %v", row.path, refused["type"], refused["param"], refused["code"])
		}
	}
}

// max_tokens is a ceiling: vLLM lowers it to the room that the prompt leaves.
func TestAnswersEndWithTheContext(t *testing.T) {
	e := New(Config{Model: "m", Context: 64})
	for _, fields := range []string{`"max_tokens":40`, `"max_tokens":64`, `"max_tokens":40,"ignore_eos":true`} {
		got := ask(t, e, "/v1/completions", `{"model":"m","prompt":"`+strings.Repeat("abcd", 50)+`",`+fields+`}`)
		if n := number(t, got, "usage", "completion_tokens"); n != 14 {
			t.Errorf("%s: the prompt takes 50 of the 64 tokens, the answer %d", fields, n)
		}
		if !strings.Contains(fields, "ignore_eos") && text(t, got, "choices", 0, "finish_reason") != "length" {
			t.Errorf("%s: %v", fields, got["choices"])
		}
	}
}

// Agents send their ceiling with every request: 32,000 (opencode, qwen-code) to
// 64,000 tokens (Anthropic's clients), beside a prompt of thousands.
func TestDemoTakesTheDefaultsOfAgents(t *testing.T) {
	for _, c := range Demo(7) {
		c.Prefill, c.PerToken = 0, 0
		for _, limit := range []string{`"max_tokens":32000`, `"max_completion_tokens":64000`} {
			status, body := call(t, New(c), "POST", "/v1/chat/completions", `{"model":"`+c.Model+`",`+limit+
				`,"messages":[{"role":"system","content":"`+strings.Repeat("word ", 10_000)+`"},{"role":"user","content":"hi"}]}`)
			if status != 200 {
				t.Errorf("%s refuses %s: %d %s", c.Name, limit, status, body)
			}
		}
		if c.CacheTokens < c.Context {
			t.Errorf("%s: a cache of %d tokens cannot hold one prompt of %d", c.Name, c.CacheTokens, c.Context)
		}
	}
}
