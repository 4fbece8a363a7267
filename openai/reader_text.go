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
	eachByte = 0x0101010101010101 // times a byte: the byte repeated eight times
	highBits = 0x80 * eachByte
)

// plainEnd returns the end of the plain text that begins at i: the index of the next quote,
// backslash, control character or byte of a wide character, or len(b).
func plainEnd(b []byte, i int) int {
	rest := b[i:]
	for len(rest) >= 16 {
		low := notPlain(binary.LittleEndian.Uint64(rest))
		high := notPlain(binary.LittleEndian.Uint64(rest[8:]))
		if low != 0 {
			return len(b) - len(rest) + bits.TrailingZeros64(low)>>3
		}
		if high != 0 {
			return len(b) - len(rest) + 8 + bits.TrailingZeros64(high)>>3
		}
		rest = rest[16:]
	}
	for i = len(b) - len(rest); i < len(b) && b[i] >= 0x20 && b[i] < utf8.RuneSelf && b[i] != '"' && b[i] != '\\'; {
		i++
	}
	return i
}

// notPlain returns 0 if eight bytes are plain text. Otherwise the lowest set bit belongs to the first other byte,
// because no lower byte borrows in the differences.
func notPlain(x uint64) uint64 {
	// With bit 1 flipped, exactly the control characters and the quote are below 0x21.
	quote, slash := x^0x02*eachByte, x^'\\'*eachByte
	return (x | (quote - 0x21*eachByte) | (slash - eachByte)) & highBits
}

// checkedStr is Str of a strict reader: it validates the string and counts its characters.
func (r *Reader) checkedStr() []byte {
	b := r.b
	from := r.i + 1
	i := from
	n := extent{}
	raw := 0 // bytes of escapes and wide characters
	for {
		i = plainEnd(b, i)
		if i >= len(b) {
			r.rejectSyntax(len(b), "unterminated string")
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
			char, size := decodeEscape(b[i:])
			if size == 0 {
				r.rejectSyntax(i, "invalid escape sequence")
				return nil
			}
			if char < utf8.RuneSelf {
				n.ascii++
			} else {
				if half, _ := hex4(b[i:]); char == utf8.RuneError && utf16.IsSurrogate(half) {
					// JSON allows it, but engines fail when they encode it.
					r.reject(CodeInvalidValue, "",
						"unpaired surrogate escape at byte %d: send both halves of the pair, or the character in UTF-8", i)
					return nil
				}
				n.wide++
				n.bytes += utf8.RuneLen(char)
			}
			raw += size
			i += size
		case c < 0x20:
			r.rejectSyntax(i, `unescaped control character in a string (write an escape such as \n)`)
			return nil
		default:
			for i < len(b) && b[i] >= utf8.RuneSelf {
				char, size := utf8.DecodeRune(b[i:])
				if char == utf8.RuneError && size == 1 {
					r.rejectSyntax(i, "invalid UTF-8")
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

// decodeEscape decodes the escape at the start of b and returns its character and its length in b; a
// surrogate pair has two escapes. An unpaired surrogate becomes U+FFFD. A length of 0 means an
// invalid escape.
func decodeEscape(b []byte) (r rune, n int) {
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

// hex4 decodes the \uXXXX at the start of b.
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

// Escaped reports whether a raw string contains escapes.
func Escaped(raw []byte) bool { return bytes.IndexByte(raw, '\\') >= 0 }

// Unescape decodes raw, a string as a Reader returns it, into dst[n:]. It returns the written length
// of dst and the rest of raw. It stops when at least limit bytes are written. dst must have room for
// limit+utf8.UTFMax bytes, because a character whose escape begins before limit is written
// completely.
func Unescape(dst, raw []byte, n, limit int) (written int, rest []byte) {
	for n < limit && len(raw) > 0 {
		if raw[0] == '\\' {
			r, size := decodeEscape(raw)
			if size == 0 { // only in unchecked text
				r, size = '\\', 1
			}
			n += utf8.EncodeRune(dst[n:], r)
			raw = raw[size:]
			continue
		}
		run := raw[:min(len(raw), limit-n)]
		if slash := bytes.IndexByte(run, '\\'); slash >= 0 {
			run = run[:slash]
		}
		n += copy(dst[n:], run)
		raw = raw[len(run):]
	}
	return n, raw
}

// decoded returns the decoded string, cut to at most limit bytes at a character boundary.
func decoded(raw []byte, limit int) []byte {
	if len(raw) <= limit && !Escaped(raw) {
		return raw
	}
	limit = min(limit, len(raw))
	b := make([]byte, limit+1+utf8.UTFMax)
	n, _ := Unescape(b, raw, 0, limit+1)
	if n > limit {
		for n = limit; n > 0 && !utf8.RuneStart(b[n]); {
			n--
		}
	}
	return b[:n]
}

// wordBytes is the maximum length of Word's result in bytes. All known names and values are shorter.
const wordBytes = 64

// Word decodes a string that is compared with short words. A longer value may be cut.
func Word(raw []byte) []byte {
	if !Escaped(raw) {
		return raw
	}
	return decoded(raw, wordBytes)
}

// textOf decodes an unchecked string to valid UTF-8.
func textOf(raw []byte) string {
	return strings.ToValidUTF8(string(decoded(raw, len(raw))), "\uFFFD")
}
