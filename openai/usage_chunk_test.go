package openai

import (
	"bytes"
	"encoding/json"
	"testing"
)

// vLLM and llama.cpp write some members only into their last chunk.
func TestOtherMembersOfAUsageChunkAreKept(t *testing.T) {
	const finish = `data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	for _, tt := range []struct{ name, last, usage, want string }{
		{"vLLM", finish, `{"id":"x","choices":[],"usage":{"prompt_tokens":1},"system_fingerprint":"vllm-1"}`,
			`data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"system_fingerprint":"vllm-1"}` + "\n\n"},
		{"llama.cpp", finish, `{ "timings" : {"prompt_n":3} , "choices":[],"id":"y","usage":{}}`,
			`data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"timings" : {"prompt_n":3}}` + "\n\n"},
		{"nothing else", finish, `{"id":"x","choices":[],"usage":{"prompt_tokens":1},"service_tier":null}`, finish},
		{"CRLF", "data:{\"choices\":[1]}\r\n\r\n", `{"choices":[],"a":1}`, "data:{\"choices\":[1],\"a\":1}\r\n\r\n"},
		{"several lines", "id: 7\ndata: {\"choices\":[1]}\n\n", `{"choices":[],"a":1}`, "id: 7\ndata: {\"choices\":[1]}\n\n"},
		{"no choices", "data: {}\n\n", `{"choices":[],"a":1}`, "data: {}\n\n"},
		{"broken", finish, `{"choices":[],"a":1`, finish},
		{"no object", "data: [DONE]\n\n", `{"choices":[],"a":1}`, "data: [DONE]\n\n"},
	} {
		if got := string(JoinUsageChunk([]byte("before "+tt.last), len("before "), []byte(tt.usage))); got != "before "+
			tt.want {
			t.Errorf("%s:\n got %q\nwant %q", tt.name, got, "before "+tt.want)
		}
	}
}

// FuzzJoinUsageChunk verifies that the result is an object with all members of the previous chunk.
func FuzzJoinUsageChunk(f *testing.F) {
	f.Add([]byte(`{"choices":[]}`), []byte(`{"choices":[],"usage":{},"system_fingerprint":"x"}`))
	f.Add([]byte(`{"choices":[],"a":1}`), []byte(`{ "\u0061":2 , "b":{"c":[1]}, "b":3 }`))
	f.Fuzz(func(t *testing.T, last, usage []byte) {
		var before map[string]json.RawMessage
		if bytes.ContainsAny(last, "\r\n") || json.Unmarshal(last, &before) != nil || !json.Valid(usage) {
			t.Skip()
		}
		out := JoinUsageChunk([]byte("data: "+string(last)+"\n\n"), 0, usage)
		data, ok := bytes.CutSuffix(out, []byte("\n\n"))
		var after map[string]json.RawMessage
		if !ok || json.Unmarshal(bytes.TrimPrefix(data, []byte("data: ")), &after) != nil {
			t.Fatalf("%q and %q became %q", last, usage, out)
		}
		for name, value := range before {
			if !bytes.Equal(after[name], value) {
				t.Errorf("%q and %q became %q: %s changed", last, usage, out, name)
			}
		}
	})
}
