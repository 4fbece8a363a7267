package prompt

import (
	"strings"
	"testing"

	"tierway/openai"
	"tierway/openai/tokens"
)

// mustParse parses a valid body.
func mustParse(t testing.TB, d openai.Dialect, body string) *openai.Request {
	t.Helper()
	r, err := openai.Parse(d, []byte(body))
	if err != nil {
		t.Fatalf("%s %.200s: %v", d, body, err)
	}
	return r
}

// Only text that the model reads counts, with decoded escapes.
func TestTokensOfARequestAreThoseOfItsTexts(t *testing.T) {
	v, err := tokens.Load(tokens.Cl100kBase)
	if err != nil {
		t.Fatal(err)
	}
	chat := func(content string) string {
		return `{"model":"no text","messages":[{"role":"system","content":"Be \"kind\".\n"},{"role":"user","content":` +
			content + `}]}`
	}
	for _, c := range []struct {
		name  string
		d     openai.Dialect
		body  string
		texts []string // nil: not counted
		ids   int64
	}{
		{"chat", openai.Chat, chat(`[{"type":"text","text":"Gr\u00fc\u00dfe, 世界"},{"type":"thinking"}]`),
			[]string{"Be \"kind\".\n", "Grüße, 世界"}, 0},
		{"image", openai.Chat, chat(`[{"type":"image_url","image_url":{"url":"data:long"}}]`), nil, 0},
		{"long text", openai.Chat, chat(`"` + strings.Repeat("word ", tokens.MaxBytes/5) + `"`), nil, 0},
		{"long word", openai.Chat, chat(`"` + strings.Repeat("a", 4096) + `"`), nil, 0},
		{"token ids", openai.Completions, `{"model":"m","prompt":[1,2,3]}`, []string{}, 3},
		{"messages", openai.Messages,
			`{"model":"m","max_tokens":9,"system":"Short.","messages":[{"role":"user","content":"Hello there"}]}`,
			[]string{"Short.", "Hello there"}, 0},
	} {
		want := c.ids
		for _, text := range c.texts {
			n, _ := v.Count([]byte(text))
			want += int64(n)
		}
		got, ok := CountTokens(mustParse(t, c.d, c.body), v)
		if ok != (c.texts != nil) || ok && got != want {
			t.Errorf("%s: %d tokens, %v, want %d", c.name, got, ok, want)
		}
	}
}
