package prompt

import (
	"bytes"

	"github.com/cespare/xxhash/v2"

	"tierway/openai"
)

// node reads a message, an item or a part. Its text is cut into blocks, then all other members
// follow. user reports whether it is a user message.
func (c *chainer) node(depth int) (user bool) {
	var texts [3]int // positions of content, text and output; a node has one of them
	var role, rest uint64
	c.size = 0
	for c.Enter('{'); c.More('}'); {
		key := c.Key()
		first, name := c.Next(), c.Resolve(key)
		if first == 'n' {
			continue
		}
		switch string(name) {
		case "content":
			texts[0] = c.Pos()
			continue
		case "text":
			texts[1] = c.Pos()
			continue
		case "output":
			texts[2] = c.Pos()
			continue
		case "role":
			if first == '"' {
				raw := c.ShortStr()
				word := c.Resolve(raw)
				role, _ = c.digestWord(raw, word)
				user = string(word) == "user"
				continue
			}
		case "type":
			if first == '"' && c.plainKind() {
				continue
			}
		case cacheMark:
			continue
		}
		rest += c.member(key, name, openai.ReadTurns.Of(name))
	}
	end, size := c.Pos(), c.size
	if role != 0 {
		c.hash = mix(mix(c.hash, tagRole), role)
	}
	for _, from := range texts {
		if from > 0 && !c.full {
			c.Seek(from)
			c.content(depth)
		}
	}
	if rest != 0 {
		c.hash = mix(mix(c.hash, tagRest), rest)
	}
	c.grow(size)
	c.Seek(end)
	return user
}

// plainKind reads the type of a node if it is a plain message or text. Such a type equals an
// absent one.
func (c *chainer) plainKind() bool {
	from := c.Pos()
	switch string(c.Word()) {
	case "message", "text", "input_text", "output_text":
		return true
	}
	c.Seek(from)
	return false
}

// content reads the content of a message, item or part.
func (c *chainer) content(depth int) {
	switch c.Next() {
	case '"':
		c.text(c.Str())
		return
	case '[':
		if depth <= maxNesting {
			c.parts(depth)
			return
		}
	}
	c.size = 0
	h := c.value(openai.ReadTurns)
	c.hash = mix(mix(c.hash, tagRest), h)
	c.grow(c.size)
}

// parts reads an array of parts. The first one begins like a text without parts.
func (c *chainer) parts(depth int) {
	c.Enter('[')
	for n := 0; !c.full && c.More(']'); {
		if c.billing && c.billed() {
			continue
		}
		if n++; n > 1 {
			c.hash = mix(c.hash, tagPart)
		}
		if c.Next() == '{' {
			c.node(depth + 1)
		} else {
			c.content(depth + 1)
		}
	}
}

// billingMark begins a block of system text that some of Anthropic's clients send first and
// change with every request. Engines drop it. In a chain it would prevent all cache hits.
const billingMark = "x-anthropic-billing-header:"

// billed skips a part that begins with billingMark.
func (c *chainer) billed() bool {
	from := c.Pos()
	if bytes.HasPrefix(openai.Word(textOf(&c.Reader)), []byte(billingMark)) {
		return true
	}
	c.Seek(from)
	return false
}

// text cuts a string into blocks.
func (c *chainer) text(raw []byte) {
	if !openai.Escaped(raw) {
		for len(raw) > 0 && !c.full {
			n := min(blockBytes-c.open, len(raw))
			c.piece(raw[:n])
			raw = raw[n:]
		}
		return
	}
	for n := 0; (n > 0 || len(raw) > 0) && !c.full; {
		want := blockBytes - c.open
		n, raw = openai.Unescape(c.buf[:], raw, n, want)
		whole := min(n, want)
		c.piece(c.buf[:whole])
		// A character can extend beyond the block's end.
		n = copy(c.buf[:], c.buf[whole:n])
	}
}

// piece adds text that lies in one block.
func (c *chainer) piece(p []byte) {
	c.hash = mix(c.hash, xxhash.Sum64(p))
	c.grow(int64(len(p)))
}

// ids reads an array of token IDs.
func (c *chainer) ids() {
	for c.Enter('['); !c.full && c.More(']'); {
		c.size = 0
		c.hash = mix(c.hash, c.value(openai.ReadIDs))
		c.grow(c.size + idBytes)
	}
}
