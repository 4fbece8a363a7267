package openai

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// markWords names the marks in the order of their bits.
var markWords = []string{"content", "usage-only", "finish", "done", "end", "error", "failed", "null-error", "malformed",
	"aborted", "unnamed", "no-choices"}

// words returns the names of a mark's flags.
func (m Mark) words() string {
	var w []string
	for i, name := range markWords {
		if m.Has(1 << i) {
			w = append(w, name)
		}
	}
	return strings.Join(w, " ")
}

// trackerState is the result of a tracker after a stream.
type trackerState struct {
	Marks            []string
	Proven, Finished bool
	Usage            Usage
	HasUsage         bool
	Events, Output   int
	ID               string
}

// trackStream runs a stream through reader and tracker.
func trackStream(d Dialect, stream string) trackerState {
	t := NewTracker(d)
	r := NewEventReader(strings.NewReader(stream), 0)
	var o trackerState
	for {
		ev, err := r.Next()
		if len(ev.Raw) > 0 {
			o.Marks = append(o.Marks, t.Observe(ev).words())
		}
		if err != nil {
			break
		}
	}
	o.Proven, o.Finished, o.ID = t.Proven(), t.Finished(), t.ResponseID()
	o.Usage, o.HasUsage = t.Usage()
	o.Events, o.Output = t.Events(), t.output
	return o
}

// unnamedEvents returns a stream of the payloads, as events without names.
func unnamedEvents(payloads ...string) string {
	return "data: " + strings.Join(payloads, "\n\ndata: ") + "\n\n"
}

// namedEvents returns a stream of the payloads, as events named by their type.
func namedEvents(payloads ...string) string {
	var b strings.Builder
	for _, p := range payloads {
		kind := p[strings.Index(p, `"type":"`)+8:]
		b.WriteString("event: " + kind[:strings.IndexByte(kind, '"')] + "\ndata: " + p + "\n\n")
	}
	return b.String()
}

