package answers

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Lengths of the texts in characters that are compared by their meaning. Shorter ones have too little of it, and longer
// ones differ in details that an embedding does not show.
const (
	leastNear = 16
	mostNear  = 2000
)

// closing returns the character that ends a quotation, or 0.
func closing(open rune) rune {
	switch open {
	case '"', '`', '\'':
		return open
	case '“':
		return '”'
	case '„':
		return '“'
	case '«':
		return '»'
	case '»':
		return '«'
	case '‘':
		return '’'
	case '「':
		return '」'
	}
	return 0
}

// Marks returns what two texts must have in common to be compared by their meaning: their numbers and quotations, in
// order. ok is false for a text that is too short or too long.
func Marks(text string) (marks string, ok bool) {
	if n := utf8.RuneCountInString(text); n < leastNear || n > mostNear {
		return "", false
	}
	var b strings.Builder
	before := ' '
	inNumber, quotedTo := false, 0
	unclosed := "" // characters that begin no quotation in the rest
	for at, r := range text {
		digit := unicode.IsNumber(r)
		if digit && !inNumber {
			b.WriteByte(0)
		}
		if inNumber = digit; digit {
			b.WriteRune(r)
		}
		if at >= quotedTo && closing(r) != 0 && !strings.ContainsRune(unclosed, r) && !isApostrophe(r, before) {
			if inside, quoted := quotation(text[at:], r); quoted {
				b.WriteString("\x00\"" + inside)
				quotedTo = at + utf8.RuneLen(r) + len(inside) + utf8.RuneLen(closing(r))
			} else {
				unclosed += string(r)
			}
		}
		before = r
	}
	return b.String(), true
}

// isWord reports whether a character belongs to a word.
func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// isApostrophe reports whether a quotation mark after a character is an apostrophe.
func isApostrophe(r, before rune) bool { return r == '\'' && isWord(before) }

// quotation returns what is inside the quotation that a text begins with.
func quotation(text string, open rune) (inside string, ok bool) {
	rest, end := text[utf8.RuneLen(open):], closing(open)
	for at, r := range rest {
		if r != end {
			continue
		}
		after, _ := utf8.DecodeRuneInString(rest[at+utf8.RuneLen(r):])
		if (r == '\'' || r == '’') && isWord(after) { // an apostrophe inside
			continue
		}
		return rest[:at], true
	}
	return "", false
}
