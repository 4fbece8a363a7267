// Package tokens counts the tokens of text exactly, with the vocabularies of
// github.com/pkoukk/tiktoken-go-loader. The binary contains them; nothing is downloaded.
//
// [NameFor] returns the encoding of a model, [Load] loads it once, and [Vocabulary.Count] counts
// texts with it:
//
//	v, err := tokens.Load(tokens.NameFor("gpt-4o"))
//	n, ok := v.Count([]byte("Hello, world")) // 3 tokens
//
// Counting is bounded: a text longer than [MaxBytes], or with a run of more than 512 bytes, is not
// counted, and ok is false. Callers then use an estimate, such as openai.Request.PromptTokens.
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
	// MaxBytes is the longest text that is counted. It takes 12 to 29 ms for ordinary text and 33 ms
	// for the worst (BenchmarkCount). 64 KB of prose are 16,000 tokens, the highest default
	// threshold, so prompts near it can be counted. Callers define "near"; see package tiers.
	MaxBytes = 64 << 10

	// maxRun is the longest run of letters, white space or symbols in a counted text, in bytes. The
	// library takes quadratic time for a run: 5 s for 64 KB of one letter. With this limit, the worst
	// text takes about as long as ordinary text. Prose, code and base64 have shorter runs; a line of
	// Chinese without punctuation has about 200 bytes.
	maxRun = 512
)

// The patterns with which the encodings split text, equal to the library's. Its own constructor,
// tiktoken.GetEncoding, uses a process-wide loader that downloads vocabularies.
const (
	contraction   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	cl100kPattern = contraction + `|[^\r\n\p{L}\p{N}]?\p{L}+|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	o200kPattern = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+` + contraction + `?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*` + contraction + `?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// Vocabulary counts the tokens of text under one encoding. It is immutable and safe for
// concurrent use.
type Vocabulary struct{ encoding *tiktoken.Tiktoken }

// Load returns the encoding called name, Cl100kBase or O200kBase. It opens no files and no
// connections. Each call takes some hundred milliseconds, and the result uses 11 to 23 MB: load
// an encoding once, and not while a request waits.
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

// NameFor returns the name of the encoding that fits a model best. The name's case does not
// matter, and it may have an owner before a slash. The encoding is exact for OpenAI's models
// and gpt-oss. Other models have their own vocabularies, for which it is a close estimate:
// cl100k_base splits text like Llama 3 and Qwen.
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

// Count returns the tokens of a text. ok is false if counting would take too long: more than
// MaxBytes, or a run of more than 512 bytes. All text is ordinary: a special token such as
// <|endoftext|> counts as its characters. A byte that is not UTF-8 counts as U+FFFD.
func (v *Vocabulary) Count(text []byte) (n int, ok bool) {
	if len(text) > MaxBytes || !hasOnlyShortRuns(text) {
		return 0, false
	}
	return len(v.encoding.EncodeOrdinary(string(text))), true
}

// hasOnlyShortRuns reports whether no run of the text is longer than maxRun. A piece of either
// pattern lies within one run, except for one character before it and line breaks after it.
func hasOnlyShortRuns(text []byte) bool {
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

// kind is a class of characters in the patterns. Numbers are split after three digits.
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
