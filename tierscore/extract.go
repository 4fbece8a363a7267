package tierscore

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// Extractor extracts features of requests. Its methods may be called concurrently.
type Extractor struct {
	start, mixer uint64 // secret parts of the hash
	id           uint32
	openers      [len(openers)]uint64 // hashes of the words of openers
	kind         [256]uint8           // of each byte
}

// MinKeyLength is the minimum length of a key in bytes: trying all keys of 128 bits is not feasible.
const MinKeyLength = 16

// NewExtractor returns an extractor with hashes that depend on a key. Features of different keys cannot be compared. An
// empty key is allowed; every reader of features can then test if a word may occur in a request.
func NewExtractor(key string) *Extractor {
	sum := sha256.Sum256([]byte("tierway features\x00" + key))
	e := &Extractor{
		start: binary.LittleEndian.Uint64(sum[0:]),
		mixer: binary.LittleEndian.Uint64(sum[8:]) | 1,
		id:    binary.LittleEndian.Uint32(sum[16:]),
		kind:  kindsOfBytes(),
	}
	for i, o := range openers {
		h := e.start
		for j := range len(o.word) {
			h = step(h, o.word[j])
		}
		e.openers[i] = e.finish(h)
	}
	return e
}

// step adds a byte to the hash of a word, as FNV-1a does.
func step(h uint64, c byte) uint64 { return (h ^ uint64(c)) * 0x100000001b3 }

// finish spreads a hash over all bits: the halves of a product of 128 bits, as in wyhash.
func (e *Extractor) finish(h uint64) uint64 {
	high, low := bits.Mul64(h^e.start, h*2+1^e.mixer)
	return (high ^ low) * e.mixer
}

// Kinds of bytes. Those from byteLower on are part of words.
const (
	byteOther = iota
	byteSpace
	byteLine
	bytePunctuation
	byteQuestion
	byteCode
	byteTable
	byteLower
	byteUpper
	byteDigit
	byteForeign // a byte of a character outside ASCII
	byteKinds
)

// Questions by their first word. questionOther is one with another first word.
const (
	questionNone = iota
	questionOther
	questionWhat
	questionHow
	questionWhy
	questionFact  // who, when, where
	questionYesNo // is, does, can
	questions
)

// opener is the first word of a question.
type opener struct {
	word string
	kind uint32
}

var openers = [...]opener{
	{"what", questionWhat}, {"which", questionWhat}, {"how", questionHow}, {"why", questionWhy},
	{"who", questionFact}, {"when", questionFact}, {"where", questionFact}, {"is", questionYesNo},
	{"are", questionYesNo}, {"does", questionYesNo}, {"do", questionYesNo}, {"can", questionYesNo},
	{"could", questionYesNo}, {"should", questionYesNo},
}

func kindsOfBytes() (t [256]uint8) {
	for c := range t {
		switch {
		case c >= 0x80:
			t[c] = byteForeign
		case 'a' <= c && c <= 'z':
			t[c] = byteLower
		case 'A' <= c && c <= 'Z':
			t[c] = byteUpper
		case '0' <= c && c <= '9':
			t[c] = byteDigit
		case '!' <= c && c <= '~':
			t[c] = bytePunctuation
		}
	}
	for _, c := range "{};`\\<>_=" {
		t[c] = byteCode
	}
	t[' '], t['\r'], t['\n'], t['?'], t['|'], t['\t'] =
		byteSpace, byteSpace, byteLine, byteQuestion, byteTable, byteTable
	return t
}

// Extract sets f to the features of a request. It does not allocate.
func (e *Extractor) Extract(f *Features, in *Input) {
	*f = Features{key: e.id, route: e.route(in)}
	f.counts.Turns = uint32(min(max(in.Turns, 0), 1<<16))
	if in.Tools {
		f.counts.Tools = 1
	}
	if len(in.System) > 0 {
		f.counts.System = 1
	}
	e.scan(f, in.User)
}

// route returns the hash of tenant and system prompt.
func (e *Extractor) route(in *Input) uint32 {
	h := e.start
	for i := range len(in.Tenant) {
		h = step(h, in.Tenant[i])
	}
	h = e.finish(h)
	// Eight bytes at a time, because system prompts are long.
	rest := in.System
	for ; len(rest) >= 8; rest = rest[8:] {
		h = e.finish(h ^ binary.LittleEndian.Uint64(rest))
	}
	for _, c := range rest {
		h = step(h, c)
	}
	return uint32(e.finish(h^uint64(len(in.System))) >> 32)
}

