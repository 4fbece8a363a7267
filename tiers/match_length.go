package tiers

import (
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// The assumed maximum of an unbounded repetition, in bytes, for an
// expression that runs in a window: a paragraph, or the white space of a line break
// with its indentation. A match that needs more around its literal is not found.
const (
	farRepeat   = 256
	blankRepeat = 64
)

// everywhere is the reach of an expression that needs the whole text.
const everywhere = -1

// reach returns the most bytes that a match can have, so that a window of that size on each
// side of a literal holds the match; or everywhere.
func reach(re *syntax.Regexp) int {
	if n := longest(re); n <= 2*TextLimit && !anchored(re) {
		return n
	}
	return everywhere
}

// anchored reports whether the expression depends on the begin or end of the text or of a line,
// which a window does not have.
func anchored(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText:
		return true
	}
	return slices.ContainsFunc(re.Sub, anchored)
}

// longest returns the most bytes that the expression matches, with the assumed maximum of
// unbounded repetitions.
func longest(re *syntax.Regexp) (n int) {
	switch re.Op {
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			n += widest(orbit(r))
		}
	case syntax.OpCharClass:
		if len(re.Rune) > 0 {
			n = widest(re.Rune[len(re.Rune)-1:])
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		n = utf8.UTFMax
	case syntax.OpStar, syntax.OpPlus, syntax.OpRepeat:
		switch n = longest(re.Sub[0]); {
		case n == 0:
		case re.Op == syntax.OpRepeat && re.Max >= 0:
			n *= re.Max
		case isSpace(re.Sub[0]):
			n = max(re.Min*n, blankRepeat)
		default:
			n = re.Min*n + farRepeat
		}
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			n = max(n, longest(sub))
		}
	default: // all others match their parts in sequence, or nothing
		for _, sub := range re.Sub {
			n += longest(sub)
		}
	}
	return n
}

// isSpace reports whether the expression is one character of white space.
func isSpace(re *syntax.Regexp) bool {
	if re.Op != syntax.OpCharClass && re.Op != syntax.OpLiteral {
		return false
	}
	return !slices.ContainsFunc(re.Rune, func(r rune) bool { return !unicode.IsSpace(r) })
}

// widest returns the most bytes of one of the characters.
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
