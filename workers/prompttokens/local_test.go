package prompttokens

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tierway/openai"
	"tierway/tokenizer"
)

var _ Encoder = (*tokenizer.Tokenizer)(nil)

// bytesEncoder makes a token of each byte, and begins prompts with 256.
type bytesEncoder struct{}

func (bytesEncoder) EncodePrompt(dst []uint32, text []byte, special bool) []uint32 {
	if special {
		dst = append(dst, 256)
	}
	for _, b := range text {
		dst = append(dst, uint32(b))
	}
	return dst
}

func TestALocalTokenizerNeedsNoEngineForTexts(t *testing.T) {
	w := &counting{Poster: &templateEngine{render: marked, tokens: words}}
	s := New(Config{LookupTimeout: time.Minute, Worker: func() Poster { return w }, Tokenizer: bytesEncoder{}})
	text := strings.Repeat("é\n\"x\" ", 50)
	for _, special := range []bool{true, false} {
		want := bytesEncoder{}.EncodePrompt(nil, []byte(text), special)
		q := query(t, openai.Completions, object{"model": "m", "prompt": text, "add_special_tokens": special})
		for range 2 {
			if p := lookup(t, s, q); p.Tokens != int64(len(want)) || !slices.Equal(p.Keys, keysOf(q, want)) {
				t.Errorf("%d tokens and %d keys, not %d tokens", p.Tokens, len(p.Keys), len(want))
			}
		}
	}
	if paths, _ := w.taken(); len(paths) > 0 {
		t.Error(paths)
	}
	chat := query(t, openai.Chat, object{"model": "m", "messages": []object{say("user", "hello")}})
	if p := lookup(t, s, chat); p.Tokens == 0 {
		t.Error("chats are rendered by engines")
	}
}
