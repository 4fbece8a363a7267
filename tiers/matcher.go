package tiers

import (
	"regexp"
	"slices"
	"sync"
	"unicode/utf8"
)

// source is a set of texts that a group searches, as bits.
type source uint8

const (
	inUser source = 1 << iota
	inSystem
)

type group struct {
	name   string
	rule   string // keyword:NAME
	tier   int
	weight float64
	in     source
	preset bool // a built-in group
}

// expression is one of a group's regular expressions.
type expression struct {
	group int
	in    source
	match *regexp.Regexp
	needs []string // each match contains one of these; empty: unknown
	reach int      // bytes on each side of a literal that a match can need, or everywhere
	size  int      // as maxSize counts it
}

// matcher finds the groups that match a text. The literals that the expressions require are
// found in one pass. A regular expression runs only in windows around its own literals. Windows
// do not overlap except where the halves of the text meet, so that the time is linear in the
// text. A matcher is immutable except for its pool of searches.
type matcher struct {
	groups      []group
	expressions []expression
	loose       []int32 // expressions that require no literal: they run on the whole text
	automaton   *automaton
	in          source // sources of all groups
	searches    sync.Pool
}

// newMatcher returns the matcher of groups and their expressions. The automaton is that of the expressions.
func newMatcher(groups []group, expressions []expression, a *automaton) *matcher {
	m := &matcher{groups: groups, expressions: expressions, automaton: a}
	for i, e := range expressions {
		m.in |= e.in
		if len(e.needs) == 0 {
			m.loose = append(m.loose, int32(i))
		}
	}
	m.searches.New = func() any {
		return &search{m: m, matched: make([]bool, len(groups)), windows: make([]window, 2*len(expressions))}
	}
	return m
}

// begin returns an empty search. The caller must return it with end.
func (m *matcher) begin() *search { return m.searches.Get().(*search) }

func (m *matcher) end(s *search) {
	clear(s.matched)
	s.thresholds, s.scores = s.thresholds[:0], Scores{}
	m.searches.Put(s)
}

// search is the state of matching one request.
type search struct {
	m         *matcher
	matched   []bool   // by group
	windows   []window // by half of the text and expression: where the expression is still to run
	touched   []int32  // indexes of the open windows
	at        source   // source of the present text
	userBytes int      // length of the last user turn
	scores    Scores   // of the request, after its texts were searched
	score     float64  // the one that thresholds are about
	// thresholds on the score that decide the request, highest tier first; empty: keyword_score decides
	thresholds []threshold[float64]
}

// window is part of a text; empty when to is 0.
type window struct{ from, to int }

// scan adds the groups that match a text. It searches only the first and last TextLimit bytes.
func (s *search) scan(text []byte, at source) {
	if s.m.in&at == 0 || len(text) == 0 {
		return
	}
	if len(text) > 2*TextLimit+utf8.UTFMax { // the caller may have put a mark between the two ends
		tail := len(text) - TextLimit
		s.scanPart(text[:runeStart(text, TextLimit)], at)
		s.scanPart(text[runeStart(text, tail):], at)
		return
	}
	s.scanPart(text, at)
}

// scanPart is scan for a text of bounded length.
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

// addWindow records that a literal of an expression ends at a place. Ends come in ascending
// order within each half.
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

// runWindow matches an expression in one of its windows, and clears the window.
func (s *search) runWindow(i int32, text []byte) {
	e, w := &s.m.expressions[int(i)%len(s.m.expressions)], s.windows[i]
	s.windows[i] = window{}
	if s.matched[e.group] {
		return
	}
	// The window is cut between characters and outside words, so that the
	// expression matches as in the whole text, including \b. No two windows of a half
	// meet: the byte that ended the last window is between them.
	from, to := runeStart(text, w.from), wordEnd(text, w.to)
	for from > 0 && isWordByte(text[from-1]) {
		from--
	}
	s.matched[e.group] = e.match.Match(text[from:to])
}

func runeStart(text []byte, i int) int {
	for n := 0; n < utf8.UTFMax && n <= i; n++ {
		if utf8.RuneStart(text[i-n]) {
			return i - n
		}
	}
	return i // not UTF-8: each byte stands for itself
}

// wordEnd returns the end of the word or character that contains the bytes on both sides of i;
// i if there is none.
func wordEnd(text []byte, i int) int {
	for i < len(text) && (isWordByte(text[i]) || !utf8.RuneStart(text[i])) {
		i++
	}
	return i
}

// isWordByte reports whether \b treats a byte as part of a word.
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
