// Package prompt reads the prompt of a request again: the chain of blocks by which
// caches are found, excerpts for classification, and exact token counts.
package prompt

import (
	"tierway/openai"
	"tierway/openai/tokens"
)

// CountTokens counts the tokens of what the model reads of the request: every text
// by itself, and token ids as they are. ok is false for a prompt that is more than
// text, that is longer than tokens.MaxBytes, or of which a text is not counted
// (Vocabulary.Count). It takes up to a microsecond a byte.
func CountTokens(r *openai.Request, v *tokens.Vocabulary) (n int64, ok bool) {
	if r.Media || r.PromptBytes > tokens.MaxBytes {
		return 0, false
	}
	ok = true
	ids := r.EachText(func(text []byte) {
		if !ok {
			return
		}
		var some int
		some, ok = v.Count(text)
		n += int64(some)
	})
	return n + ids, ok
}
