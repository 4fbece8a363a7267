package openai

import "testing"

// TestAUsageChunkLeavesWhatItSaysBesideUsage: vLLM and llama.cpp write some members into
// their last chunk only.
func TestAUsageChunkLeavesWhatItSaysBesideUsage(t *testing.T) {
	const finish = `data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	for _, tt := range []struct{ name, last, usage, want string }{
		{"vLLM", finish, `{"id":"x","choices":[],"usage":{"prompt_tokens":1},"system_fingerprint":"vllm-1"}`,
			`data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"system_fingerprint":"vllm-1"}` + "\n\n"},
		{"llama.cpp", finish, `{ "timings" : {"prompt_n":3} , "choices":[],"id":"y","usage":{}}`,
			`data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"timings" : {"prompt_n":3}}` + "\n\n"},
		{"nothing else", finish, `{"id":"x","choices":[],"usage":{"prompt_tokens":1},"service_tier":null}`, finish},
		{"CRLF", "data:{\"id\":\"x\"}\r\n\r\n", `{"choices":[],"a":1}`, "data:{\"id\":\"x\",\"a\":1}\r\n\r\n"},
		{"several lines", "id: 7\ndata: {\"id\":\"x\"}\n\n", `{"choices":[],"a":1}`, "id: 7\ndata: {\"id\":\"x\"}\n\n"},
		{"broken", finish, `{"choices":[],"a":1`, finish},
		{"no object", "data: [DONE]\n\n", `{"choices":[],"a":1}`, "data: [DONE]\n\n"},
	} {
		if got := string(JoinUsageChunk([]byte("before "+tt.last), len("before "), []byte(tt.usage))); got != "before "+tt.want {
			t.Errorf("%s:\n got %q\nwant %q", tt.name, got, "before "+tt.want)
		}
	}
}
