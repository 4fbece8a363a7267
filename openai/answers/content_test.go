package answers

import (
	"encoding/json"
	"strings"
	"testing"

	"tierway/openai"
)

// chunkOf returns a chunk of a chat as vLLM writes it, with the members of its delta.
func chunkOf(delta string) openai.Event {
	return openai.Event{Data: []byte(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":17,"model":"m",` +
		`"choices":[{"index":0,"delta":{` + delta + `},"logprobs":null,"finish_reason":null,"token_ids":null}]}`)}
}

// TestRecordedContentIsThatOfAParser: a recorder reads chunks as encoding/json does, and keeps nothing of an answer
// that clients may read in different ways.
func TestRecordedContentIsThatOfAParser(t *testing.T) {
	const end = `{"model":"m","system_fingerprint":"fp","choices":[{"index":0,"delta":{},"finish_reason":"stop",` +
		`"stop_reason":"#"}],"usage":{"prompt_tokens":9,"completion_tokens":4}}`
	for _, c := range []struct {
		name, data string
		text       string // "" if why is not
		why        Reason
	}{
		{"plain", `{"choices":[{"index":0,"delta":{"content":"a"}}]}`, "a", ""},
		{"escapes", `{"choices":[{"index":0,"delta":{"content":"\"\\\n\u00e4\ud83c\udf0d"}}]}`, "\"\\\nä🌍", ""},
		{"unpaired surrogate", `{"choices":[{"index":0,"delta":{"content":"\ud83c"}}]}`, "\ufffd", ""},
		{"escaped name", `{"choices":[{"index":0,"d\u0065lta":{"cont\u0065nt":"a"}}]}`, "a", ""},
		{"white space", "{ \"choices\" : [ {\t\"index\" : 0 , \"delta\" : { \"content\" : \"a\" } } ] } \n", "a", ""},
		{"the last of two members", `{"choices":[{"index":0,"delta":{"content":"b","content":"a"}}]}`, "a", ""},
		{"the last of two lists", `{"choices":[{"index":0,"delta":{"content":"b"}}],` +
			`"choices":[{"index":0,"delta":{"content":"a"}}]}`, "a", ""},
		{"null", `{"choices":[{"index":0,"delta":{"content":null,"tool_calls":[]}}]}`, "", MoreContent},
		{"another choice", `{"choices":[{"index":1,"delta":{"content":"a"}}]}`, "", Choices},
		{"tool calls", `{"choices":[{"index":0,"delta":{"content":"a","tool_calls":[{"index":0}]}}]}`, "", MoreContent},
		{"parts", `{"choices":[{"index":0,"delta":{"content":[{"type":"text","text":"a"}]}}]}`, "", MoreContent},
		{"log probabilities", `{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[]}}]}`, "", Logprobs},
		{"cut", `{"choices":[{"index":0,"delta":{"content":"a"}}]`, "", MoreContent},
		{"more behind it", `{"choices":[{"index":0,"delta":{"content":"a"}}]} {}`, "", MoreContent},
		{"no number", `{"choices":[{"index":0,"delta":{"content":"a"}}],"timing":NaN}`, "", MoreContent},
		{"no number below", `{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":Infinity}}`, "",
			MoreContent},
		{"many members", `{"choices":[{"index":0,"delta":{"content":"a"}}]` + strings.Repeat(`,"x":1`, 2) +
			manyMembers(maxFields) + `}`, "", MoreContent},
	} {
		r := NewRecorder(openai.Chat)
		for _, data := range []string{c.data, end} {
			r.AddEvent(openai.Event{Data: []byte(data)})
		}
		got, why := r.Content(0, 0)
		if why != c.why {
			t.Errorf("%s: %q instead of %q", c.name, why, c.why)
		}
		if why != "" || got == nil {
			continue
		}
		if got.Text != c.text || got.Model != "m" || got.Finish != "stop" || got.Choice != `,"stop_reason":"#"` ||
			got.Top != `,"system_fingerprint":"fp"` || got.Usage != `{"completion_tokens":4,"prompt_tokens":9}` {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// manyMembers returns n members.
func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`,"x` + strings.Repeat("y", i) + `":1`)
	}
	return b.String()
}

// FuzzRecordedText compares the text with that of encoding/json.
func FuzzRecordedText(f *testing.F) {
	for _, text := range []string{"", "a", "\"\\/\b\f\n\r\t", "ä🌍", "\u2028<>&", "\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := json.Marshal(text)
		if err != nil {
			t.Skip()
		}
		var want string
		if err := json.Unmarshal(v, &want); err != nil {
			t.Fatal(err)
		}
		r := NewRecorder(openai.Chat)
		r.AddEvent(chunkOf(`"content":` + string(v)))
		if got := r.text.String(); got != want || r.why != "" {
			t.Errorf("%q instead of %q, %q", got, want, r.why)
		}
	})
}

// TestRecordingAnEventAllocatesLittle: it happens before the client gets the event.
func TestRecordingAnEventAllocatesLittle(t *testing.T) {
	r, ev := NewRecorder(openai.Chat), chunkOf(`"content":" word"`)
	const most = 3 // the choices, the text, and a share of the recorded text
	if n := testing.AllocsPerRun(1000, func() { r.AddEvent(ev) }); n > most {
		t.Errorf("%v allocations instead of %d", n, most)
	}
}

// BenchmarkRecordEvent records the events of streams of 1,000 tokens.
func BenchmarkRecordEvent(b *testing.B) {
	r, ev, n := NewRecorder(openai.Chat), chunkOf(`"content":" word"`), 0
	b.ReportAllocs()
	for b.Loop() {
		if n++; n%1000 == 0 {
			r = NewRecorder(openai.Chat)
		}
		r.AddEvent(ev)
	}
}
