package openai

import "testing"

// TestTheTokensOfARequestAreThoseOfItsTexts: what the model reads is counted,
// with its escapes resolved, and nothing else is.
func TestTheTokensOfARequestAreThoseOfItsTexts(t *testing.T) {
	v, err := LoadVocabulary("cl100k_base")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		d     Dialect
		body  string
		texts []string
		ids   int64
	}{
		{"a chat", Chat, `{"model":"no text","messages":[{"role":"system","content":"Be \"kind\".\n"},{"role":"user","content":[{"type":"text","text":"Gr\u00fc\u00dfe, 世界"},{"type":"image_url","image_url":{"url":"data:long"}}]}]}`,
			[]string{"Be \"kind\".\n", "Grüße, 世界"}, 0},
		{"token ids", Completions, `{"model":"m","prompt":[1,2,3]}`, nil, 3},
		{"messages", Messages, `{"model":"m","max_tokens":9,"system":"Short.","messages":[{"role":"user","content":"Hello there"}]}`, []string{"Short.", "Hello there"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Parse(c.d, []byte(c.body), Limits{})
			if err != nil {
				t.Fatal(err)
			}
			want := c.ids
			for _, text := range c.texts {
				want += int64(v.Count([]byte(text)))
			}
			if got := r.CountTokens(v); got != want {
				t.Errorf("%d tokens, want %d", got, want)
			}
		})
	}
}