// scan takes the features of a text in one pass.
func (e *Extractor) scan(f *Features, text []byte) {
	var (
		n        [byteKinds]uint32
		last     uint64 // hash of the word before
		first    uint64 // hash of the first word of the sentence
		sentence = true // the next word is the first of a sentence
	)
	f.counts.Choices += e.choice(text)
	for i := 0; i < len(text); {
		c := text[i]
		kind := e.kind[c]
		if kind >= byteLower {
			word := e.start
			// Scripts without spaces, and symbols: each character is a word. Their characters begin with 0xE2 to 0xF4.
			for begin := i; kind >= byteLower && (c < 0xE2 || i == begin); kind = e.kind[c] {
				n[kind]++
				if kind == byteUpper {
					c |= 'a' - 'A'
				}
				word = step(word, c)
				if i++; i == len(text) {
					break
				}
				c = text[i]
			}
			word = e.finish(word)
			f.add(word)
			f.add(e.finish(last ^ bits.RotateLeft64(word, 21)))
			if last = word; sentence {
				first, sentence = word, false
			}
			continue
		}
		n[kind]++
		i++
		switch kind {
		case byteLine:
			f.counts.Choices += e.choice(text[i:])
			sentence = true
		case byteQuestion:
			f.counts.Question = e.question(first)
			sentence = true
		case bytePunctuation:
			sentence = sentence || (c == '.' || c == '!' || c == ':') && e.endsSentence(text[i:])
		}
	}
	f.counts.Kinds = n
}

// endsSentence reports whether the text after a mark is empty or begins with a space or a line break: "3.5" and "10:30"
// are inside a sentence.
func (e *Extractor) endsSentence(rest []byte) bool {
	return len(rest) == 0 || e.kind[rest[0]] == byteSpace || e.kind[rest[0]] == byteLine
}

// question returns the kind of a question from the hash of its first word.
func (e *Extractor) question(first uint64) uint32 {
	for i, h := range e.openers {
		if h == first {
			return openers[i].kind
		}
	}
	return questionOther
}

// choice returns 1 if a line begins with a letter or a digit and a mark: "B. ", "b) ", "(2) ".
func (e *Extractor) choice(line []byte) uint32 {
	if len(line) > 0 && line[0] == '(' {
		line = line[1:]
	}
	if len(line) < 3 || line[2] != ' ' || line[1] != '.' && line[1] != ')' || e.kind[line[0]] < byteLower {
		return 0
	}
	return 1
}

// structureBuckets are presence features of counts. Each count has a run of buckets, of which a value sets all up to
// its level. A sum of their weights is then a step function, and regularisation smooths the steps. The last buckets are
// those of the kinds of questions, of which one is set.
const structureBuckets = 128 + questions

// run is the buckets of one count.
type run struct {
	levels int
	level  func(c *counts) int
}

var runs = [...]run{
	{32, func(c *counts) int { return halfOctave(c.bytes()) }},
	{12, func(c *counts) int { return bits.Len32(c.Kinds[byteLine]) }},
	{8, func(c *counts) int { return bits.Len32(c.Kinds[byteDigit]) }},
	{8, func(c *counts) int { return bits.Len32(c.Kinds[byteCode]) }},
	{6, func(c *counts) int { return bits.Len32(c.Kinds[byteTable]) }},
	{4, func(c *counts) int { return int(min(c.Kinds[byteQuestion], 4)) }},
	{8, func(c *counts) int { return int(min(c.Choices, 8)) }},
	{8, func(c *counts) int { return bits.Len32(c.Turns) }},
	{1, func(c *counts) int { return int(c.Tools) }},
	{1, func(c *counts) int { return int(c.System) }},
	{8, func(c *counts) int { return c.share(byteDigit) }},
	{8, func(c *counts) int { return c.share(byteUpper) }},
	{8, func(c *counts) int { return c.share(bytePunctuation) }},
	{8, func(c *counts) int { return c.share(byteSpace) }},
	{8, func(c *counts) int { return c.share(byteForeign) }},
}

// bytes returns the length of the user text.
func (c *counts) bytes() (n uint32) {
	for _, bytes := range c.Kinds {
		n += bytes
	}
	return n
}

// halfOctave returns 1 + 2·log2(n), rounded down, and 0 for 0: the number of bits of n².
func halfOctave(n uint32) int { return bits.Len64(uint64(n) * uint64(n)) }

// share returns the level of a kind's share of the text: each level doubles it, from 1 in 256 on.
func (c *counts) share(kind int) int {
	n := uint64(c.bytes())
	if n == 0 {
		return 0
	}
	return bits.Len64(uint64(c.Kinds[kind]) * 256 / n)
}
