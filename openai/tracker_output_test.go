package openai

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"
)

func TestEstimatedOutputOfEveryKindOfDelta(t *testing.T) {
	delta := func(members string) string { return `{"choices":[{"index":0,"delta":{` + members + `}}]}` }
	long := strings.Repeat("twelve bytes", 5) // ten tokens at least
	tests := []struct {
		name    string
		dialect Dialect
		stream  string
		want    int64
	}{
		{"nothing yet", Chat, "", 0},
		{"a role alone", Chat, unnamedEvents(delta(`"role":"assistant","content":""`)), 0},
		{"one token an event", Chat, unnamedEvents(delta(`"content":"a"`), delta(`"content":" responsibility"`),
			delta(`"content":"."`)), 3},
		{"several tokens an event", Chat, unnamedEvents(delta(`"content":"` + long + `"`)), 10},
		{"reasoning", Chat, unnamedEvents(delta(`"reasoning_content":"` + long + `"`)), 10},
		{"reasoning under two names", Chat,
			unnamedEvents(delta(`"reasoning":"` + long + `","reasoning_content":"` + long + `"`)), 10},
		{"reasoning and content", Chat, unnamedEvents(delta(`"reasoning":"` + long + `","content":"` + long + `"`)), 20},
		{"a refusal", Chat, unnamedEvents(delta(`"refusal":"` + long + `"`)), 10},
		{"the opening of a call", Chat,
			unnamedEvents(
				delta(
					`"tool_calls":[{"index":0,"id":"call_0123456789abcdef0123456789","type":"function","function":{"name":"f","arguments":""}}]`)), 1},
		{"arguments", Chat,
			unnamedEvents(delta(`"tool_calls":[{"index":0,"function":{"arguments":"` + long +
				`"}},{"index":1,"function":{"arguments":"` +
				long + `"}}]`)), 20},
		{"a custom tool", Chat, unnamedEvents(delta(`"tool_calls":[{"custom":{"input":"` + long + `"}}]`)), 10},
		{"a function call", Chat, unnamedEvents(delta(`"function_call":{"arguments":"` + long + `"}`)), 10},
		{"a token within a character", Chat,
			unnamedEvents(
				`{"choices":[{"index":0,"delta":{"content":""},"logprobs":{"content":[{"token":"x"}]},"token_ids":[5]}]}`), 1},
		{"audio", Chat, unnamedEvents(delta(`"audio":{"data":"` + strings.Repeat("A", 900) + `"}`)), 1},
		{"two choices in an event", Chat,
			unnamedEvents(`{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}`), 2},
		{"finish and usage", Chat,
			unnamedEvents(delta(`"content":"a"`), `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
				`{"choices":[],"usage":null}`, `[DONE]`), 1},
		{"completions", Completions, unnamedEvents(`{"choices":[{"index":0,"text":"a"}]}`, `{"choices":[{"index":0,"text":"`+
			long+
			`"}]}`, `{"choices":[{"index":0,"text":""}]}`), 10},
		{"responses", Responses,
			namedEvents(`{"type":"response.created","response":{"id":"r"}}`,
				`{"type":"response.output_item.added","item":{"type":"message"}}`,
				`{"type":"response.reasoning_text.delta","delta":"a"}`,
				`{"type":"response.reasoning_summary_text.delta","delta":"b"}`,
				`{"type":"response.output_text.delta","delta":"`+long+`"}`, `{"type":"response.output_text.done","text":"`+long+
					long+
					`"}`,
				`{"type":"response.output_item.done","item":{"type":"message","content":"`+long+long+`"}}`), 10},
		{"a call in responses", Responses,
			namedEvents(`{"type":"response.output_item.added","item":{"type":"function_call","name":"f"}}`,
				`{"type":"response.function_call_arguments.delta","delta":"{"}`,
				`{"type":"response.function_call_arguments.delta","delta":"}"}`,
				`{"type":"response.function_call_arguments.done","arguments":"{}"}`), 3},
		{"audio in responses", Responses,
			namedEvents(`{"type":"response.output_audio.delta","delta":"` + strings.Repeat("A", 900) +
				`"}`), 1},
		{"messages", Messages,
			namedEvents(`{"type":"message_start","message":{"usage":{"input_tokens":5,"output_tokens":1}}}`,
				`{"type":"content_block_start","content_block":{"type":"thinking","thinking":""}}`,
				`{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"`+long+`"}}`,
				`{"type":"content_block_delta","delta":{"type":"signature_delta","signature":"`+long+`"}}`,
				`{"type":"content_block_delta","delta":{"type":"text_delta","text":"`+long+`"}}`, `{"type":"ping"}`), 20},
		{"a call in messages", Messages,
			namedEvents(`{"type":"content_block_start","content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}`,
				`{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":""}}`,
				`{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{}"}}`), 2},
		{"an error", Chat, unnamedEvents(`{"error":{"message":"` + long + `"}}`), 0},
		{"another dialect", Other, unnamedEvents(`{"a":1}`, `{"a":2}`), 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tracker := NewTracker(tt.dialect)
			r := NewEventReader(strings.NewReader(tt.stream), 0)
			for {
				ev, err := r.Next()
				if len(ev.Raw) > 0 {
					tracker.Observe(ev)
				}
				if err != nil {
					break
				}
			}
			if got := tracker.EstimatedOutput(); got != tt.want {
				t.Errorf("%d tokens, want %d", got, tt.want)
			}
		})
	}
}

func TestEscapesCountAsTheirCharacters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text")
		want := 0
		for i := range len(s) {
			if want += wideParts; s[i] < 0x80 {
				want += asciiParts - wideParts
			}
		}
		escaped := `"`
		for _, r := range s {
			b, _ := json.Marshal(string(r))
			form := string(b[1 : len(b)-1])
			if rapid.Bool().Draw(t, "escape") {
				form = ""
				for _, unit := range utf16.Encode([]rune{r}) {
					form += fmt.Sprintf(`\u%04x`, unit)
				}
			}
			escaped += form
		}
		if got := textParts([]byte(escaped + `"`)); got != want {
			t.Fatalf("%s has %d parts, want %d", escaped, got, want)
		}
	})
	for _, odd := range []string{"", `"`, "null", `["text"]`, `{"a":"b"}`} {
		if got := textParts([]byte(odd)); got != 0 {
			t.Errorf("%s has %d parts", odd, got)
		}
	}
	if got := textParts([]byte(`"\u00"`)); got < 0 {
		t.Errorf("an incomplete escape has %d parts", got)
	}
}
