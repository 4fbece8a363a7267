package tiers

import (
	"regexp/syntax"
	"unicode"
	"unicode/utf8"
)

// What an unbounded repetition is taken to be at most, in bytes, where the
// expression runs in a window: a paragraph, or the white space of a line break
// with its indentation. A match that needs more around its literal is not found.
const (
	farRepeat   = 256
	blankRepeat = 64
)

// everywhere is the reach of an expression that has to see the whole text.
const everywhere = -1

// reach returns how many bytes of a text a match can have at most, so that a
// window of as many bytes to each side of a literal in it holds the match; or
// everywhere. bounded is false when an unbounded repetition was cut short.
func reach(re *syntax.Regexp) (bytes int, bounded bool) {
	if anchored(re) {
		return everywhere, true
	}
	bytes, bounded = longest(re)
	if bytes > 2*TextLimit {
		return everywhere, bounded
	}
	return bytes, bounded
}

// anchored tells whether the expression asks where the text or a line begins or
// ends, which a window cannot tell.
func anchored(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText:
		return true
	}
	for _, sub := range re.Sub {
		if anchored(sub) {
			return true
		}
	}
	return false
}

// longest returns the most bytes that the expression matches.
func longest(re *syntax.Regexp) (bytes int, bounded bool) {
	bounded = true
	switch re.Op {
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			bytes += widest(orbit(r))
		}
	case syntax.OpCharClass:
		if len(re.Rune) > 0 {
			bytes = widest(re.Rune[len(re.Rune)-1:])
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		bytes = utf8.UTFMax
	case syntax.OpStar, syntax.OpPlus, syntax.OpRepeat:
		return repeated(re)
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			n, b := longest(sub)
			bytes, bounded = max(bytes, n), bounded && b
		}
	default: // all others match their parts one after the other, or nothing
		for _, sub := range re.Sub {
			n, b := longest(sub)
			bytes, bounded = bytes+n, bounded && b
		}
	}
	return bytes, bounded
}

func repeated(re *syntax.Regexp) (bytes int, bounded bool) {
	n, bounded := longest(re.Sub[0])
	switch {
	case n == 0:
		return 0, bounded
	case re.Op == syntax.OpRepeat && re.Max >= 0:
		return n * re.Max, bounded
	case blank(re.Sub[0]):
		return max(re.Min*n, blankRepeat), false
	}
	return max(re.Min*n, 0) + farRepeat, false
}

// blank tells whether the expression is one character of white space.
func blank(re *syntax.Regexp) bool {
	if re.Op != syntax.OpCharClass && re.Op != syntax.OpLiteral {
		return false
	}
	for _, r := range re.Rune {
		if !unicode.IsSpace(r) {
			return false
		}
	}
	return true
}

// widest returns the most bytes that one of the characters takes.
func widest(runes []rune) int {
	n := 0
	for _, r := range runes {
		w := utf8.RuneLen(r)
		if w < 0 {
			w = utf8.UTFMax
		}
		n = max(n, w)
	}
	return n
}
