package tokenizer

import (
	"slices"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Tokenizer tokenizes text. It is immutable and safe for concurrent use.
type Tokenizer struct {
	bytes  [256]uint32 // the token of each byte
	merges map[uint64]merge
	pieces map[string]uint32 // tokens by their bytes

	splitters []splitter // applied one after the other
	whole     bool       // a piece that is a token is not merged (ignore_merges)
	composed  bool       // text is normalized to NFC first

	added         [256][]addedToken // by first byte, longest first
	before, after []uint32          // tokens around a prompt

	hash string

	mergers sync.Pool
}

// addedToken is a token that is found in text before the text is split.
type addedToken struct {
	text string
	id   uint32
}

// Hash returns the SHA-256, in hex, of the tokenizer.json.
func (t *Tokenizer) Hash() string { return t.hash }

// EncodePrompt appends the token ids of a prompt to dst. special adds the tokens that the
// tokenizer.json puts around each prompt. The text must be UTF-8.
func (t *Tokenizer) EncodePrompt(dst []uint32, text []byte, special bool) []uint32 {
	if special {
		dst = append(dst, t.before...)
	}
	dst = t.Encode(dst, text)
	if special {
		dst = append(dst, t.after...)
	}
	return dst
}

// Encode appends the token ids of a text to dst. Special tokens in the text, such as <|im_end|>,
// become their ids. The text must be UTF-8.
func (t *Tokenizer) Encode(dst []uint32, text []byte) []uint32 {
	m, ok := t.mergers.Get().(*merger)
	if !ok {
		m = new(merger)
	}
	defer t.mergers.Put(m)
	from := 0
	for i := 0; i < len(text); {
		token := t.addedAt(text[i:])
		if token == nil {
			i++
			continue
		}
		dst = t.encodeOrdinary(dst, m, text[from:i])
		dst = append(dst, token.id)
		i += len(token.text)
		from = i
	}
	return t.encodeOrdinary(dst, m, text[from:])
}

// addedAt returns the longest added token at the start of a text, or nil.
func (t *Tokenizer) addedAt(text []byte) *addedToken {
	candidates := t.added[text[0]]
	for i := range candidates {
		if c := &candidates[i]; len(c.text) <= len(text) && string(text[:len(c.text)]) == c.text {
			return c
		}
	}
	return nil
}

// encodeOrdinary appends the tokens of a text without added tokens.
func (t *Tokenizer) encodeOrdinary(dst []uint32, m *merger, text []byte) []uint32 {
	if t.composed && !norm.NFC.IsNormal(text) {
		text = norm.NFC.Bytes(text)
	}
	return t.split(dst, m, text, t.splitters)
}

// split cuts a text by the first splitter, and each of its pieces by the others.
func (t *Tokenizer) split(dst []uint32, m *merger, text []byte, splitters []splitter) []uint32 {
	if len(splitters) == 0 {
		if len(text) > 0 {
			dst = t.appendPiece(dst, m, text)
		}
		return dst
	}
	for len(text) > 0 {
		end := splitters[0](text)
		dst = t.split(dst, m, text[:end], splitters[1:])
		text = text[end:]
	}
	return dst
}

// addToken makes Encode find a text as one token.
func (t *Tokenizer) addToken(text string, id uint32) {
	list := append(t.added[text[0]], addedToken{text, id})
	slices.SortStableFunc(list, func(a, b addedToken) int { return len(b.text) - len(a.text) })
	t.added[text[0]] = list
}

// alphabet returns the characters that stand for bytes in the files of byte-level tokenizers: a printable
// byte stands for itself, and the others are the characters from U+0100 on.
func alphabet() (chars [256]rune) {
	next := rune(256)
	for b := range chars {
		switch {
		case '!' <= b && b <= '~', 0xa1 <= b && b <= 0xac, 0xae <= b && b <= 0xff:
			chars[b] = rune(b)
		default:
			chars[b] = next
			next++
		}
	}
	return chars
}

// byteLevel maps the characters of alphabet back to bytes.
type byteLevel map[rune]byte

func newByteLevel() byteLevel {
	l := make(byteLevel, 256)
	for b, c := range alphabet() {
		l[c] = byte(b)
	}
	return l
}

// decode returns the bytes of a written token. ok is false if it has other characters.
func (l byteLevel) decode(written string) (text string, ok bool) {
	b := make([]byte, 0, utf8.RuneCountInString(written))
	for _, c := range written {
		x, known := l[c]
		if !known {
			return "", false
		}
		b = append(b, x)
	}
	return string(b), true
}
