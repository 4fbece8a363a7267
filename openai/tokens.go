package openai

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pkoukk/tiktoken-go-loader/assets"
)

// The encodings that are embedded and can be loaded.
const (
	Cl100kBase = "cl100k_base"
	O200kBase  = "o200k_base"
)

// Vocabulary counts the tokens of text under one byte-pair encoding, exactly.
// It never changes after loading: any number of goroutines may use it at once.
type Vocabulary struct {
	ranks rankTable
	cut   splitter
}

// LoadVocabulary returns the encoding called name, Cl100kBase or O200kBase,
// from what is embedded in the binary: it opens no file and no connection.
// Each call parses again, for some tens of milliseconds, and the result holds
// two to five megabytes: the caller loads an encoding once and keeps it.
func LoadVocabulary(name string) (*Vocabulary, error) {
	v := &Vocabulary{cut: splitter{classes: runeClasses()}}
	// How many tokens each has, its special ones not counted.
	var size int
	switch name {
	case Cl100kBase:
		size = 100256
	case O200kBase:
		size, v.cut.cased = 199998, true
	default:
		return nil, fmt.Errorf("loading the vocabulary %q: it is not embedded; use %s or %s", name, Cl100kBase, O200kBase)
	}
	if err := v.ranks.load(name, size); err != nil {
		return nil, fmt.Errorf("loading the vocabulary %s: %w", name, err)
	}
	return v, nil
}

// VocabularyOf names the embedded encoding that fits a model best, by the
// model's name in any case, with or without its owner before a slash. It is
// exact for the models of OpenAI and for gpt-oss. Every other engine has a
// vocabulary of its own, of which the encoding named here gives a near
// estimate: cl100k_base splits text as Llama 3 and Qwen do.
func VocabularyOf(model string) string {
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

// Count returns how many tokens text has. All of it is ordinary text: what
// reads like a special token (<|endoftext|>) is counted as its characters are.
// A byte that is not valid UTF-8 counts as U+FFFD, one for each. The time
// grows as n log n at worst, whatever the text; ordinary text allocates
// nothing, and a word of thousands of letters takes some thirty bytes of
// working memory for each of its own. The caller bounds the text.
func (v *Vocabulary) Count(text []byte) int {
	if !utf8.Valid(text) {
		text = []byte(string([]rune(string(text))))
	}
	m := merger{ranks: &v.ranks}
	n := 0
	for len(text) > 0 {
		size := v.cut.next(text)
		n += m.count(text[:size])
		text = text[size:]
	}
	return n
}

// noRank stands for bytes that are no token: above every rank.
const noRank = 1<<32 - 1

// A slot of a rankTable holds a rank plus one in its low bits, which are zero in
// a free slot, and bits of the hash above, so that most other tokens are told
// apart without reading them. 18 bits hold every rank of both encodings.
const (
	rankBits = 18
	rankMask = 1<<rankBits - 1
)

// rankTable finds the rank of a token by its bytes: an open hash table over one
// string of all tokens, a third of the size of a map of strings.
type rankTable struct {
	seed    maphash.Seed
	slots   []uint32 // a power of two, at least a third of them free
	mask    uint64   // its size less one
	ends    []uint32 // token i is tokens[ends[i]:ends[i+1]]
	tokens  []byte
	longest int // bytes of the longest token
}

// load fills the table with the size tokens of an embedded file, which has one
// token in base64 and its rank on each line, in the order of the ranks.
func (t *rankTable) load(name string, size int) error {
	file, err := assets.Assets.Open(name + ".tiktoken")
	if err != nil {
		return err
	}
	defer file.Close()
	slots := 1
	for slots < size+size/2 {
		slots *= 2
	}
	t.seed, t.slots, t.mask = maphash.MakeSeed(), make([]uint32, slots), uint64(slots-1)
	t.ends = append(make([]uint32, 0, size+1), 0)
	t.tokens = make([]byte, 0, 8*size) // tokens have 6 to 7 bytes on average
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		token, rank, ok := strings.Cut(lines.Text(), " ")
		if n, err := strconv.Atoi(rank); !ok || err != nil || n != len(t.ends)-1 || n >= size {
			return fmt.Errorf("line %d does not hold the token of rank %d", len(t.ends), len(t.ends)-1)
		}
		if err := t.add(token); err != nil {
			return fmt.Errorf("line %d: %w", len(t.ends), err)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if len(t.ends)-1 != size {
		return fmt.Errorf("it has %d tokens and should have %d", len(t.ends)-1, size)
	}
	return nil
}

// add gives a token the next rank.
func (t *rankTable) add(encoded string) error {
	from := len(t.tokens)
	tokens, err := base64.StdEncoding.AppendDecode(t.tokens, []byte(encoded))
	if err != nil {
		return err
	}
	t.tokens = tokens
	token := tokens[from:]
	t.longest = max(t.longest, len(token))
	h := maphash.Bytes(t.seed, token)
	at := h & t.mask
	for t.slots[at] != 0 {
		at = (at + 1) & t.mask
	}
	t.slots[at] = uint32(h>>32)&^rankMask | uint32(len(t.ends))
	t.ends = append(t.ends, uint32(len(tokens)))
	return nil
}

// of returns the rank of a token, noRank when b is none.
func (t *rankTable) of(b []byte) uint32 {
	if len(b) > t.longest {
		return noRank
	}
	h := maphash.Bytes(t.seed, b)
	tag := uint32(h>>32) &^ rankMask
	for at := h & t.mask; ; at = (at + 1) & t.mask {
		slot := t.slots[at]
		if slot == 0 {
			return noRank
		}
		if slot&^rankMask != tag {
			continue
		}
		rank := slot&rankMask - 1
		if string(t.tokens[t.ends[rank]:t.ends[rank+1]]) == string(b) {
			return rank
		}
	}
}
