package proxy

import (
	"html"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// escapes are the characters after a backslash that stand for a control character.
const escapes = "nrtbfva"

// fold returns the words of a text: its letters and digits in lower case, with one blank around each word. Escapes
// of JSON, Python and HTML are decoded however often they are escaped again, so that every notation of a text
// has the same words. Characters beyond U+FFFF are not in them.
func fold(text string) []byte {
	text = html.UnescapeString(text)
	out := append(make([]byte, 0, len(text)+2), ' ')
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		if r == '\\' {
			r, n = unescape(text)
		}
		switch text = text[n:]; {
		case r <= 0xFFFF && (unicode.IsLetter(r) || unicode.IsDigit(r)):
			out = utf8.AppendRune(out, unicode.ToLower(r))
		case out[len(out)-1] != ' ' && !unicode.Is(unicode.Mn, r) && !utf16.IsSurrogate(r) && r <= 0xFFFF:
			out = append(out, ' ')
		}
	}
	if out[len(out)-1] != ' ' {
		out = append(out, ' ')
	}
	return out
}

// unescape returns the character of the escape at the beginning of a text, and the length of its notation.
// Before it, any number of backslashes counts as one.
func unescape(text string) (r rune, n int) {
	rest := strings.TrimLeft(text, `\`)
	n = len(text) - len(rest)
	switch {
	case rest == "":
		return ' ', n
	case strings.IndexByte(escapes, rest[0]) >= 0:
		return ' ', n + 1
	case rest[0] == 'u':
		return hexRune(rest, n, 4)
	case rest[0] == 'x':
		return hexBytes(text, n)
	}
	return ' ', n
}

// hexRune returns the character of that number of hexadecimal digits after the letter of an escape.
func hexRune(rest string, slashes, digits int) (r rune, n int) {
	if len(rest) > digits {
		if code, err := strconv.ParseUint(rest[1:1+digits], 16, 32); err == nil {
			return rune(code), slashes + 1 + digits
		}
	}
	return ' ', slashes
}

// hexBytes returns the character of Python's notation of one character (\xe4) or of its bytes (\xc3\xa4).
func hexBytes(text string, slashes int) (r rune, n int) {
	var all []byte
	for end := 0; len(all) < utf8.UTFMax; end = n {
		rest := text[end:]
		if len(rest) < slashes+3 || strings.Trim(rest[:slashes], `\`) != "" || rest[slashes] != 'x' {
			break
		}
		code, err := strconv.ParseUint(rest[slashes+1:slashes+3], 16, 8)
		if err != nil {
			break
		}
		all, n = append(all, byte(code)), end+slashes+3
		if r, size := utf8.DecodeRune(all); size == len(all) && r != utf8.RuneError {
			return r, n
		}
	}
	if len(all) == 0 {
		return ' ', slashes
	}
	return rune(all[0]), slashes + 3
}
