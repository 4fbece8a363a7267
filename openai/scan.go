package openai

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner walks one JSON text once, front to back, and checks everything that
// RFC 8259 asks for on the way, also in the values that nobody reads. It
// copies nothing. A method that returns false has set fail.
type scanner struct {
	b     []byte
	i     int // the next byte
	depth int // containers that are open
	limit int // containers that may be open
	fail  *RequestError
}

// text is one JSON string as found: where it stands between its quotes, and
// what it decodes to, counted but not decoded.
type text struct {
	from, to int
	escaped  bool // the bytes between the quotes are not the value itself
	ascii    int  // characters below 0x80, a byte each
	wide     int  // all other characters
	bytes    int  // of the decoded value in UTF-8
}

// syntax refuses the JSON at byte i. What it says must not quote the body.
func (s *scanner) syntax(i int, problem string) bool {
	s.fail = &RequestError{
		Reason:  CodeInvalidJSON,
		Message: fmt.Sprintf("the request body is not valid JSON: %s at byte %d; send one JSON object in UTF-8", problem, i),
	}
	return false
}

// halfPair refuses the escape at byte i. Grammars of JSON allow it, but it stands for no
// character, and engines fail where they encode it.
func (s *scanner) halfPair(i int) bool {
	s.fail = &RequestError{
		Reason:  CodeInvalidValue,
		Message: fmt.Sprintf("half of a surrogate pair at byte %d is no character: send both halves, or the character in UTF-8", i),
	}
	return false
}

// space skips white space and returns the byte that follows, 0 at the end. No
// JSON token begins with a zero byte, so a caller needs no second check.
func (s *scanner) space() byte {
	b, i := s.b, s.i
	for i < len(b) {
		switch b[i] {
		case ' ', '\n', '\t', '\r':
			i++
		default:
			s.i = i
			return b[i]
		}
	}
	s.i = i
	return 0
}

// unexpected refuses the next byte where wanted should stand.
func (s *scanner) unexpected(wanted string) bool {
	if s.i >= len(s.b) {
		return s.syntax(len(s.b), "it ends where "+wanted+" should stand,")
	}
	return s.syntax(s.i, "expected "+wanted)
}

const (
	eachByte = 0x0101010101010101 // times a byte: that byte in all eight places
	highBits = 0x80 * eachByte
)

// plain returns the first index from i on of a byte that is not plain text: a
// quote, a backslash, a control character or a part of a wide character; len(b)
// when there is none. It looks at eight bytes at a time: in each sum the lowest
// byte that is not plain is the lowest whose high bit is set, because nothing
// borrows below it.
func plain(b []byte, i int) int {
	for i+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[i:])
		quote := x ^ '"'*eachByte
		slash := x ^ '\\'*eachByte
		m := (x | (x - 0x20*eachByte) | (quote - eachByte) | (slash - eachByte)) & highBits
		if m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		i += 8
	}
	for i < len(b) && b[i] >= 0x20 && b[i] < utf8.RuneSelf && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// str reads the string whose opening quote is the next byte.
func (s *scanner) str() (t text, ok bool) {
	b := s.b
	i := s.i + 1
	t.from = i
	raw := 0 // bytes that are not plain text
	for {
		i = plain(b, i)
		if i >= len(b) {
			return t, s.syntax(len(b), "a string without its closing quote")
		}
		switch c := b[i]; {
		case c == '"':
			t.to = i
			t.ascii += i - t.from - raw
			t.bytes += t.ascii
			s.i = i + 1
			return t, true
		case c == '\\':
			r, n := escape(b[i:])
			if n == 0 {
				return t, s.syntax(i, "an escape that JSON does not have")
			}
			t.escaped = true
			if r < utf8.RuneSelf {
				t.ascii++
			} else {
				if half, _ := hex4(b[i:]); r == utf8.RuneError && utf16.IsSurrogate(half) {
					return t, s.halfPair(i)
				}
				t.wide++
				t.bytes += utf8.RuneLen(r)
			}
			raw += n
			i += n
		case c < 0x20:
			return t, s.syntax(i, `a control character inside a string (write it as an escape such as \n)`)
		default:
			for i < len(b) && b[i] >= utf8.RuneSelf {
				r, n := utf8.DecodeRune(b[i:])
				if r == utf8.RuneError && n == 1 {
					return t, s.syntax(i, "bytes that are not UTF-8")
				}
				t.wide++
				t.bytes += n
				raw += n
				i += n
			}
		}
	}
}

