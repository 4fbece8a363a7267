package pairing

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"tierway/openai"
)

// FuzzVerdict: an accepted output is what encoding/json reads, and has two booleans only.
func FuzzVerdict(f *testing.F) {
	for _, output := range []string{`{"A":true,"B":false}`, `{"B":true,"A":true} `, `{"A":true,"A":true}`, `{"A":true`, `{}`,
		`{"A":[true],"B":true}`, `x {"A":true,"B":false} y`} {
		f.Add(output)
	}
	f.Fuzz(func(t *testing.T, output string) {
		if v, err := ReadVerdict([]byte(output), judged()); err == nil {
			var same map[string]bool
			if json.Unmarshal([]byte(output), &same) != nil || len(same) != 2 || same["A"] != v[0] || same["B"] != v[1] {
				t.Errorf("%q: %v", output, v)
			}
		}
		a, errA := ReadJudgement(output, false)
		b, errB := ReadJudgement(output, true)
		if (errA == nil) != (errB == nil) || errA == nil && a != (Verdict{b[1], b[0]}) {
			t.Errorf("%q: %v and %v", output, a, b)
		}
	})
}

// FuzzBodies: a body without its stream keeps its other fields, and the text of an answer is UTF-8.
func FuzzBodies(f *testing.F) {
	f.Add(`{"model":"a","stream":true,"stream_options":{}}`)
	f.Add(`{"choices":[{"message":{"content":"x"}}]}`)
	f.Add(`{"output":[{"type":"message","content":[{"type":"output_text","text":"x"}]}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		var before, after map[string]any
		changed, err := Unstreamed([]byte(body))
		if err == nil {
			if json.Unmarshal([]byte(body), &before) != nil || json.Unmarshal(changed, &after) != nil {
				t.Fatalf("%q becomes %q", body, changed)
			}
			delete(before, "stream")
			delete(before, "stream_options")
			if len(before) != len(after) {
				t.Errorf("%q becomes %q", body, changed)
			}
		}
		for _, d := range []openai.Dialect{openai.Chat, openai.Completions, openai.Messages, openai.Responses} {
			if text, _ := Text(d, []byte(body)); !utf8.ValidString(text) {
				t.Errorf("%q", text)
			}
		}
	})
}
