package openai

import (
	"slices"
	"strconv"
)

const (
	maxInt32 = 1<<31 - 1 // engines store token counts in 32 bits
	maxN     = 128       // OpenAI's limit of n

	// shownBytes limits the part of an invalid number that a message repeats.
	shownBytes = 32
)

func (p *parser) readModel() {
	const name = "model"
	at := &p.req.place.model
	switch p.Next() {
	case 'n':
		*at = p.skipSpan()
		return
	case '"':
	default:
		p.rejectType(name, "a string")
		return
	}
	at.from = p.i
	raw := p.Str()
	at.to = p.i
	switch n := p.chars.bytes; {
	case n == 0:
		p.reject(CodeInvalidValue, name, "model is an empty string: send a model name")
	case n > maxModelBytes:
		p.reject(CodeInvalidValue, name, "model has %d bytes: send at most %d", n, maxModelBytes)
	}
	p.req.Model = string(decoded(raw, maxModelBytes))
}

// readFlag reads true, false or null into dst; set is false for null.
func (p *parser) readFlag(name string, dst *bool) (set bool) {
	switch p.Next() {
	case 't':
		*dst = true
	case 'f':
	case 'n':
		p.readLiteral("null")
		return false
	default:
		p.rejectType(name, "true or false")
	}
	p.Scalar()
	return true
}

// readCount reads an integer from least to most, or null as 0. It rejects a number with a point
// or an exponent, because some workers reject it and the others disagree on its value.
func (p *parser) readCount(f Field, least, maxValue int64) int64 {
	c := p.Next()
	if c == 'n' {
		p.Skip()
		return 0
	}
	from := p.i
	const digits = 10 // of 2^31-1
	if c == '-' || '0' <= c && c <= '9' {
		if raw := p.Scalar(); len(raw) <= digits {
			if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil && n >= least && n <= maxValue && c != '-' {
				return n
			}
		}
	}
	if !p.bad {
		p.Seek(from)
		p.rejectType(f.String(), "an integer from "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(maxValue, 10))
	}
	return 0
}

// readString reads a string of at most limit bytes, or null, into dst.
func (p *parser) readString(name string, limit int, dst *string) {
	switch p.Next() {
	case 'n':
		p.Skip()
		return
	case '"':
	default:
		p.rejectType(name, "a string or null")
		return
	}
	raw := p.Str()
	if n := p.chars.bytes; n > limit {
		p.reject(CodeInvalidValue, name, "%s has %d bytes: send at most %d", name, n, limit)
	}
	*dst = string(decoded(raw, limit))
}

// readLooseString reads a string that serves only as an affinity key. It cuts long strings and
// ignores other values.
func (p *parser) readLooseString(dst *string) {
	if raw := p.Text(); raw != nil {
		*dst = string(decoded(raw, maxIDBytes))
	}
}

// readChildren reads the next object and calls read at the value of each of the children.
func (p *parser) readChildren(parent string, read func(child string), children ...string) {
	seen := 0 // one bit per child
	for p.Enter('{'); p.More('}'); {
		name := p.Name()
		i := slices.Index(children, string(name))
		if i < 0 {
			if i = slices.Index(children, string(folded(name))); i >= 0 {
				p.rejectCase(parent + "." + children[i])
			}
			continue
		}
		if seen&(1<<i) != 0 {
			p.rejectDuplicate(parent+"."+children[i], "")
		}
		seen |= 1 << i
		read(children[i])
	}
}

// rejectType rejects the next value because of its type. The message names the type and repeats only
// numbers: a string may be part of a prompt.
func (p *parser) rejectType(name, wanted string) {
	c := p.Next()
	got := string(p.Skip())
	if len(got) > shownBytes {
		got = got[:shownBytes] + "…"
	}
	switch c {
	case '"':
		got = "a string"
	case '{':
		got = "an object"
	case '[':
		got = "an array"
	}
	p.reject(CodeInvalidValue, name, "%s must be %s, not %s", name, wanted, got)
}
