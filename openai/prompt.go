package openai

import (
	"bytes"
	"unicode/utf8"
)

// cursor reads a body again that Parse has accepted, so it checks nothing: it
// goes from quote to quote and looks at no byte of a text twice. Every method
// but space wants the cursor on the first byte of what it reads.
type cursor struct {
	b       []byte
	i       int
	scratch [64]byte
}

// quoted is a string of the body as it stands between its quotes.
type quoted struct {
	raw     []byte
	escaped bool // the value is another than raw
}

// space skips white space and returns the byte that follows.
func (c *cursor) space() byte {
	for c.b[c.i] <= ' ' {
		c.i++
	}
	return c.b[c.i]
}

// str reads a string.
func (c *cursor) str() quoted {
	start := c.i + 1
	for from := start; ; {
		end := from + bytes.IndexByte(c.b[from:], '"')
		slash := end
		for c.b[slash-1] == '\\' {
			slash--
		}
		if (end-slash)%2 == 0 {
			c.i = end + 1
			raw := c.b[start:end]
			return quoted{raw, from > start || bytes.IndexByte(raw, '\\') >= 0}
		}
		from = end + 1
	}
}

// enter goes into an object or an array; more must come next.
func (c *cursor) enter() { c.i++ }

// more goes to the next element of the container that closing ends, or leaves
// it and returns false.
func (c *cursor) more(closing byte) bool {
	switch c.space() {
	case closing:
		c.i++
		return false
	case ',':
		c.i++
		c.space()
	}
	return true
}

// peek returns the first byte inside the array that is next.
func (c *cursor) peek() byte {
	ahead := cursor{b: c.b, i: c.i + 1}
	return ahead.space()
}

// key reads a member's name and goes to its value.
func (c *cursor) key() quoted {
	q := c.str()
	c.space()
	c.i++
	c.space()
	return q
}

// word returns the value of a string that is compared with short words. What it
// returns is good until the next call; a longer value is cut.
func (c *cursor) word(q quoted) []byte {
	if !q.escaped {
		return q.raw
	}
	return appendDecoded(c.scratch[:0], q.raw, len(c.scratch))
}

// scalar reads a number, true, false or null.
func (c *cursor) scalar() []byte {
	from := c.i
	for c.i < len(c.b) && scalarByte(c.b[c.i]) {
		c.i++
	}
	return c.b[from:c.i]
}

// skip passes over a value.
func (c *cursor) skip() {
	for depth := 0; ; {
		switch c.b[c.i] {
		case '"':
			c.str()
		case '{', '[':
			depth++
			c.i++
		case '}', ']':
			depth--
			c.i++
		case ' ', '\n', '\t', '\r', ',', ':':
			c.i++
			continue
		default:
			c.scalar()
		}
		if depth == 0 {
			return
		}
	}
}

// decode fills dst with what raw, a string's inside, decodes to, and returns how
// much it wrote and what of raw is left. It stops only when dst is full, which
// must have room for one character more than most bytes: a character that
// begins before most is written whole.
func decode(dst, raw []byte, n, most int) (int, []byte) {
	for n < most && len(raw) > 0 {
		if raw[0] == '\\' {
			r, size := escape(raw)
			n += utf8.EncodeRune(dst[n:], r)
			raw = raw[size:]
			continue
		}
		run := raw[:min(len(raw), most-n)]
		if slash := bytes.IndexByte(run, '\\'); slash >= 0 {
			run = run[:slash]
		}
		n += copy(dst[n:], run)
		raw = raw[len(run):]
	}
	return n, raw
}
