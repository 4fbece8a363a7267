package openai

import (
	"bytes"
	"encoding/json"
	"strings"
)

// fieldDepth bounds the nesting of an answer: a Responses object repeats the
// tools' JSON schemas, which are some tens of levels deep.
const fieldDepth = 512

// flatArray is from how many bytes on an array of numbers is worth four passes
// at memory speed instead of one byte at a time.
const flatArray = 64

// fieldCursor reads JSON forward, without allocating. It checks the structure
// (brackets, commas, colons, literals) and neither what is inside strings nor
// the grammar of numbers; NaN and Infinity, which Python engines write, pass.
// After a fault bad is true and every call is harmless.
type fieldCursor struct {
	b   []byte
	i   int
	bad bool
}

// fail ends the reading.
func (c *fieldCursor) fail() {
	c.bad = true
	c.i = len(c.b)
}

// peek returns the first byte that is no white space, 0 at the end.
func (c *fieldCursor) peek() byte {
	for c.i < len(c.b) {
		switch ch := c.b[c.i]; ch {
		case ' ', '\t', '\n', '\r':
			c.i++
		default:
			return ch
		}
	}
	return 0
}

// done says that nothing but white space is left and no fault was met.
func (c *fieldCursor) done() bool {
	return c.peek() == 0 && c.i >= len(c.b) && !c.bad
}

// quoted reads the string at the cursor, which stands on its first quote, and
// returns what is between the quotes, escapes unread.
func (c *fieldCursor) quoted() []byte {
	start := c.i + 1
	for from := start; from <= len(c.b); {
		n := bytes.IndexByte(c.b[from:], '"')
		if n < 0 {
			break
		}
		end := from + n
		slash := end
		for slash > start && c.b[slash-1] == '\\' {
			slash--
		}
		if (end-slash)%2 == 0 {
			c.i = end + 1
			return c.b[start:end]
		}
		from = end + 1
	}
	c.fail()
	return nil
}

// scalar skips a number or a literal.
func (c *fieldCursor) scalar() {
	start := c.i
	for c.i < len(c.b) && scalarByte(c.b[c.i]) {
		c.i++
	}
	word := c.b[start:c.i]
	if len(word) == 0 {
		c.fail()
		return
	}
	if ch := word[0]; ch == '-' && len(word) > 1 && word[1] != 'I' || ch >= '0' && ch <= '9' {
		for _, ch := range word[1:] {
			if ch > '9' && ch != 'e' && ch != 'E' {
				c.fail()
				return
			}
		}
		return
	}
	switch string(word) {
	case "true", "false", "null", "NaN", "Infinity", "-Infinity":
	default:
		c.fail()
	}
}

// scalarByte says that b can be part of a number or of a literal.
func scalarByte(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '-' || b == '+' || b == '.'
}

// numbers skips a long array of plain numbers, as embeddings are, or does
// nothing and returns false.
func (c *fieldCursor) numbers() bool {
	rest := c.b[c.i+1:]
	if len(rest) < flatArray || rest[0] != '-' && (rest[0] < '0' || rest[0] > '9') {
		return false
	}
	n := bytes.IndexByte(rest, ']')
	if n < flatArray {
		return false
	}
	in := rest[:n]
	if bytes.IndexByte(in, '"') >= 0 || bytes.IndexByte(in, '[') >= 0 || bytes.IndexByte(in, '{') >= 0 {
		return false
	}
	c.i += n + 2
	return true
}

// name reads a member's name and the colon after it.
func (c *fieldCursor) name() []byte {
	if c.peek() != '"' {
		c.fail()
		return nil
	}
	name := c.quoted()
	if c.peek() != ':' {
		c.fail()
		return nil
	}
	c.i++
	return name
}

// skip reads one value of any kind and returns its bytes.
func (c *fieldCursor) skip() []byte {
	first := c.peek()
	start := c.i
	switch first {
	case '"':
		c.quoted()
	case '{', '[':
		c.nested()
	default:
		c.scalar()
	}
	if c.bad {
		return nil
	}
	return c.b[start:c.i]
}

// fieldNest is the brackets that are open during a skip.
type fieldNest struct {
	brace [fieldDepth]bool // which of them are braces
	depth int
}

// open goes into the object or array at the cursor. One that is empty is
// skipped at once and inside is false.
func (n *fieldNest) open(c *fieldCursor, brace bool, closing byte) (inside bool) {
	if c.i++; c.peek() == closing {
		c.i++
		return false
	}
	if n.depth == fieldDepth {
		c.fail()
		return false
	}
	n.brace[n.depth] = brace
	n.depth++
	if brace {
		c.name()
	}
	return true
}

