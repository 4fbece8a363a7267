package engines

import (
	"strings"
	"unicode/utf8"

	"tierway/routing"
)

// rng is a small random number generator with a seed.
type rng struct{ state uint64 }

// roll returns a number from 0 to n-1.
func (d *rng) roll(n int) int {
	d.state++
	return int(routing.Draw(d.state) % uint64(n))
}

// tokenBytes is the length of a token: English text has about four bytes per token.
const tokenBytes = 4

// pieceEnd returns where the first token of s ends, never inside a character.
func pieceEnd(s string) int {
	end := tokenBytes
	for end < len(s) && end < 2*tokenBytes && !utf8.RuneStart(s[end]) {
		end++
	}
	return min(end, len(s))
}

// pieces splits a text into its tokens.
func pieces(s string) []string {
	ps := make([]string, 0, len(s)/tokenBytes+1)
	for s != "" {
		end := pieceEnd(s)
		ps = append(ps, s[:end])
		s = s[end:]
	}
	return ps
}

// tokenID is the id of a token: the FNV-1a hash of its text, folded to 16 bits, plus 1<<16. With fewer
// than 1<<17 tokens the vocabulary is as large as those of real models. Ids below 1<<16 are markers.
func tokenID(piece string) uint32 {
	h := uint32(2166136261)
	for i := range len(piece) {
		h = (h ^ uint32(piece[i])) * 16777619
	}
	return (h>>16^h)&(1<<16-1) | 1<<16
}

// appendIDs appends the tokens of a text to ids.
func appendIDs(ids []uint32, s string) []uint32 {
	for s != "" {
		end := pieceEnd(s)
		ids = append(ids, tokenID(s[:end]))
		s = s[end:]
	}
	return ids
}

// hashIDs returns a hash of a whole prompt, or of the bytes of a name.
func hashIDs[ID byte | uint32](seed uint64, ids []ID) uint64 {
	for _, id := range ids {
		seed = routing.Draw(seed ^ uint64(id))
	}
	return seed
}

// words are the vocabulary of answers; immutable.
var words = [...]string{
	"amber", "answer", "autumn", "bridge", "bright", "candle", "carries", "circle", "clear", "copper",
	"distant", "evening", "every", "falls", "finds", "garden", "gentle", "glass", "harbour", "holds",
	"island", "keeps", "lantern", "leaves", "letter", "light", "little", "marble", "meadow", "morning",
	"moves", "narrow", "never", "north", "often", "open", "paper", "patient", "quiet", "reaches",
	"remains", "river", "road", "round", "sails", "season", "silver", "slowly", "small", "stone",
	"story", "summer", "table", "the", "through", "towards", "turns", "under", "valley", "waits",
	"warm", "water", "window", "winter",
}

// prose generates sentences of exactly n tokens.
func prose(seed uint64, n int) string {
	var b strings.Builder
	b.Grow(n*tokenBytes + 16)
	d := rng{seed}
	for b.Len() < n*tokenBytes {
		length := 5 + d.roll(8)
		for i := range length {
			word := words[d.roll(len(words))]
			if i == 0 {
				if b.Len() > 0 {
					b.WriteByte(' ')
				}
				b.WriteByte(word[0] - 'a' + 'A')
				b.WriteString(word[1:])
				continue
			}
			b.WriteByte(' ')
			b.WriteString(word)
		}
		b.WriteByte('.')
	}
	return b.String()[:n*tokenBytes] // the words are ASCII: a token is exactly four bytes
}
