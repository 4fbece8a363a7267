// Package tokens counts the tokens of text exactly. The vocabularies are those of
// github.com/pkoukk/tiktoken-go-loader, which are part of the binary: nothing is
// downloaded.
package tokens

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pkoukk/tiktoken-go"
	loader "github.com/pkoukk/tiktoken-go-loader"
)

// The encodings that can be loaded.
const (
	Cl100kBase = tiktoken.MODEL_CL100K_BASE
	O200kBase  = tiktoken.MODEL_O200K_BASE
)

const (
	// MaxBytes is the longest text that is counted: 12 to 29 ms of ordinary text, 33 ms
	// of the worst (BenchmarkCount). 64 KB of prose are 16,000 tokens, the highest of the
	// default thresholds, so that a prompt near it can be counted. Callers decide how
	// near is near enough: tiers counts no prompt of 48 KB there.
	MaxBytes = 64 << 10

	// maxRun is the longest run of letters, of white space or of symbols in a text
	// that is counted, in bytes. The library merges the bytes of a run in the square
	// of its length: 64 KB of one letter take 5 s. With this bound the worst text
	// takes about as long as ordinary text. Prose, code and base64 have shorter runs;
	// a line of Chinese without punctuation has some 200 bytes.
	maxRun = 512
)

// The patterns by which the encodings split text, as the library has them. The library's
// own constructor, tiktoken.GetEncoding, reads vocabularies by a process-wide loader that
// downloads them.
const (
	contraction   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	cl100kPattern = contraction + `|[^\r\n\p{L}\p{N}]?\p{L}+|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	o200kPattern = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+` + contraction + `?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*` + contraction + `?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// Vocabulary counts the tokens of text under one encoding. It never changes after
// loading; any number of goroutines may use it at once.
type Vocabulary struct{ encoding *tiktoken.Tiktoken }

// Load returns the encoding called name, Cl100kBase or O200kBase. It opens no file
// and no connection. Each call parses again, for some hundred milliseconds, and the
// result holds 11 to 23 MB: the caller loads an encoding once, and not while a
// request waits.
func Load(name string) (*Vocabulary, error) {
	pattern := map[string]string{Cl100kBase: cl100kPattern, O200kBase: o200kPattern}[name]
	if pattern == "" {
		return nil, fmt.Errorf("unknown vocabulary %q; use %s or %s", name, Cl100kBase, O200kBase)
	}
	ranks, err := loader.NewOfflineLoader().LoadTiktokenBpe(name + ".tiktoken")
	if err != nil {
		return nil, err
	}
	core, err := tiktoken.NewCoreBPE(ranks, nil, pattern)
	if err != nil {
		return nil, err
	}
	return &Vocabulary{tiktoken.NewTiktoken(core, nil, nil)}, nil
}

// NameFor returns the name of the encoding that fits a model best, by the model's
// name in any case, with or without its owner before a slash. It is exact for the
// models of OpenAI and for gpt-oss. Every other engine has a vocabulary of its own,
// of which the encoding is a near estimate: cl100k_base splits text as Llama 3 and
// Qwen do.
func NameFor(model string) string {
	name := strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
	name = strings.TrimPrefix(name, "ft:") // a fine-tuned model: ft:gpt-4o:owner::id
	for _, family := range []string{"gpt-oss", "gpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5"} {
		if strings.Contains(name, family) {
			return O200kBase
		}
	}
	for _, family := range []string{"o1", "o3", "o4"} {
		if rest, ok := strings.CutPrefix(name, family); ok && (rest == "" || rest[0] == '-' || rest[0] == ':') {
			return O200kBase
		}
	}
	return Cl100kBase
}

// Count returns how many tokens a text has; ok is false for a text that would cost
// too much: more than MaxBytes, or a run of more than 512 bytes without a split.
// All of the text is ordinary: a special token in it (<|endoftext|>) counts as its
// characters. A byte that is not UTF-8 counts as U+FFFD.
func (v *Vocabulary) Count(text []byte) (n int, ok bool) {
	if len(text) > MaxBytes || !splits(text) {
		return 0, false
	}
	return len(v.encoding.EncodeOrdinary(string(text))), true
}

// splits reports whether no run of the text is longer than maxRun. A run is at least
// as long as what either pattern takes as one piece, but for one character before it
// and line breaks behind it.
func splits(text []byte) bool {
	run, last := 0, number
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		kind := kindOf(r)
		switch {
		case kind == mark: // joins letters and symbols alike
		case last == symbol && (r == '\r' || r == '\n'): // o200k takes both in one piece
		case kind != last || kind == number:
			run, last = 0, kind
		}
		if run += size; run > maxRun {
			return false
		}
		i += size
	}
	return true
}

// kind is what the patterns distinguish of characters. Numbers are split after three.
type kind uint8

const (
	number kind = iota
	letter
	mark
	space
	symbol
)

func kindOf(r rune) kind {
	switch {
	case unicode.IsLetter(r):
		return letter
	case unicode.IsSpace(r):
		return space
	case unicode.IsNumber(r):
		return number
	case unicode.IsMark(r):
		return mark
	}
	return symbol
}