// after reads what follows a value up to where the next one begins; more is
// false when the outermost bracket was closed.
func (n *fieldNest) after(c *fieldCursor) (more bool) {
	for n.depth > 0 {
		brace := n.brace[n.depth-1]
		switch ch := c.peek(); {
		case ch == ',':
			if c.i++; brace {
				c.name()
			}
			return true
		case ch == '}' && brace, ch == ']' && !brace:
			c.i++
			n.depth--
		default:
			c.fail()
			return false
		}
	}
	return false
}

// nested skips an object or an array with all that is in it.
func (c *fieldCursor) nested() {
	var n fieldNest
	for more := true; more && !c.bad; {
		inside := false
		switch c.peek() {
		case '"':
			c.quoted()
		case '{':
			inside = n.open(c, true, '}')
		case '[':
			if !c.numbers() {
				inside = n.open(c, false, ']')
			}
		default:
			c.scalar()
		}
		more = inside || n.after(c)
	}
}

// fieldMembers walks the members of one object.
type fieldMembers struct {
	key  []byte
	at   int
	open bool
}

// next goes to the next member: key is its name and the cursor stands on its
// value. A value that was not read is skipped.
func (m *fieldMembers) next(c *fieldCursor) bool {
	if !m.open {
		m.open = true
		if c.peek() != '{' {
			c.fail()
			return false
		}
		if c.i++; c.peek() == '}' {
			c.i++
			return false
		}
	} else if !c.follow(m.at, '}') {
		return false
	}
	m.key = c.name()
	if bytes.IndexByte(m.key, '\\') >= 0 {
		m.key = []byte(fieldText(m.key))
	}
	c.peek()
	m.at = c.i
	return !c.bad
}

// fieldElements walks the elements of one array.
type fieldElements struct {
	at   int
	open bool
}

// next goes to the next element, on whose value the cursor stands. A value that
// was not read is skipped.
func (e *fieldElements) next(c *fieldCursor) bool {
	if !e.open {
		e.open = true
		if c.peek() != '[' {
			c.fail()
			return false
		}
		if c.i++; c.peek() == ']' {
			c.i++
			return false
		}
	} else if !c.follow(e.at, ']') {
		return false
	}
	c.peek()
	e.at = c.i
	return !c.bad
}

// follow skips the value at at if it was not read, and the comma after it. At
// the closing bracket it returns false.
func (c *fieldCursor) follow(at int, closing byte) bool {
	if c.i == at {
		c.skip()
	}
	if c.bad {
		return false
	}
	switch c.peek() {
	case ',':
		c.i++
		return true
	case closing:
		c.i++
	default:
		c.fail()
	}
	return false
}

// filled skips a value and says whether it says anything: null, false, "", []
// and {} do not.
func (c *fieldCursor) filled() bool { return says(c.skip()) }

// says tells whether a value, as skip returns it, says anything.
func says(v []byte) bool {
	if len(v) == 0 {
		return false
	}
	switch v[0] {
	case 'n', 'f':
		return false
	case '"':
		return len(v) > 2
	case '{', '[':
		for _, b := range v[1 : len(v)-1] {
			if b != ' ' && b != '\t' && b != '\n' && b != '\r' {
				return true
			}
		}
		return false
	}
	return true
}

// integer skips a value and returns it when it is a whole number that is not
// negative.
func (c *fieldCursor) integer() (n int64, ok bool) {
	v := c.skip()
	// Eighteen digits always fit into 63 bits.
	if len(v) == 0 || len(v) > 18 {
		return 0, false
	}
	for i, b := range v {
		switch {
		case b >= '0' && b <= '9':
			n = 10*n + int64(b-'0')
		case b == '.' && i > 0:
			return n, len(bytes.Trim(v[i+1:], "0")) == 0
		default:
			return 0, false
		}
	}
	return n, true
}

// str skips a value and returns the inside of a string, nil for anything else.
func (c *fieldCursor) str() []byte {
	if c.peek() == '"' {
		return c.quoted()
	}
	c.skip()
	return nil
}

// fieldText reads the escapes of a string's inside. It always returns valid
// UTF-8.
func fieldText(in []byte) string {
	if bytes.IndexByte(in, '\\') >= 0 {
		q := make([]byte, 0, len(in)+2)
		q = append(append(append(q, '"'), in...), '"')
		var s string
		if json.Unmarshal(q, &s) == nil {
			return s
		}
	}
	return strings.ToValidUTF8(string(in), "\uFFFD")
}
