package prompt

import (
	"bytes"

	"github.com/cespare/xxhash/v2"

	"tierway/openai"
)

// readNode reads a message, an item or a part. Its text is cut into blocks, then all other members
// follow. user reports whether it is a user message.
func (c *chainer) readNode(depth int) (user bool) {
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
			if first == '"' && c.readPlainKind() {
				continue
			}
		case cacheMark:
			continue
		}
		rest += c.hashMember(key, name, openai.ReadTurns.ForMember(name))
	}
	end, size := c.Pos(), c.size
	if role != 0 {
		c.hash = mix(mix(c.hash, tagRole), role)
	}
	for _, from := range texts {
		if from > 0 && !c.full {
			c.Seek(from)
			c.readContent(depth)
		}
	}
	if rest != 0 {
		c.hash = mix(mix(c.hash, tagRest), rest)
	}
	c.addSize(size)
	c.Seek(end)
	return user
}

// readPlainKind reads the type of a node if it is a plain message or text. Such a type equals an
// absent one.
func (c *chainer) readPlainKind() bool {
	from := c.Pos()
	switch string(c.Word()) {
	case "message", "text", "input_text", "output_text":
		return true
	}
	c.Seek(from)
	return false
}

// readContent reads the content of a message, item or part.
func (c *chainer) readContent(depth int) {
	switch c.Next() {
	case '"':
		c.hashText(c.Str())
		return
	case '[':
		if depth <= maxNesting {
			c.readParts(depth)
			return
		}
	}
	c.size = 0
	h := c.hashValue(openai.ReadTurns)
	c.hash = mix(mix(c.hash, tagRest), h)
	c.addSize(c.size)
}

// readParts reads an array of parts. The first one begins like a text without parts.
func (c *chainer) readParts(depth int) {
	c.Enter('[')
	for n := 0; !c.full && c.More(']'); {
		if c.billing && c.skipBilling() {
			continue
		}
		if n++; n > 1 {
			c.hash = mix(c.hash, tagPart)
		}
		if c.Next() == '{' {
			c.readNode(depth + 1)
		} else {
			c.readContent(depth + 1)
		}
	}
}

// billingMark begins a block of system text that some of Anthropic's clients send first and
// change with every request. Engines drop it. In a chain it would prevent all cache hits.
const billingMark = "x-anthropic-billing-header:"

// skipBilling skips a part that begins with billingMark.
func (c *chainer) skipBilling() bool {
	from := c.Pos()
	if bytes.HasPrefix(openai.Word(textOf(&c.Reader)), []byte(billingMark)) {
		return true
	}
	c.Seek(from)
	return false
}

// hashText cuts a string into blocks.
func (c *chainer) hashText(raw []byte) {
	if !openai.Escaped(raw) {
		for len(raw) > 0 && !c.full {
			n := min(blockBytes-c.open, len(raw))
			c.hashPiece(raw[:n])
			raw = raw[n:]
		}
		return
	}
	for n := 0; (n > 0 || len(raw) > 0) && !c.full; {
		want := blockBytes - c.open
		n, raw = openai.Unescape(c.buf[:], raw, n, want)
		whole := min(n, want)
		c.hashPiece(c.buf[:whole])
		// A character can extend beyond the block's end.
		n = copy(c.buf[:], c.buf[whole:n])
	}
}

// hashPiece adds text that lies in one block.
func (c *chainer) hashPiece(p []byte) {
	c.hash = mix(c.hash, xxhash.Sum64(p))
	c.addSize(int64(len(p)))
}

func (c *chainer) readIDs() {
	for c.Enter('['); !c.full && c.More(']'); {
		c.size = 0
		c.hash = mix(c.hash, c.hashValue(openai.ReadIDs))
		c.addSize(c.size + idBytes)
	}
}