// escape decodes the escape that b begins with and returns its character and
// its length in b, two escapes for a surrogate pair. A surrogate without its
// other half is U+FFFD. A length of 0: b begins with no escape of JSON.
func escape(b []byte) (r rune, n int) {
	if len(b) < 2 {
		return 0, 0
	}
	switch b[1] {
	case '"', '\\', '/':
		return rune(b[1]), 2
	case 'n':
		return '\n', 2
	case 't':
		return '\t', 2
	case 'r':
		return '\r', 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'u':
		r, ok := hex4(b)
		if !ok {
			return 0, 0
		}
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		if low, ok := hex4(b[6:]); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return pair, 12
			}
		}
		return utf8.RuneError, 6
	}
	return 0, 0
}

// hex4 decodes the \uXXXX that b begins with.
func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// appendDecoded appends to dst the value of a string that str has accepted, of
// which raw are the bytes between the quotes, and stops before the character
// that would make dst longer than most.
func appendDecoded(dst, raw []byte, most int) []byte {
	for len(raw) > 0 {
		r, n := rune(raw[0]), 1
		switch {
		case r == '\\':
			r, n = escape(raw)
		case r >= utf8.RuneSelf:
			r, n = utf8.DecodeRune(raw)
		}
		if len(dst)+utf8.RuneLen(r) > most {
			break
		}
		dst = utf8.AppendRune(dst, r)
		raw = raw[n:]
	}
	return dst
}

// number reads the number that begins at the next byte.
func (s *scanner) number() bool {
	b, i := s.b, s.i
	digits := func(i int) int {
		for i < len(b) && '0' <= b[i] && b[i] <= '9' {
			i++
		}
		return i
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	whole := i
	if i = digits(i); i == whole {
		return s.unexpected("a value")
	}
	if b[whole] == '0' && i > whole+1 {
		return s.syntax(whole, "a number with a leading zero")
	}
	if i < len(b) && b[i] == '.' {
		i++
		fraction := i
		if i = digits(i); i == fraction {
			return s.syntax(i, "a number without digits after its point")
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		exponent := i
		if i = digits(i); i == exponent {
			return s.syntax(i, "a number without digits in its exponent")
		}
	}
	s.i = i
	return true
}

// literal reads the word w, of which the first byte is known to stand next.
func (s *scanner) literal(w string) bool {
	if len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		return s.unexpected("a value")
	}
	s.i += len(w)
	return true
}

// open enters the object or array whose bracket is the next byte.
func (s *scanner) open() bool {
	if s.depth >= s.limit {
		s.fail = &RequestError{
			Reason:  CodeJSONTooDeep,
			Message: fmt.Sprintf("the request body nests objects and arrays more than %d deep at byte %d; send a flatter one", s.limit, s.i),
		}
		return false
	}
	s.depth++
	s.i++
	return true
}

// key reads a member's name and its colon, and leaves the next byte at the
// member's value.
func (s *scanner) key() (t text, ok bool) {
	if s.space() != '"' {
		return t, s.unexpected("a name in quotes")
	}
	if t, ok = s.str(); !ok {
		return t, false
	}
	if s.space() != ':' {
		return t, s.unexpected("a colon")
	}
	s.i++
	s.space()
	return t, true
}

// more reads what follows an element: a comma, after which another must come,
// or the closing bracket, which ends the container. first is true before the
// first element, where no comma stands.
func (s *scanner) more(closing byte, first bool) (again, ok bool) {
	c := s.space()
	switch {
	case c == closing:
		s.i++
		s.depth--
		return false, true
	case first:
		return true, true
	case c == ',':
		s.i++
		return true, true
	case closing == '}':
		return false, s.unexpected("a comma or a closing brace")
	}
	return false, s.unexpected("a comma or a closing bracket")
}

// skip reads one value of any kind, checks it and forgets it.
func (s *scanner) skip() bool {
	switch s.space() {
	case '"':
		_, ok := s.str()
		return ok
	case '{':
		if !s.open() {
			return false
		}
		for first := true; ; first = false {
			again, ok := s.more('}', first)
			if !again {
				return ok
			}
			if _, ok := s.key(); !ok || !s.skip() {
				return false
			}
		}
	case '[':
		if !s.open() {
			return false
		}
		for first := true; ; first = false {
			again, ok := s.more(']', first)
			if !again {
				return ok
			}
			if !s.skip() {
				return false
			}
		}
	}
	return s.scalar()
}

// scalar reads a number, true, false or null.
func (s *scanner) scalar() bool {
	if s.i < len(s.b) {
		switch s.b[s.i] {
		case 't':
			return s.literal("true")
		case 'f':
			return s.literal("false")
		case 'n':
			return s.literal("null")
		}
	}
	return s.number()
}
