package openai

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// payloads are seeds that engines write.
var payloads = []string{
	`{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"logprobs":null,"finish_reason":null}],"usage":null}`,
	`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,"prompt_tokens_details":{"cached_tokens":4}}}`,
	`{"choices":[{"index":70,"text":"x","finish_reason":"stop"}],"error":null,"timings":{"cache_n":5,"prompt_n":3,"predicted_n":2}}`,
	`{"type":"response.completed","response":{"id":"r","status":"completed","usage":{"input_tokens":12,"output_tokens":3}}}`,
	`{"type":"message_start","message":{"usage":{"input_tokens":10,"cache_read_input_tokens":30}}}`,
	`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15}}`,
	`{"object":"error","message":"m","type":"BadRequestError","param":null,"code":400}`,
	`{"type":"error","error":{"type":"overloaded_error","message":"m\u00e9"}}`,
	`{"data":[{"embedding":[` + strings.Repeat("0.5,", 40) + `1]}],"detail":[{"msg":"m"}]}`,
	`[DONE]`, `{"a":{"b":[{},[],"\\\"",-1e5,true]}}`, `{"`, `[[[[`,
}

func FuzzObserve(f *testing.F) {
	for i, p := range payloads {
		f.Add(uint8(i), []byte(p), []byte(payloads[(i+1)%len(payloads)]))
	}
	f.Fuzz(func(t *testing.T, d uint8, first, second []byte) {
		tr := NewTracker(Dialect(d % 12))
		for _, data := range [][]byte{first, second, []byte("[DONE]")} {
			before := bytes.Clone(data)
			ev := Event{Raw: data, Data: data}
			m := tr.Observe(ev)
			if !bytes.Equal(data, before) {
				t.Fatal("Observe changed the event")
			}
			if m.Has(MarkUsageOnly | MarkContent) {
				t.Errorf("%q has MarkUsageOnly and content", data)
			}
			if m.Has(MarkEnd) && !tr.Proven() && !m.Has(MarkError) && !tr.failed {
				t.Errorf("%q has MarkEnd, but the stream is not proven", data)
			}
			if m.Has(MarkMalformed) && json.Valid(data) && data[bytes.IndexFunc(data, notSpace)] == '{' && !nestsTooDeep(data) {
				t.Errorf("%q is valid and has MarkMalformed", data)
			}
			if m.Has(MarkNullError) {
				stripped := AppendEvent(nil, ev, MarkNullError)
				again, err := NewEventReader(bytes.NewReader(stripped), 0).Next()
				if err != nil {
					t.Fatalf("%q became %q: %v", data, stripped, err)
				}
				if fresh := NewTracker(Dialect(d % 12)); fresh.Observe(again).Has(MarkNullError) {
					t.Errorf("%q still has its error: %q", data, stripped)
				}
				if json.Valid(data) && !json.Valid(again.Data) {
					t.Errorf("%q became invalid: %q", data, stripped)
				}
			}
		}
		if tr.Proven() && tr.Finished() {
			t.Error("both Proven and Finished")
		}
		if u, ok := tr.Usage(); u.Prompt < 0 || u.Output < 0 || u.Cached < 0 || !ok && u != (Usage{}) {
			t.Errorf("usage %+v, %v", u, ok)
		}
	})
}

func FuzzReadAnswer(f *testing.F) {
	for i, p := range payloads {
		f.Add(uint8(i), []byte(p))
	}
	f.Fuzz(func(t *testing.T, d uint8, body []byte) {
		a := ReadAnswer(Dialect(d%12), body)
		isObject := json.Valid(body) && body[bytes.IndexFunc(body, notSpace)] == '{'
		if isObject && !a.Valid && !nestsTooDeep(body) {
			t.Errorf("%q is valid, but Valid is false", body)
		}
		if a.Err != nil && (a.Err.Status < 400 || a.Err.Status > 599) {
			t.Errorf("%q has status %d", body, a.Err.Status)
		}
		if e, ok := ErrorOf(body); ok && (e.Status < 400 || e.Status > 599) {
			t.Errorf("%q has status %d", body, e.Status)
		}
		if isObject && !nestsTooDeep(body) {
			if out := fieldsWithout(nil, body, "error", true); !json.Valid(out) {
				t.Errorf("%q without its error is %q", body, out)
			}
		}
	})
}

// notSpace reports whether r is not white space in JSON.
func notSpace(r rune) bool { return !strings.ContainsRune(" \t\r\n", r) }

// nestsTooDeep reports whether b may be nested deeper than readerDepth.
func nestsTooDeep(b []byte) bool {
	return bytes.Count(b, []byte("["))+bytes.Count(b, []byte("{")) > readerDepth
}
