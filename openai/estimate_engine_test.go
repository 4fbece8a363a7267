package openai_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"tierway/engines"
	"tierway/openai"
)

// trackEvents returns a tracker after at most limit events of the stream.
func trackEvents(d openai.Dialect, stream string, limit int) openai.Tracker {
	t := openai.NewTracker(d)
	r := openai.NewEventReader(strings.NewReader(stream), 0)
	for range limit {
		ev, err := r.Next()
		if len(ev.Raw) > 0 {
			t.Observe(ev)
		}
		if err != nil {
			break
		}
	}
	return t
}

// A stream is cut before its usage. The estimate is the number of tokens that the engine wrote. It
// includes the opening of each tool call, which this engine does not count.
func TestEstimatedOutputMatchesTheEnginesCount(t *testing.T) {
	const tools = `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}],"tool_choice":"required"`
	const flat = `,"tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}],"tool_choice":"required"`
	const anthropic = `,"tools":[{"name":"f","input_schema":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}],"tool_choice":{"type":"any"}`
	const messages = `"messages":[{"role":"user","content":"Tell me a story."}]`
	tests := []struct {
		name, path, body string
		dialect          openai.Dialect
		openings         int64
	}{
		{"chat", "/v1/chat/completions", messages + `,"stream_options":{"include_usage":true}`, openai.Chat, 0},
		{"three choices", "/v1/chat/completions", messages + `,"n":3,"stream_options":{"include_usage":true}`, openai.Chat,
			0},
		{"chat with a tool", "/v1/chat/completions", messages + `,"stream_options":{"include_usage":true}` + tools,
			openai.Chat, 1},
		{"completions", "/v1/completions",
			`"prompt":"Tell me a story.","max_tokens":50,"stream_options":{"include_usage":true}`, openai.Completions, 0},
		{"responses", "/v1/responses", `"input":"Tell me a story."`, openai.Responses, 0},
		{"responses with a tool", "/v1/responses", `"input":"Tell me a story."` + flat, openai.Responses, 1},
		{"messages", "/v1/messages", messages + `,"max_tokens":200`, openai.Messages, 0},
		{"messages with a tool", "/v1/messages", messages + `,"max_tokens":200` + anthropic, openai.Messages, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("POST", tt.path, strings.NewReader(`{"model":"m","stream":true,`+tt.body+`}`))
			r.Header.Set("Content-Type", "application/json")
			engines.New(engines.Config{Model: "m"}).ServeHTTP(w, r)
			stream := w.Body.String()
			whole := trackEvents(tt.dialect, stream, 1<<20)
			u, ok := whole.Usage()
			if !ok || u.Output < 2 {
				t.Fatalf("status %d, usage %+v: %s", w.Code, u, stream)
			}
			if got := whole.EstimatedOutput(); got != u.Output+tt.openings {
				t.Errorf("%d tokens estimated of %d", got, u.Output)
			}
			last := int64(0)
			for n := range whole.Events() {
				cut := trackEvents(tt.dialect, stream, n)
				got := cut.EstimatedOutput()
				if got < last || got > last+1 {
					t.Errorf("%d tokens after %d events, %d after one event less", got, n, last)
				}
				last = got
			}
		})
	}
}
