package tiers

import (
	"regexp"
	"slices"
	"sync"
	"unicode/utf8"
)

// place is where a group looks, as bits.
type source uint8

const (
	inUser source = 1 << iota
	inSystem
)

// group is a compiled Keyword.
type group struct {
	name   string
	rule   string // keyword:name
	tier   int
	weight float64
	in     source
}

// expression is one of a group's regular expressions.
type expression struct {
	group int
	in    source
	match *regexp.Regexp
	needs []string // of these texts one is in every match; none: nothing is known
	reach int      // bytes to each side of a literal that a match can need, or everywhere
}

// matcher finds the groups that a text speaks for. The literals that the
// expressions require are found in one pass; a regular expression runs only in
// windows around its own literals, which do not overlap but where the halves of
// the text meet, so that the time is linear in the text. It is immutable but for its spare scratch space.
type matcher struct {
	groups      []group
	expressions []expression
	loose       []int32 // expressions that require no literal: they run on the whole text
	automaton   *automaton
	in          source // where any group looks
	spare       sync.Pool
}

func newMatcher(groups []group, expressions []expression) *matcher {
	m := &matcher{groups: groups, expressions: expressions}
	var all []literal
	for i, e := range expressions {
		m.in |= e.in
		if len(e.needs) == 0 {
			m.loose = append(m.loose, int32(i))
		}
		for _, text := range e.needs {
			all = append(all, literal{text: text, owner: int32(i)})
		}
	}
	m.automaton = newAutomaton(all)
	m.spare.New = func() any {
		return &search{m: m, matched: make([]bool, len(groups)), windows: make([]window, 2*len(expressions))}
	}
	return m
}

// begin returns a search that has found nothing. It is owed to end.
func (m *matcher) begin() *search { return m.spare.Get().(*search) }

// end takes a search back.
func (m *matcher) end(s *search) {
	clear(s.matched)
	m.spare.Put(s)
}

// search is the state of one request's matching.
type search struct {
	m         *matcher
	matched   []bool   // by group
	windows   []window // by half of the text and expression: where it is still to run
	touched   []int32  // the windows that were opened
	at        source   // of the text
	userBytes int      // of the last user turn
}

// window is part of a text; empty when to is 0.
type window struct{ from, to int }

// look adds the groups that speak for a text. More than its first and last
// TextLimit bytes are not looked at.
func (s *search) scan(text []byte, at source) {
	if s.m.in&at == 0 || len(text) == 0 {
		return
	}
	if len(text) > 2*TextLimit+utf8.UTFMax { // the caller may have put a mark between the two
		tail := len(text) - TextLimit
		s.scanPart(text[:runeStart(text, TextLimit)], at)
		s.scanPart(text[runeStart(text, tail):], at)
		return
	}
	s.scanPart(text, at)
}

// part is look for a text of bounded length.
func (s *search) scanPart(text []byte, at source) {
	s.at = at
	s.m.automaton.findLiterals(text, s)
	for _, i := range s.touched {
		s.runWindow(i, text)
	}
	s.touched = s.touched[:0]
	for _, i := range s.m.loose {
		if e := &s.m.expressions[i]; e.in&at != 0 && !s.matched[e.group] {
			s.matched[e.group] = e.match.Match(text)
		}
	}
}

// hit notes that a literal of an expression ends at a place. Ends come in
// ascending order within each half.
func (s *search) addWindow(owner int32, half int, text []byte, end int) {
	e := &s.m.expressions[owner]
	if e.in&s.at == 0 || s.matched[e.group] {
		return
	}
	i := owner + int32(half*len(s.m.expressions))
	w, found := &s.windows[i], window{0, len(text)}
	if e.reach != everywhere {
		found = window{max(end-e.reach, 0), min(end+e.reach, len(text))}
	}
	if w.to == 0 {
		s.touched = append(s.touched, i)
		*w = found
		return
	}
	if found.from > w.to {
		w.to = wordEnd(text, w.to)
	}
	if found.from <= w.to {
		w.to = max(w.to, found.to)
		return
	}
	s.runWindow(i, text)
	*w = found
}

// run matches an expression in one of its windows, and empties that.
func (s *search) runWindow(i int32, text []byte) {
	e, w := &s.m.expressions[int(i)%len(s.m.expressions)], s.windows[i]
	s.windows[i] = window{}
	if s.matched[e.group] {
		return
	}
	// Cut between characters and outside words, the window looks to the
	// expression as the whole text does, \b included. No two windows of a half
	// meet: before each stands the byte that ended the last.
	from, to := runeStart(text, w.from), wordEnd(text, w.to)
	for from > 0 && isWordByte(text[from-1]) {
		from--
	}
	s.matched[e.group] = e.match.Match(text[from:to])
}

// runeStart returns the beginning of the character that the byte at i is in.
func runeStart(text []byte, i int) int {
	for n := 0; n < utf8.UTFMax && n <= i; n++ {
		if utf8.RuneStart(text[i-n]) {
			return i - n
		}
	}
	return i // such a run of bytes is no UTF-8, and each stands for itself
}

// wordEnd returns where the word or character ends that the bytes at both sides
// of i are in; i itself when there is none.
func wordEnd(text []byte, i int) int {
	for i < len(text) && (isWordByte(text[i]) || !utf8.RuneStart(text[i])) {
		i++
	}
	return i
}

// word tells whether \b takes a byte for part of a word.
func isWordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// names returns the names of the matched groups, in the order of the configuration.
func (s *search) names() []string {
	var all []string
	for i, matched := range s.matched {
		if matched {
			all = append(all, s.m.groups[i].name)
		}
	}
	return slices.Clip(all)
}
