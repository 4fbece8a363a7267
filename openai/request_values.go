package openai

import (
	"slices"
	"strconv"
)

const (
	maxInt32 = 1<<31 - 1 // what engines hold a token count in
	maxN     = 128       // OpenAI's own bound on n

	// shownBytes is how much of a wrong number a message repeats.
	shownBytes = 32
)

// model reads the model's name and notes where it stands.
func (p *parser) model() bool {
	const name = "model"
	at := &p.req.place.model
	at.from = p.i
	switch p.space() {
	case 'n':
		ok := p.skip()
		at.to = p.i
		return ok
	case '"':
	default:
		return p.wrong(name, "a string")
	}
	t, ok := p.str()
	if !ok {
		return false
	}
	at.to = p.i
	switch {
	case t.bytes == 0:
		return p.refuse(CodeInvalidValue, name, "model is an empty string: name a model")
	case t.bytes > maxModelBytes:
		return p.refuse(CodeInvalidValue, name, "model has %d bytes: a model's name has at most %d", t.bytes, maxModelBytes)
	}
	p.req.Model = p.decoded(t, maxModelBytes)
	return true
}

// decoded returns the value of a string, cut to most bytes.
func (p *parser) decoded(t text, most int) string {
	raw := p.b[t.from:t.to]
	if !t.escaped && len(raw) <= most {
		return string(raw)
	}
	return string(appendDecoded(make([]byte, 0, min(t.bytes, most)), raw, most))
}

// flag reads true, false or null into dst; set is false for null.
func (p *parser) flag(name string, dst *bool) (set, ok bool) {
	switch p.space() {
	case 't':
		*dst = true
		return true, p.literal("true")
	case 'f':
		return true, p.literal("false")
	case 'n':
		return false, p.literal("null")
	}
	return false, p.wrong(name, "true or false")
}

// integer reads an integer from least to most, or null, which is 0. A number with
// a point or an exponent is refused: some workers would refuse it as well and
// the others would not agree on its value.
func (p *parser) integer(f field, least, most int64) (int64, bool) {
	c := p.space()
	if c == 'n' {
		return 0, p.skip()
	}
	from := p.i
	if c != '-' && (c < '0' || c > '9') {
		return 0, p.wrongInteger(f, least, most)
	}
	if !p.number() {
		return 0, false
	}
	raw := p.b[from:p.i]
	const digits = 10 // of 2^31-1
	if len(raw) <= digits {
		if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil && n >= least && n <= most && raw[0] != '-' {
			return n, true
		}
	}
	p.i = from
	return 0, p.wrongInteger(f, least, most)
}

func (p *parser) wrongInteger(f field, least, most int64) bool {
	return p.wrong(f.String(), "an integer from "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10))
}

// exact reads a string of at most the given bytes, or null, into dst.
func (p *parser) exact(name string, most int, dst *string) bool {
	switch p.space() {
	case 'n':
		return p.skip()
	case '"':
	default:
		return p.wrong(name, "a string or null")
	}
	t, ok := p.str()
	if !ok {
		return false
	}
	if t.bytes > most {
		return p.refuse(CodeInvalidValue, name, "%s has %d bytes: send at most %d", name, t.bytes, most)
	}
	*dst = p.decoded(t, most)
	return true
}

// loose reads a string that only serves as a key for affinity, where its first
// bytes do as well, and passes over every other value.
func (p *parser) loose(dst *string) bool {
	if p.space() != '"' {
		return p.skip()
	}
	t, ok := p.str()
	if ok {
		*dst = p.decoded(t, maxIDBytes)
	}
	return ok
}

// within reads the object that is next, of which some members matter, and calls read
// at the value of each.
func (p *parser) within(parent string, read func(child string) bool, children ...string) bool {
	if !p.open() {
		return false
	}
	seen := 0 // a bit a child
	for first := true; ; first = false {
		again, ok := p.more('}', first)
		if !again {
			return ok
		}
		t, ok := p.key()
		if !ok {
			return false
		}
		name := p.name(t)
		i := slices.IndexFunc(children, func(c string) bool { return c == string(name) })
		if i < 0 {
			other := folded(p.scratch[:], name)
			if i = slices.IndexFunc(children, func(c string) bool { return c == string(other) }); i >= 0 {
				return p.ambiguous(parent+"."+children[i], "a field's name differs from it only in upper and lower case; write it exactly so")
			}
			if !p.skip() {
				return false
			}
			continue
		}
		if seen&(1<<i) != 0 {
			return p.ambiguous(parent+"."+children[i], "it is given twice; give it once")
		}
		if seen |= 1 << i; !read(children[i]) {
			return false
		}
	}
}

// wrong refuses the next value, which is not the one wanted. It says what kind
// of value it is and repeats numbers only: a string may be part of a prompt.
func (p *parser) wrong(name, wanted string) bool {
	from, c := p.i, p.space()
	if !p.skip() {
		return false
	}
	got := string(p.b[from:min(p.i, from+shownBytes)])
	if p.i > from+shownBytes {
		got += "…"
	}
	switch c {
	case '"':
		got = "a string"
	case '{':
		got = "an object"
	case '[':
		got = "an array"
	}
	return p.refuse(CodeInvalidValue, name, "%s must be %s, not %s", name, wanted, got)
}
