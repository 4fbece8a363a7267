package prompt

import (
	"tierway/openai"
	"tierway/openai/tokens"
)

// CountTokens counts the tokens that the model reads: each text separately, and token IDs as
// they are. ok is false for a prompt with media, a prompt longer than tokens.MaxBytes, or a
// text that Vocabulary.Count rejects. CountTokens takes up to 1 µs per byte.
func CountTokens(r *openai.Request, v *tokens.Vocabulary) (n int64, ok bool) {
	if r.Media || r.PromptBytes > tokens.MaxBytes {
		return 0, false
	}
	ok = true
	ids := r.EachText(func(text []byte) {
		if !ok {
			return
		}
		var count int
		count, ok = v.Count(text)
		n += int64(count)
	})
	return n + ids, ok
}
