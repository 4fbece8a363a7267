package openai

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadAnswer(t *testing.T) {
	tests := []struct {
		name string
		d    Dialect
		body string
		want Answer
	}{
		{"chat", Chat,
			`{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"a \"usage\":{}"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,"prompt_tokens_details":{"cached_tokens":4}}}`,
			Answer{Usage: Usage{9, 4, 2, true}, HasUsage: true, ID: "chatcmpl-1", Valid: true}},
		{"chat, nothing cached", Chat,
			`{"choices":[{"index":0,"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}`,
			Answer{Usage: Usage{9, 0, 2, true}, HasUsage: true, Valid: true}},
		{"chat, no cache reported", Chat,
			`{"choices":[{"index":0,"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":null}}`,
			Answer{Usage: Usage{9, 0, 2, false}, HasUsage: true, Valid: true}},
		{"chat, more cached than there is", Chat,
			`{"choices":[{"index":0,"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":99999999999}}}`,
			Answer{Usage: Usage{9, 9, 2, true}, HasUsage: true, Valid: true}},
		{"chat, one choice unfinished", Chat,
			`{"choices":[{"index":0,"finish_reason":"stop"},{"index":1,"finish_reason":null}]}`,
			Answer{Valid: true}},
		{"chat without choices", Chat, `{"choices":[]}`, Answer{Valid: true}},
		{"completions, llama.cpp's timings", Completions,
			`{"choices":[{"text":"x","index":0,"finish_reason":"length"}],"timings":{"cache_n":5,"prompt_n":3,"predicted_n":2}}`,
			Answer{Usage: Usage{8, 5, 2, true}, HasUsage: true, Valid: true}},
		{"responses", Responses,
			`{"id":"resp_1","object":"response","status":"completed","error":null,"usage":{"input_tokens":12,"input_tokens_details":{"cached_tokens":8},"output_tokens":3,"total_tokens":15}}`,
			Answer{Usage: Usage{12, 8, 3, true}, HasUsage: true, ID: "resp_1", Valid: true}},
		{"responses in the background", Responses, `{"id":"resp_1","object":"response","status":"queued","error":null}`,
			Answer{ID: "resp_1", Valid: true}},
		{"responses failed", Responses,
			`{"id":"resp_1","object":"response","status":"failed","error":{"code":"server_error","message":"m"}}`,
			Answer{ID: "resp_1", Valid: true,
				Failed: &EngineError{Status: 500, Code: "server_error", Message: "m"}}},
		{"error in a choice", Chat, `{"choices":[{"index":0,"message":{},"error":{"code":502,"message":"m"}}]}`,
			Answer{Valid: true, Err: &EngineError{Status: 502, Message: "m"}}},
		{"messages", Messages,
			`{"id":"msg_1","type":"message","content":[],"stop_reason":"end_turn","usage":{"input_tokens":10,"cache_creation_input_tokens":20,"cache_read_input_tokens":30,"output_tokens":5}}`,
			Answer{Usage: Usage{60, 30, 5, true}, HasUsage: true, ID: "msg_1", Valid: true}},
		{"embeddings", Embeddings,
			`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,-2e-05]},{"index":1,"embedding":"AAAA"}],"model":"m","usage":{"prompt_tokens":8,"total_tokens":8}}`,
			Answer{Usage: Usage{8, 0, 0, false}, HasUsage: true, Valid: true}},
		{"rerank", Rerank, `{"id":"rerank-1","results":[{"index":0,"relevance_score":0.9}],"usage":{"total_tokens":56}}`,
			Answer{Usage: Usage{56, 0, 0, false}, HasUsage: true, ID: "rerank-1", Valid: true}},
		{"tokenize", Tokenize, `{"count":2,"tokens":[1,2]}`, Answer{Valid: true}},
		{"usage is null", Chat, `{"usage":null,"choices":[{"finish_reason":"stop"}]}`, Answer{Valid: true}},
		{"usage is odd", Other, `{"usage":{"prompt_tokens":-1,"completion_tokens":"2","total_tokens":99999999999999999999}}`,
			Answer{Valid: true}},
		{"error", Chat, `{"object":"error","message":"m","type":"BadRequestError","code":400}`,
			Answer{Valid: true, Err: &EngineError{Status: 400, Type: "BadRequestError", Message: "m"}}},
		{"error of Anthropic", Messages, `{"type":"error","error":{"type":"rate_limit_error","message":"m"}}`,
			Answer{Valid: true, Err: &EngineError{Status: 429, Type: "rate_limit_error", Message: "m"}}},
		{"error is null", Chat, `{"error":null,"choices":[{"finish_reason":"stop"}]}`, Answer{Valid: true}},
		{"cut", Chat, `{"id":"x","choices":[{"finish_reason":"stop"}]`, Answer{ID: "x"}},
		{"two", Chat, `{}{}`, Answer{}},
		{"array", Embeddings, `[1,2]`, Answer{}},
		{"HTML", Chat, `<html>`, Answer{}},
		{"empty", Chat, ``, Answer{}},
		{"white space", Other, " {\n} \r\n", Answer{Valid: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, ReadAnswer(tt.d, []byte(tt.body))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// embeddings returns an answer of about size bytes.
func embeddings(size int) []byte {
	var b strings.Builder
	b.WriteString(`{"object":"list","data":[`)
	for i := 0; b.Len() < size; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"object":"embedding","index":%d,"embedding":[%s-0.5]}`, i, strings.Repeat("0.0123456789,", 1024))
	}
	b.WriteString(`],"model":"m","usage":{"prompt_tokens":8,"total_tokens":8}}`)
	return []byte(b.String())
}

func TestLargeArraysAreSkipped(t *testing.T) {
	body := embeddings(1 << 20)
	want := Answer{Usage: Usage{Prompt: 8}, HasUsage: true, Valid: true}
	if diff := cmp.Diff(want, ReadAnswer(Embeddings, body)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	numbers := strings.Repeat("1,", 100)
	for _, odd := range []string{`[` + numbers + `"]"]`, `[` + numbers + `[2],3]`, `[` + numbers + `{"a":"]"}]`} {
		if a := ReadAnswer(Other, []byte(`{"data":`+odd+`}`)); !a.Valid {
			t.Errorf("…%s is rejected", odd[len(odd)-12:])
		}
	}
}

func TestJSONIsCheckedForStructure(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for in, want := range map[string]bool{
		`{"a":[{"b":{}},[],null,true,false,-1.5e+9,"\\","\"",NaN,-Infinity]}`: true,
		`{"a":` + deep(readerDepth-1) + `}`:                                   true, `{"a":` + deep(readerDepth) + `}`: false,
		`{"a":1,}`: false, `{,}`: false, `{"a"}`: false, `{"a":}`: false, `{"a" 1}`: false, `{a:1}`: false,
		`{"a":[1,]}`: false, `{"a":[1 2]}`: false, `{"a":[}`: false, `{"a":{]}`: false, `{"a":[1}}`: false,
		`{"a":tru}`: false, `{"a":nul`: false, `{"a":"}`: false, `{"a":"\"}`: false, `{"a":1-x}`: false, `{"a":-}`: false,
		`{"a":{"b":1,}}`: false, `{"a":{"b"}}`: false, `{"a":1}]`: false, `{"a":+}`: false, `{"a":[,1]}`: false,
	} {
		if got := ReadAnswer(Other, []byte(in)).Valid; got != want {
			t.Errorf("%.60s is valid: %v", in, got)
		}
	}
}
