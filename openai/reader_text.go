package openai

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

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

// checked is Str of a strict reader: it checks what is inside the string and counts it.
func (r *Reader) checked() []byte {
	b := r.b
	from := r.i + 1
	i := from
	n := extent{}
	raw := 0 // bytes that are not plain text
	for {
		i = plain(b, i)
		if i >= len(b) {
			r.syntax(len(b), "unterminated string")
			return nil
		}
		switch c := b[i]; {
		case c == '"':
			n.ascii += i - from - raw
			n.bytes += n.ascii
			r.chars = n
			r.i = i + 1
			return b[from:i]
		case c == '\\':
			char, size := escape(b[i:])
			if size == 0 {
				r.syntax(i, "invalid escape sequence")
				return nil
			}
			if char < utf8.RuneSelf {
				n.ascii++
			} else {
				if half, _ := hex4(b[i:]); char == utf8.RuneError && utf16.IsSurrogate(half) {
					// Grammars of JSON allow it, but engines fail where they encode it.
					r.refuse(CodeInvalidValue, "",
						"unpaired surrogate escape at byte %d: send both halves of the pair, or the character in UTF-8", i)
					return nil
				}
				n.wide++
				n.bytes += utf8.RuneLen(char)
			}
			raw += size
			i += size
		case c < 0x20:
			r.syntax(i, `unescaped control character in a string (write an escape such as \n)`)
			return nil
		default:
			for i < len(b) && b[i] >= utf8.RuneSelf {
				char, size := utf8.DecodeRune(b[i:])
				if char == utf8.RuneError && size == 1 {
					r.syntax(i, "invalid UTF-8")
					return nil
				}
				n.wide++
				n.bytes += size
				raw += size
				i += size
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

// Escaped reports whether the value of a string is not what is written.
func Escaped(raw []byte) bool { return bytes.IndexByte(raw, '\\') >= 0 }

// Unescape writes to dst[n:] what raw decodes to, a string as a Reader returns it, and
// returns how much of dst is written and what of raw is left. It stops only at most
// bytes, which must leave room for one character in dst: a character whose escape
// begins before most is written whole.
func Unescape(dst, raw []byte, n, most int) (written int, rest []byte) {
	for n < most && len(raw) > 0 {
		if raw[0] == '\\' {
			r, size := escape(raw)
			if size == 0 { // only in a text that nobody has checked
				r, size = '\\', 1
			}
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

// decoded returns the value of a string, cut before the character that would make it
// longer than most.
func decoded(raw []byte, most int) []byte {
	if len(raw) <= most && !Escaped(raw) {
		return raw
	}
	most = min(most, len(raw))
	b := make([]byte, most+1+utf8.UTFMax)
	n, _ := Unescape(b, raw, 0, most+1)
	if n > most {
		for n = most; n > 0 && !utf8.RuneStart(b[n]); {
			n--
		}
	}
	return b[:n]
}

// wordBytes bounds what Word returns, beyond all words that a value is compared with.
const wordBytes = 64

// Word returns the value of a string that is compared with short words, its escapes
// resolved. A longer value may be cut.
func Word(raw []byte) []byte {
	if !Escaped(raw) {
		return raw
	}
	return decoded(raw, wordBytes)
}

// textOf returns the value of a string that nobody has checked, as valid UTF-8.
func textOf(raw []byte) string {
	return strings.ToValidUTF8(string(decoded(raw, len(raw))), "\uFFFD")
}