func TestChatStreamsOfEveryEngine(t *testing.T) {
	tests := []struct {
		name, stream string
		want         trackerState
	}{
		{"OpenAI with usage", unnamedEvents(
			`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","service_tier":"default","system_fingerprint":"fp","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"x"}`,
			`{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"Hi"},"logprobs":null,"finish_reason":null}],"usage":null}`,
			`{"id":"chatcmpl-1","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}`,
			`{"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,"prompt_tokens_details":{"cached_tokens":4,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}`,
			`[DONE]`),
			trackerState{Marks: []string{"", "content", "finish", "usage-only", "done end"}, Proven: true,
				Usage: Usage{9, 4, 2, true}, HasUsage: true, Events: 5, Output: 1}},
		{"OpenAI tool call", unnamedEvents(
			`{"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":""}}]},"finish_reason":null}]}`,
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]},"finish_reason":null}]}`,
			`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`, `[DONE]`),
			trackerState{Marks: []string{"content", "content", "finish", "done end"}, Proven: true, Events: 4, Output: 2}},
		{"Azure's first chunk is not usage", unnamedEvents(
			`{"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{}}]}`,
			`{"choices":[],"usage":null}`),
			trackerState{Marks: []string{"", ""}, Events: 2}},
		{"vLLM, several tokens a chunk, usage in each", unnamedEvents(
			`{"id":"chatcmpl-a","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning_content":null},"logprobs":null,"finish_reason":null,"token_ids":null}],"prompt_token_ids":null,"usage":{"prompt_tokens":7,"total_tokens":7,"completion_tokens":0}}`,
			`{"id":"chatcmpl-a","choices":[{"index":0,"delta":{"reasoning_content":"Let me think"},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":7,"total_tokens":10,"completion_tokens":3}}`,
			`{"id":"chatcmpl-a","choices":[{"index":0,"delta":{"content":"one two three"},"logprobs":null,"finish_reason":"length","stop_reason":null}],"usage":{"prompt_tokens":7,"total_tokens":13,"completion_tokens":6}}`,
			`{"id":"chatcmpl-a","choices":[],"usage":{"prompt_tokens":7,"total_tokens":13,"completion_tokens":6,"prompt_tokens_details":null}}`,
			`[DONE]`),
			trackerState{Marks: []string{"", "content", "content finish", "usage-only", "done end"}, Proven: true,
				Usage: Usage{7, 0, 6, false}, HasUsage: true, Events: 5, Output: 2}},
		{"vLLM, token IDs of an incomplete character", unnamedEvents(
			`{"choices":[{"index":0,"delta":{"content":""},"token_ids":[1234],"finish_reason":null}]}`,
			`{"choices":[{"index":0,"delta":{"content":""},"logprobs":{"content":[{"token":"\ufffd"}]},"finish_reason":null}]}`),
			trackerState{Marks: []string{"content", "content"}, Events: 2, Output: 2}},
		{"SGLang", unnamedEvents(
			`{"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":null}`,
			`{"id":"1","choices":[{"index":0,"delta":{"role":null,"content":"Hello","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":null}`,
			`{"id":"1","choices":[{"index":0,"delta":{"role":null,"content":null,"reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":"stop","matched_stop":151645}],"usage":null}`,
			`{"id":"1","choices":[],"usage":{"prompt_tokens":20,"total_tokens":30,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":16},"reasoning_tokens":0}}`,
			`[DONE]`),
			trackerState{Marks: []string{"", "content", "finish", "usage-only", "done end"}, Proven: true,
				Usage: Usage{20, 16, 10, true}, HasUsage: true, Events: 5, Output: 1}},
		{"llama.cpp, timings instead of usage, no last blank line", strings.TrimSuffix(unnamedEvents(
			`{"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"created":1,"id":"chatcmpl-x","model":"m","system_fingerprint":"b6000","object":"chat.completion.chunk"}`,
			`{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Hi"}}],"id":"chatcmpl-x"}`,
			`{"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"id":"chatcmpl-x","timings":{"cache_n":5,"prompt_n":3,"prompt_ms":10.5,"prompt_per_second":285.7,"predicted_n":2,"predicted_ms":20.1}}`,
			`[DONE]`), "\n"),
			trackerState{Marks: []string{"", "content", "finish", "done end"}, Proven: true,
				Usage: Usage{8, 5, 2, true}, HasUsage: true, Events: 4, Output: 1}},
		{"llama.cpp, usage wins over timings", unnamedEvents(
			`{"choices":[{"finish_reason":"stop","index":0,"delta":{}}]}`,
			`{"choices":[],"usage":{"completion_tokens":2,"prompt_tokens":8,"total_tokens":10},"timings":{"prompt_n":3,"predicted_n":2}}`),
			trackerState{Marks: []string{"finish", "usage-only"}, Finished: true,
				Usage: Usage{8, 0, 2, false}, HasUsage: true, Events: 2}},
		{"Ollama", unnamedEvents(
			`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"Hm"},"finish_reason":null}]}`,
			`{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":null}]}`,
			`{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop"}]}`,
			`[DONE]`),
			trackerState{Marks: []string{"content", "content", "finish", "done end"}, Proven: true, Events: 4, Output: 2}},
		{"heartbeats are not events", ": OPENROUTER PROCESSING\n\n" +
			unnamedEvents(`{"choices":[{"delta":{"content":"x"}}]}`) +
			": hb\n\n",
			trackerState{Marks: []string{"", "content", ""}, Events: 1, Output: 1}},
		{"error is null",
			unnamedEvents(`{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}],"error":null}`),
			trackerState{Marks: []string{"content null-error"}, Events: 1, Output: 1}},
		{"two choices, one incomplete", unnamedEvents(
			`{"choices":[{"index":0,"delta":{"role":"assistant"}},{"index":1,"delta":{"role":"assistant"}}]}`,
			`{"choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}`, `[DONE]`),
			trackerState{Marks: []string{"", "finish", "done"}, Events: 3}},
		{"two choices", unnamedEvents(
			`{"choices":[{"index":1,"delta":{"content":"b"}}]}`, `{"choices":[{"index":0,"delta":{"content":"a"}}]}`,
			`{"choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}`,
			`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
			`[DONE]`),
			trackerState{Marks: []string{"content", "content", "finish", "finish", "done end"}, Proven: true, Events: 5,
				Output: 2}},
		{"choice 200 is incomplete", unnamedEvents(
			`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"},{"index":200,"delta":{"content":"a"}}]}`, `[DONE]`),
			trackerState{Marks: []string{"content finish", "done"}, Events: 2, Output: 1}},
		{"[DONE] without a finish_reason proves nothing", unnamedEvents(`{"choices":[{"index":0,"delta":{"content":"a"}}]}`,
			`[DONE]`),
			trackerState{Marks: []string{"content", "done"}, Events: 2, Output: 1}},
		{"[DONE] alone proves nothing", unnamedEvents(`[DONE]`), trackerState{Marks: []string{"done"}, Events: 1}},
		{"finish_reason without [DONE]",
			unnamedEvents(`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`),
			trackerState{Marks: []string{"content finish"}, Finished: true, Events: 1, Output: 1}},
		{"content that looks like structure", unnamedEvents(
			`{"choices":[{"index":0,"delta":{"content":"\"finish_reason\":\"stop\" [DONE] {\"error\":{}} \\"}}]}`, `"[DONE]"`),
			trackerState{Marks: []string{"content", ""}, Events: 1, Output: 1}},
		{"data that is no object", unnamedEvents(`null`, `{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`,
			`0`, `{}`, `[]`, `""`, `[DONE]`),
			trackerState{Marks: []string{"", "content finish", "", "", "", "", "done end"}, Proven: true, Events: 2, Output: 1}},
		{"usage without choices", unnamedEvents(`{"choices":null,"usage":{"prompt_tokens":1,"completion_tokens":2}}`,
			`{"usage":{"prompt_tokens":1,"completion_tokens":3}}`, `{"choices":{},"usage":{"total_tokens":3}}`,
			`{"id":"x","choices":[],"usage":{}}`, `{"choices":null,"usage":{"input_tokens":1,"output_tokens":4}}`),
			trackerState{Marks: []string{"usage-only no-choices", "usage-only no-choices", "usage-only no-choices", "usage-only",
				"usage-only no-choices"},
				Usage: Usage{1, 0, 4, false}, HasUsage: true, Events: 5}},
		{"no usage and no choices", unnamedEvents(`{"choices":null,"usage":null}`, `{"id":"x","object":"chat.completion.chunk"}`,
			`{"usage":null}`), trackerState{Marks: []string{"", "", ""}, Events: 3}},
		{"usage of a choice", unnamedEvents(`{"choices":[{"index":0,"delta":{"content":""}}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`),
			trackerState{Marks: []string{""}, Usage: Usage{1, 0, 2, false}, HasUsage: true, Events: 1}},
		{"an error in an array", unnamedEvents(`[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}]`),
			trackerState{Marks: []string{"error"}, Events: 1}},
		{"truncated JSON", unnamedEvents(`{"choices":[{"index":0,"finish_reason":"stop","delta":{"content":"a`, `[DONE]`),
			trackerState{Marks: []string{"malformed", "done"}, Events: 2}},
		{"several data lines", "data: {\"choices\":[{\"index\":0,\ndata: \"delta\":{\"content\":\"a\"}}]}\n\n",
			trackerState{Marks: []string{"content"}, Events: 1, Output: 1}},
		{"white space and escaped names",
			unnamedEvents(
				` { "choices" : [ { "\u0069ndex" : 0 , "delta" : { "content" : "a" } , "finish_reason" : "stop" } ] , "usage" : null } `),
			trackerState{Marks: []string{"content finish"}, Finished: true, Events: 1, Output: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, trackStream(Chat, tt.stream)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompletionsStream(t *testing.T) {
	want := trackerState{Marks: []string{"", "content", "content finish", "usage-only", "done end"}, Proven: true,
		Usage: Usage{3, 0, 2, false}, HasUsage: true, Events: 5, Output: 2}
	got := trackStream(Completions, unnamedEvents(
		`{"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":null,"stop_reason":null}],"usage":null}`,
		`{"id":"cmpl-1","choices":[{"index":0,"text":" a","logprobs":null,"finish_reason":null}],"usage":null}`,
		`{"id":"cmpl-1","choices":[{"index":0,"text":" b","logprobs":null,"finish_reason":"length"}],"usage":null}`,
		`{"id":"cmpl-1","choices":[],"usage":{"prompt_tokens":3,"total_tokens":5,"completion_tokens":2}}`, `[DONE]`))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestResponsesStreams(t *testing.T) {
	created :=
		`{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","error":null,"usage":null,"output":[]}}`
	tests := []struct {
		name, stream string
		want         trackerState
	}{
		{"text", namedEvents(created,
			`{"type":"response.in_progress","sequence_number":1,"response":{"id":"resp_1","status":"in_progress"}}`,
			`{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"msg_1","status":"in_progress","role":"assistant","content":[]}}`,
			`{"type":"response.content_part.added","item_id":"msg_1","part":{"type":"output_text","text":"","annotations":[]}}`,
			`{"type":"response.output_text.delta","item_id":"msg_1","delta":"Hi"}`,
			`{"type":"response.output_text.done","item_id":"msg_1","text":"Hi"}`,
			`{"type":"response.completed","response":{"id":"resp_1","status":"completed","error":null,"usage":{"input_tokens":12,"input_tokens_details":{"cached_tokens":8},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":1},"total_tokens":15}}}`),
			trackerState{Marks: []string{"", "", "", "", "content", "content", "finish end"}, Proven: true,
				Usage: Usage{12, 8, 3, true}, HasUsage: true, Events: 7, Output: 2, ID: "resp_1"}},
		{"vLLM: type last, [DONE] after", "event: response.created\n" + unnamedEvents(
			`{"response":{"id":"resp_v","status":"in_progress"},"sequence_number":0,"type":"response.created"}`,
			`{"item":{"type":"reasoning","id":"r","summary":[]},"output_index":0,"type":"response.output_item.added"}`,
			`{"delta":"Hm","type":"response.reasoning_text.delta"}`,
			`{"response":{"usage":{"input_tokens":1,"output_tokens":2},"id":"resp_v"},"type":"response.incomplete"}`, `[DONE]`),
			trackerState{Marks: []string{"", "", "content", "finish end", "done"}, Proven: true,
				Usage: Usage{1, 0, 2, false}, HasUsage: true, Events: 5, Output: 1, ID: "resp_v"}},
		{"tool call", namedEvents(created,
			`{"type":"response.output_item.added","item":{"type":"function_call","name":"f","arguments":""}}`,
			`{"type":"response.function_call_arguments.delta","delta":"{"}`),
			trackerState{Marks: []string{"", "content", "content"}, Events: 3, Output: 2, ID: "resp_1"}},
		{"type only in the event's name", "event: response.output_text.delta\ndata: {\"delta\":\"x\"}\n\n",
			trackerState{Marks: []string{"content"}, Events: 1, Output: 1}},
		{"failed", namedEvents(created,
			`{"type":"response.failed","response":{"id":"resp_1","status":"failed","error":{"code":"server_error","message":"boom"},"usage":null}}`),
			trackerState{Marks: []string{"", "finish end failed"}, Proven: true, Events: 2, ID: "resp_1"}},
		{"done", namedEvents(created, `{"type":"response.done","response":{"id":"resp_1","usage":{"input_tokens":1,"output_tokens":2}}}`),
			trackerState{Marks: []string{"", "finish end"}, Proven: true,
				Usage: Usage{1, 0, 2, false}, HasUsage: true, Events: 2, ID: "resp_1"}},
		{"done by the event's name", namedEvents(created) + "event: response.done\ndata: {}\n\n",
			trackerState{Marks: []string{"", "finish end"}, Proven: true, Events: 2, ID: "resp_1"}},
		{"done and failed", namedEvents(created,
			`{"type":"response.done","response":{"id":"resp_1","status":"failed","error":{"code":"server_error","message":"boom"}}}`),
			trackerState{Marks: []string{"", "finish end failed"}, Proven: true, Events: 2, ID: "resp_1"}},
		{"done and cancelled", namedEvents(created, `{"type":"response.done","response":{"id":"resp_1","status":"cancelled"}}`),
			trackerState{Marks: []string{"", "finish end aborted"}, Events: 2, ID: "resp_1"}},
		{"cancelled", namedEvents(created, `{"type":"response.cancelled","response":{"id":"resp_1","status":"cancelled"}}`),
			trackerState{Marks: []string{"", "finish end aborted"}, Events: 2, ID: "resp_1"}},
		{"error",
			namedEvents(created, `{"type":"error","code":"server_error","message":"boom","param":null,"sequence_number":3}`),
			trackerState{Marks: []string{"", "error"}, Events: 2, ID: "resp_1"}},
		{"cut", namedEvents(created, `{"type":"response.output_text.delta","delta":"response.completed"}`),
			trackerState{Marks: []string{"", "content"}, Events: 2, Output: 1, ID: "resp_1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, trackStream(Responses, tt.stream)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMessagesStreams(t *testing.T) {
	start :=
		`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":20,"cache_read_input_tokens":30,"output_tokens":1}}}`
	tests := []struct {
		name, stream string
		want         trackerState
	}{
		{"text", namedEvents(start,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"ping"}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}`,
			`{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":15}}`,
			`{"type":"message_stop"}`),
			trackerState{Marks: []string{"", "", "", "content", "", "finish", "end"}, Proven: true,
				Usage: Usage{60, 30, 15, true}, HasUsage: true, Events: 7, Output: 1}},
		{"thinking and tools", namedEvents(start,
			`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm"}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}}`,
			`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_1","name":"f","input":{}}}`,
			`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{"}}`,
			`{"type":"content_block_start","index":2,"content_block":{"type":"text","text":"all at once"}}`),
			trackerState{Marks: []string{"", "", "content", "", "content", "content", "content"},
				Usage: Usage{60, 30, 1, true}, HasUsage: true, Events: 7, Output: 4}},
		{"vLLM: the prompt's tokens come last", namedEvents(
			`{"type":"message_start","message":{"id":"m","usage":{"input_tokens":0,"output_tokens":0}}}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":25,"output_tokens":4}}`),
			trackerState{Marks: []string{"", "finish"}, Finished: true, Usage: Usage{25, 0, 4, false}, HasUsage: true,
				Events: 2}},
		{"input_tokens repeated as 0", namedEvents(start,
			`{"type":"message_delta","delta":{"stop_reason":null},"usage":{"input_tokens":0,"output_tokens":4}}`),
			trackerState{Marks: []string{"", ""}, Usage: Usage{60, 30, 4, true}, HasUsage: true, Events: 2}},
		{"error", namedEvents(start, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`),
			trackerState{Marks: []string{"", "error"}, Usage: Usage{60, 30, 1, true}, HasUsage: true, Events: 2}},
		{"cut",
			namedEvents(start, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"message_stop"}}`),
			trackerState{Marks: []string{"", "content"}, Usage: Usage{60, 30, 1, true}, HasUsage: true, Events: 2, Output: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, trackStream(Messages, tt.stream)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// An engine that stops ends its answers like complete ones, except for the finish reason.
func TestAbortedAnswerIsNotComplete(t *testing.T) {
	message := func(delta string) string {
		return namedEvents(`{"type":"message_start","message":{"id":"m","stop_reason":null}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}`,
			`{"type":"message_delta","delta":`+delta+`,"usage":{"output_tokens":4}}`, `{"type":"message_stop"}`)
	}
	response := func(last string) string {
		return namedEvents(`{"type":"response.created","response":{"id":"r","status":"in_progress","incomplete_details":null}}`,
			last)
	}
	for _, c := range []struct {
		d       Dialect
		stream  string
		aborted bool
	}{
		{Chat, unnamedEvents(`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}`,
			`{"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}`, `[DONE]`), true},
		{Chat, unnamedEvents(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
			`{"choices":[{"index":1,"delta":{},"finish_reason":"error"}]}`, `[DONE]`), true},
		{Completions, unnamedEvents(`{"choices":[{"index":0,"text":"a","finish_reason":"abort"}]}`, `[DONE]`), true},
		{Chat, unnamedEvents(`{"choices":[{"index":0,"delta":{"content":"abort"},"finish_reason":"stop"}]}`, `[DONE]`),
			false},
		{Messages, message(`{"stop_reason":null,"stop_sequence":null}`), true},
		{Messages, message(`{"stop_reason":"end_turn","stop_sequence":null}`), false},
		{Messages, message(`{}`), false},
		{Responses, response(`{"type":"response.completed","response":{"id":"r","status":"cancelled"}}`), true},
		{Responses,
			response(
				`{"type":"response.incomplete","response":{"id":"r","status":"incomplete","incomplete_details":{"reason":"abort"}}}`), true},
		{Responses,
			response(
				`{"type":"response.incomplete","response":{"id":"r","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}`), false},
		{Responses,
			response(`{"type":"response.completed","response":{"id":"r","status":"completed","incomplete_details":null}}`),
			false},
	} {
		got := trackStream(c.d, c.stream)
		if aborted := strings.Contains(strings.Join(got.Marks, " "), "aborted"); aborted != c.aborted ||
			aborted == got.Proven || got.Finished {
			t.Errorf("%v: marks %q, proven %v, finished %v: %s", c.d, got.Marks, got.Proven, got.Finished, c.stream)
		}
	}
	for body, d := range map[string]Dialect{
		`{"choices":[{"index":0,"finish_reason":"abort"}]}`:                                                Chat,
		`{"choices":[{"index":0,"finish_reason":"stop"},{"index":1,"finish_reason":"error"}]}`:             Completions,
		`{"type":"message","content":[],"stop_reason":null}`:                                               Messages,
		`{"object":"response","status":"cancelled"}`:                                                       Responses,
		`{"object":"response","status":"incomplete","incomplete_details":{"reason":"abort"},"error":null}`: Responses,
	} {
		if !ReadAnswer(d, []byte(body)).Aborted {
			t.Errorf("%s does not count as aborted", body)
		}
	}
	if ReadAnswer(Messages, []byte(`{"input_tokens":5}`)).Aborted {
		t.Error("a response with only a token count counts as aborted")
	}
}

func TestDialectWithoutTerminatorIsProvenByOneEvent(t *testing.T) {
	want := trackerState{Marks: []string{"content", "content"}, Proven: true, Usage: Usage{5, 0, 7, false}, HasUsage: true,
		Events: 2, Output: 2}
	got := trackStream(Audio,
		unnamedEvents("plain words",
			`{"type":"transcript.text.done","text":"x","usage":{"type":"tokens","input_tokens":5,"output_tokens":7}}`))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := trackStream(Other, unnamedEvents(`{"choices":[{"finish_reason":"stop"}]}`)); !got.Proven || got.Finished {
		t.Errorf("Finished in a dialect without a terminator: %+v", got)
	}
	if got := trackStream(Other, ""); got.Proven {
		t.Error("an empty stream is proven")
	}
	if got := trackStream(Audio, unnamedEvents(`{"error":{"message":"x"}}`)); got.Proven {
		t.Error("an error is proven")
	}
}

func TestFailedStreamIsNeverProven(t *testing.T) {
	finish := `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	for _, failure := range []string{
		unnamedEvents(`{"error":{"message":"x"}}`), unnamedEvents(`{"choices":[`), "event: error\n\n",
		"event: error\ndata: oops\n\n",
	} {
		for _, stream := range []string{unnamedEvents(finish) + failure + unnamedEvents("[DONE]"),
			failure + unnamedEvents(finish, "[DONE]")} {
			if got := trackStream(Chat, stream); got.Proven || got.Finished {
				t.Errorf("%q: proven %v, finished %v", stream, got.Proven, got.Finished)
			}
		}
	}
}

func TestNullErrorIsStripped(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"last", "data: {\"id\":1,\"error\":null}\n\n", "data: {\"id\":1}\n\n"},
		{"first", "id: 7\r\ndata:{ \"error\" : null , \"choices\": [1, 2] }\r\n\r\n",
			"id: 7\r\ndata:{\"choices\": [1, 2]}\r\n\r\n"},
		{"between, and again", "event: x\ndata: {\"a\":{\"error\":null},\"error\":\"\",\"b\":2,\"error\":false}\n: c\n\n",
			"event: x\ndata: {\"a\":{\"error\":null},\"b\":2}\n: c\n\n"},
		{"alone", "data: {\"error\":null}\n\n", "data: {}\n\n"},
		{"several data lines", "event: x\ndata: {\"a\":\ndata: 1,\"error\":\ndata: null,\ndata: \"b\":2}\n\n",
			"event: x\ndata: {\"a\":\ndata: 1,\"b\":2}\n\n"},
		{"one that says something stays", "data: {\"error\":{\"message\":\"x\"}}\n\n",
			"data: {\"error\":{\"message\":\"x\"}}\n\n"},
		{"no object", "data: [DONE]\n\n", "data: [DONE]\n\n"},
		{"cut", "data: {\"a\":1,\"error\":nul\n\n", "data: {\"a\":1,\"error\":nul\n\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ev, err := NewEventReader(strings.NewReader(tt.in), 0).Next()
			if err != nil {
				t.Fatal(err)
			}
			if got := string(AppendEvent([]byte("before "), ev, MarkNullError)); got != "before "+tt.want {
				t.Errorf("got  %q\nwant %q", got, "before "+tt.want)
			}
		})
	}
	if got := string(AppendEvent(nil, Event{Name: []byte("n"), Data: []byte(`{"error":null}`)}, MarkNullError)); got !=
		"event: n\ndata: {}\n\n" {
		t.Errorf("an event without Raw: %q", got)
	}
}

// The events of the failure have the numbers after the last one of the engine.
func TestFailedResponseContinuesTheSequenceNumbers(t *testing.T) {
	const created = `{"type":"response.created","sequence_number":0,"response":{"id":"resp_1"}}`
	for _, c := range []struct {
		name   string
		events []string
		id     string
		next   int64
	}{
		{name: "no events"},
		{name: "created", events: []string{created}, id: "resp_1", next: 1},
		{name: "deltas", events: []string{created, `{"type":"response.output_text.delta","sequence_number":7,"delta":"x"}`},
			id: "resp_1", next: 8},
		{name: "decreasing number",
			events: []string{`{"type":"a","sequence_number":7}`, `{"type":"a","sequence_number":3}`}, next: 8},
		{name: "no numbers", events: []string{`{"type":"response.created","response":{"id":"resp_1","sequence_number":5}}`,
			`{"type":"a","sequence_number":"9"}`, `{"type":"a","sequence_number":-4}`}, id: "resp_1"},
		{name: "number too large", events: []string{`{"type":"a","sequence_number":9223372036854775807}`,
			`{"type":"a","sequence_number":9223372036854775805}`}},
	} {
		tr := NewTracker(Responses)
		for _, data := range c.events {
			tr.Observe(Event{Data: []byte(data)})
		}
		if tr.ResponseID() != c.id || tr.NextSequence() != c.next {
			t.Errorf("%s: %q, %d; want %q, %d", c.name, tr.ResponseID(), tr.NextSequence(), c.id, c.next)
		}
		frame := string((&Error{Code: CodeWorkerError}).FailedResponse(tr.ResponseID(), tr.NextSequence()))
		for _, part := range []string{
			fmt.Sprintf(`"sequence_number":%d,"error":{`, c.next),
			fmt.Sprintf(`"type":"response.failed","sequence_number":%d,"response":{"id":%q,`, c.next+1, c.id),
		} {
			if !strings.Contains(frame, part) {
				t.Errorf("%s: no %s in %s", c.name, part, frame)
			}
		}
	}
}

// TestEventsAreCompleted: Anthropic's SDKs skip an event whose name they do not know, and SDKs with
// schemas reject a chunk without choices.
func TestEventsAreCompleted(t *testing.T) {
	const stop = `{"type":"message_stop"}`
	for _, tt := range []struct{ name, in, want string }{
		{"no name", "data: " + stop + "\n\n", "event: message_stop\ndata: " + stop + "\n\n"},
		{"an id and a comment", ": c\nid: 1\ndata: " + stop + "\n\n",
			"event: message_stop\n: c\nid: 1\ndata: " + stop + "\n\n"},
		{"CRLF", "data: " + stop + "\r\n\r\n", "event: message_stop\ndata: " + stop + "\r\n\r\n"},
		{"two lines", "data: {\ndata: \"type\":\"ping\"}\n\n", "event: ping\ndata: {\ndata: \"type\":\"ping\"}\n\n"},
		{"the default name", "event: message\ndata: " + stop + "\n\n", "event: message_stop\ndata: " + stop + "\n\n"},
		{"the default name and a null error", "event: message\ndata: {\"type\":\"ping\",\"error\":null}\n\n",
			"event: ping\ndata: {\"type\":\"ping\"}\n\n"},
		{"a null error", "data: {\"type\":\"ping\",\"error\":null}\n\n", "event: ping\ndata: {\"type\":\"ping\"}\n\n"},
		{"an empty name", "event:\ndata: " + stop + "\n\n", "event: message_stop\ndata: " + stop + "\n\n"},
		{"named", "event: message_stop\ndata: " + stop + "\n\n", "event: message_stop\ndata: " + stop + "\n\n"},
		{"another name", "event: odd\ndata: " + stop + "\n\n", "event: odd\ndata: " + stop + "\n\n"},
		{"a type that is no name", "data: {\"type\":\"a\\nb\"}\n\n", "data: {\"type\":\"a\\nb\"}\n\n"},
		{"no type", "data: {\"index\":0}\n\n", "data: {\"index\":0}\n\n"},
	} {
		tracker := NewTracker(Messages)
		ev, err := NewEventReader(strings.NewReader(tt.in), 0).Next()
		if err != nil {
			t.Fatal(err)
		}
		if got := string(AppendEvent([]byte("before "), ev, tracker.Observe(ev))); got != "before "+tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	chunk := NewTracker(Chat)
	for in, want := range map[string]string{
		`{"usage":{"total_tokens":1}}`:                         `{"choices":[],"usage":{"total_tokens":1}}`,
		`{"choices":null,"usage":{"total_tokens":1},"id":"x"}`: `{"choices":[],"usage":{"total_tokens":1},"id":"x"}`,
		`{"id":"x","choices":{},"usage":{},"error":null}`:      `{"choices":[],"id":"x","usage":{}}`,
		`{"choices":[],"usage":{}}`:                            `{"choices":[],"usage":{}}`,
	} {
		ev, err := NewEventReader(strings.NewReader("data: "+in+"\n\n"), 0).Next()
		if err != nil {
			t.Fatal(err)
		}
		if got := string(AppendEvent(nil, ev, chunk.Observe(ev))); got != "data: "+want+"\n\n" {
			t.Errorf("%s: %q", in, got)
		}
	}
	for _, d := range []Dialect{Chat, Responses} {
		tracker := NewTracker(d)
		ev, err := NewEventReader(strings.NewReader("data: "+stop+"\n\n"), 0).Next()
		if err != nil || tracker.Observe(ev).Has(MarkUnnamed) {
			t.Errorf("%v: an event gets a name", d)
		}
	}
}
