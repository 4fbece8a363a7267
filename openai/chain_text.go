package openai

import (
	"bytes"

	"github.com/cespare/xxhash/v2"
)

// node reads a message, an item or a part of one. Its text is cut into blocks;
// all its other members close after that. user says that it is the user's.
func (c *chainer) node(depth int) (user bool) {
	var texts [3]int // content, text and output, of which a node has one
	var role, rest uint64
	c.size = 0
	for c.enter(); c.more('}'); {
		key, first := c.key(), c.b[c.i]
		if first == 'n' {
			c.scalar()
			continue
		}
		switch string(c.word(key)) {
		case "content":
			texts[0] = c.i
			c.skip()
			continue
		case "text":
			texts[1] = c.i
			c.skip()
			continue
		case "output":
			texts[2] = c.i
			c.skip()
			continue
		case "role":
			if first == '"' {
				q := c.str()
				role, _ = c.digest(q)
				user = string(c.word(q)) == "user"
				continue
			}
		case "type":
			if first == '"' && c.plainKind() {
				continue
			}
		case cacheMark:
			c.skip()
			continue
		}
		rest += c.member(key, partReading(c.word(key)))
	}
	end, size := c.i, c.size
	if role != 0 {
		c.hash = mix(mix(c.hash, saltRole), role)
	}
	for _, from := range texts {
		if from > 0 && !c.full {
			c.i = from
			c.content(depth)
		}
	}
	if rest != 0 {
		c.hash = mix(mix(c.hash, saltRest), rest)
	}
	c.grow(size)
	c.i = end
	return user
}

// plainKind reads the type of a node if it says no more than that the node is a
// message or text: then a node without it is the same.
func (c *chainer) plainKind() bool {
	from := c.i
	switch string(c.word(c.str())) {
	case "message", "text", "input_text", "output_text":
		return true
	}
	c.i = from
	return false
}

// content reads what a message, an item or a part says.
func (c *chainer) content(depth int) {
	switch c.b[c.i] {
	case '"':
		c.text(c.str())
		return
	case '[':
		if depth <= maxNesting {
			c.parts(depth)
			return
		}
	}
	c.size = 0
	h := c.value(readTurns)
	c.hash = mix(mix(c.hash, saltRest), h)
	c.grow(c.size)
}

// parts reads an array of parts. The first begins like a text without parts.
func (c *chainer) parts(depth int) {
	c.enter()
	for n := 0; !c.full && c.more(']'); {
		if c.billing && c.billed() {
			continue
		}
		if n++; n > 1 {
			c.hash = mix(c.hash, saltPart)
		}
		if c.b[c.i] == '{' {
			c.node(depth + 1)
		} else {
			c.content(depth + 1)
		}
	}
}

// billed passes over a part that begins with billingMark.
func (c *chainer) billed() bool {
	from := c.i
	if bytes.HasPrefix(c.word(c.part()), []byte(billingMark)) {
		return true
	}
	c.i = from
	return false
}

// text cuts a string's value into blocks.
func (c *chainer) text(q quoted) {
	raw := q.raw
	if !q.escaped {
		for len(raw) > 0 && !c.full {
			n := min(blockBytes-c.open, len(raw))
			c.piece(raw[:n])
			raw = raw[n:]
		}
		return
	}
	for n := 0; (n > 0 || len(raw) > 0) && !c.full; {
		want := blockBytes - c.open
		n, raw = decode(c.buf[:], raw, n, want)
		whole := min(n, want)
		c.piece(c.buf[:whole])
		// A character can reach over the block's end.
		n = copy(c.buf[:], c.buf[whole:n])
	}
}

// piece takes in text that lies in one block.
func (c *chainer) piece(p []byte) {
	c.hash = mix(c.hash, xxhash.Sum64(p))
	c.grow(int64(len(p)))
}

// ids reads an array of token ids.
func (c *chainer) ids() {
	for c.enter(); !c.full && c.more(']'); {
		c.size = 0
		c.hash = mix(c.hash, c.id())
		c.grow(c.size + idBytes)
	}
}

// id reads one token id, or whatever stands in its place.
func (c *chainer) id() uint64 {
	from, n := c.i, uint64(0)
	const digits = 19 // that always fit into 64 bits
	for c.i-from < digits && c.b[c.i] >= '0' && c.b[c.i] <= '9' {
		n = 10*n + uint64(c.b[c.i]-'0')
		c.i++
	}
	if c.i > from && !scalarByte(c.b[c.i]) {
		return n
	}
	c.i = from
	return mix(saltScalar, c.value(readIDs))
}
