// Package prompt reads the prompt of a parsed request for routing: the chain of blocks that
// identifies cached prefixes, the excerpts that the classifier reads, and exact token counts.
package prompt

import (
	"tierway/openai"
	"tierway/openai/tokens"
)

// CountTokens counts the tokens that the model reads: each text separately, and token IDs as
// they are. ok is false for a prompt with media, a prompt longer than tokens.MaxBytes, or a
// text that Vocabulary.Count does not count. It takes up to a microsecond per byte.
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
