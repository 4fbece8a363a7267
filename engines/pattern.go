package engines

import (
	"regexp"
	"regexp/syntax"
	"strings"
)

// matching makes up a text that a regular expression matches; false where the
// expression is none that Go knows, or demands what the walk cannot promise.
func matching(pattern string, d *dice) (string, bool) {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return "", false
	}
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return "", false
	}
	var b strings.Builder
	appendMatch(&b, tree, d)
	return b.String(), compiled.MatchString(b.String())
}

func appendMatch(b *strings.Builder, re *syntax.Regexp, d *dice) {
	switch re.Op {
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		b.WriteRune(pickRune(re.Rune, d))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte(byte('a' + d.roll(26)))
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range re.Sub {
			appendMatch(b, sub, d)
		}
	case syntax.OpAlternate:
		appendMatch(b, re.Sub[d.roll(len(re.Sub))], d)
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		for range repeats(re, d) {
			appendMatch(b, re.Sub[0], d)
		}
	}
	// The rest are anchors and empty matches: they write nothing.
}

// pickRune takes a character of a class, a printable ASCII one if there is one: a
// negated class begins with control characters.
func pickRune(ranges []rune, d *dice) rune {
	for i := 0; i+1 < len(ranges); i += 2 {
		low, high := max(ranges[i], '!'), min(ranges[i+1], '~')
		if low <= high {
			return low + rune(d.roll(int(high-low)+1))
		}
	}
	if len(ranges) == 0 {
		return 'x'
	}
	return ranges[0]
}

func repeats(re *syntax.Regexp, d *dice) int {
	switch re.Op {
	case syntax.OpStar:
		return d.roll(4)
	case syntax.OpPlus:
		return 1 + d.roll(4)
	case syntax.OpQuest:
		return d.roll(2)
	}
	if re.Max > re.Min {
		return re.Min + d.roll(min(re.Max-re.Min, 4)+1)
	}
	return re.Min
}
