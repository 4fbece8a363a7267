package engines

import (
	"regexp/syntax"
	"strings"
)

// The bounds of a search for a text that a pattern accepts. Comparing a text with its
// pattern takes up to characters × instructions.
const (
	mostMatchTries = 96
	mostMatchWork  = 16 << 20
)

// matching makes up a text that a rule with a pattern accepts; false where none was
// found in time. It throws dice first, then lets every open repetition run to the
// same length, one longer with each try.
func matching(rule textRule, d *dice) (string, bool) {
	const thrown = 24
	m := matcher{dice: d, cost: rule.size, left: mostMatchWork}
	for try := range mostMatchTries {
		m.exact, m.reach = try >= thrown, 4
		if m.exact {
			m.reach = try - thrown
			if most := max(rule.least, rule.most); most > mostMatchTries-thrown {
				m.reach += rule.least // long texts: from the least length on
			}
		}
		m.b.Reset()
		m.append(rule.tree)
		if m.left < 0 {
			break
		}
		if text := m.b.String(); rule.accepts(text) {
			return text, true
		}
	}
	return "", false
}

// matcher writes a text that follows the tree of a pattern.
type matcher struct {
	b          strings.Builder
	dice       *dice
	reach      int  // how often what may repeat for ever repeats, beyond its least
	exact      bool // just as often, not up to that
	cost, left int  // work: of each step, and until the end
}

func (m *matcher) append(re *syntax.Regexp) {
	if m.left -= m.cost * (1 + len(re.Rune)); m.left < 0 {
		return
	}
	switch re.Op {
	case syntax.OpLiteral:
		m.b.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		m.b.WriteRune(pickRune(re.Rune, m.dice))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		m.b.WriteByte(byte('a' + m.dice.roll(26)))
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range re.Sub {
			m.append(sub)
		}
	case syntax.OpAlternate:
		m.append(re.Sub[m.dice.roll(len(re.Sub))])
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		for n := m.repeats(re); n > 0 && m.left >= 0; n-- {
			m.append(re.Sub[0])
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

// repeats is how often a repetition's pattern is written.
func (m *matcher) repeats(re *syntax.Regexp) int {
	least, most := re.Min, re.Max
	switch re.Op {
	case syntax.OpStar:
		least, most = 0, -1
	case syntax.OpPlus:
		least, most = 1, -1
	case syntax.OpQuest:
		least, most = 0, 1
	}
	more := m.reach
	if most >= 0 {
		more = min(more, most-least)
	}
	if !m.exact {
		more = m.dice.roll(more + 1)
	}
	return least + more
}
