package tiers

import (
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// groupsOf returns a matcher with one group for each expression.
func groupsOf(t testing.TB, patterns ...string) *matcher {
	t.Helper()
	c := &checker{tiers: []string{"t"}, names: map[string]string{}}
	for i, pattern := range patterns {
		c.addGroup(fmt.Sprint(i), Keyword{Tier: "t", Name: fmt.Sprint(i), Match: []string{pattern}}, c.addExpression)
	}
	if len(c.errs) > 0 {
		t.Fatal(c.errs)
	}
	return newMatcher(c.groups, c.expressions, newAutomaton(c.expressions))
}

func matched(m *matcher, text string) []string {
	s := m.begin()
	defer m.end(s)
	s.scan([]byte(text), inUser)
	return s.names()
}

// bounded has expressions of every kind with matches of bounded length.
func bounded() []string {
	return []string{
		`prove`, `\bprove\b`, `step.by.step`, `\Bab`, `ab\B`, `^start`, `(?m)^line$`, `end\z`, `k[aeiou]{1,3}s`, `colou?r`,
		`(?-i:Go)lang`,
		`\d ?[+*/] ?\d`, `c\+\+`, `[^a]xy.{2}z`, `доказать`, `Straße`, `解释`, `ÅNGSTRÖM`, `sk|ks`, `(?s)a.b`,
		`\b(?:alpha|beta|gamma|delta)s?\b`,
		`x{3,5}y`, `(?:ab|cd){2}e`, `\xff`, `�z`, `.\bs\b.`, `\W-\W`, `aa`, `a{17}`, `(?:impl|re)(?:ement|ply)(?:ed|ing)?`,
	}
}

// TestWindowsMatchLikeTheWholeText compares with the regular expressions on the whole text.
func TestWindowsMatchLikeTheWholeText(t *testing.T) {
	m := groupsOf(t, bounded()...)
	var naive []*regexp.Regexp
	for _, pattern := range bounded() {
		naive = append(naive, regexp.MustCompile("(?i)"+pattern))
	}
	piece := rapid.OneOf(rapid.SampledFrom(append([]string{
		"prove", "PROVE", "step-by-step", "ab", "aab", "start", "line", "end", "koos", "Kas", "color", "colour", "Golang",
		"golang", "GOlang", "1 + 2", "1+2",
		"C++", "bxy12z", "axy12z", "Доказать", "ДОКАЗАТЬ", "STRASSE", "straße", "STRAẞE", "解释", "ångström", "ÅNGSTRÖM", "Åk",
		"sK", "a\nb", "alphas", "Beta", "gamma_", "xxxy", "ababe", "cdabE",
		"\xff", "\xe2", "\xe2\x84", "\xc5", "\x84\xaa", "\xffz", "elvin", "\u0161", "\u2014", "�z", "Kelvin", " s ", "s",
		" - ", "aaaaaaaaaaaaaaaaa", "implemented", "reply", "replying",
	}, " ", "\n", "", "_", ".", "x", "é", "😀", strings.Repeat("a", 40), strings.Repeat("\x80", 7))), rapid.String())
	rapid.Check(t, func(rt *rapid.T) {
		text := strings.Join(rapid.SliceOfN(piece, 0, 14).Draw(rt, "pieces"), "")
		// Long enough to be searched in halves that meet in the middle of it.
		if rapid.Bool().Draw(rt, "long") {
			filler := strings.Repeat(". ", rapid.IntRange(150, 200).Draw(rt, "filler"))
			text = filler[rapid.IntRange(0, len(filler)).Draw(rt, "cut"):] + text + filler
		}
		got := matched(m, text)
		for i, re := range naive {
			if want := re.MatchString(text); slices.Contains(got, fmt.Sprint(i)) != want {
				rt.Errorf("%s matches %q: want %v", re, text, want)
			}
		}
	})
}

func TestUnboundedExpressionsMatchWithinTheirWindow(t *testing.T) {
	m := groupsOf(t, `compare.*with`, `step\s+by`, `"\w+"`)
	for text, want := range map[string]string{
		"Compare this with that":                          "0",
		"compare this\nwith that":                         "",
		"step" + strings.Repeat(" ", 50) + "by":           "1",
		"compare " + strings.Repeat("x ", 100) + "with":   "0",
		`"` + strings.Repeat("x", 100) + `" and "` + `"`:  "2",
		"step" + strings.Repeat("\n", 2*TextLimit) + "by": "",
	} {
		if got := strings.Join(matched(m, text), " "); got != want {
			t.Errorf("%.40q...: %q, want %q", text, got, want)
		}
	}
}

func TestOnlyBothEndsOfALongTextAreSearched(t *testing.T) {
	m := groupsOf(t, `prove`, `\w+`, `first$`)
	filler := strings.Repeat("é ", 4*TextLimit)
	for name, c := range map[string]struct{ text, want string }{
		"beginning": {"prove " + filler, "0 1"},
		"end":       {filler + " prove", "0 1"},
		"middle":    {filler + " prove " + filler, ""},
	} {
		if got := strings.Join(matched(m, c.text), " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestWindowsMissNoMatchAtTheirEdges has texts that random tests hardly find.
func TestWindowsMissNoMatchAtTheirEdges(t *testing.T) {
	for name, c := range map[string]struct {
		pattern, text string
		want          bool
	}{
		"its first byte in another":   {"—z", "—z", true},
		"the long s's in another":     {"šz", "Šz", true},
		"no UTF-8 for U+FFFD":         {"\\x{fffd}z", "\xffz", true},
		"no UTF-8 for U+FFFD alone":   {"abc|\\x{fffd}", "\xff", true},
		"many alternatives":           {"[a-p][a-p][a-p]", "xxx pad", true},
		"two lists of many":           {"(?:[0-9]|[a-p])(?:[q-z]|[0-9]x)", "9x", true},
		"a repetition of up to three": {"(?:ab|c){1,3}d", "cd", true},
		"far but within":              {"compare.*with", "compare " + strings.Repeat("x ", 120) + "with", true},
		"the edge of a word":          {`\bab`, "xxab", false},
		"the edge of a long word":     {`\bab`, strings.Repeat("x", 500) + "ab" + strings.Repeat("x", 500), false},
		"the end of a word":           {`ab\b`, "abxx", false},
		"the end of the text":         {`ab$`, "ab ab", true},
		"not the end":                 {`ab$`, "ab abx", false},
	} {
		if got := len(matched(groupsOf(t, c.pattern), c.text)) == 1; got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestSearchLeavesNoStateBehind(t *testing.T) {
	m := groupsOf(t, `prove`, `abc.{0,9}z`)
	for range 3 {
		if got := matched(m, "prove abcz abc"); len(got) != 2 {
			t.Errorf("found %q", got)
		}
		if got := matched(m, "abc"); len(got) != 0 {
			t.Errorf("found %q in a text without", got)
		}
	}
}

// TestEachMatchContainsARequiredLiteral draws expressions and texts that they match, and checks
// that a required literal is there, within reach.
func TestEachMatchContainsARequiredLiteral(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pattern := drawPattern(rt, 3)
		text := rapid.StringMatching(pattern).Draw(rt, "text")
		parsed, err := syntax.Parse("(?i)"+pattern, syntax.Perl)
		if err != nil || !utf8.ValidString(text) {
			rt.Skip()
		}
		known := required(parsed)
		folded := strings.Map(fold, text)
		if needs := known.needs(); needs != nil &&
			!slices.ContainsFunc(needs, func(n string) bool { return strings.Contains(folded, n) }) {
			rt.Errorf("%s matches %q without any of %q", pattern, text, needs)
		}
		if known.known && !slices.Contains(known.exact, folded) {
			rt.Errorf("%s matches %q, which is not among %q", pattern, text, known.exact)
		}
		if n := reach(parsed); !unbounded(parsed) && n != everywhere && len(text) > n {
			rt.Errorf("%s matches the %d bytes of %q, and its window holds %d", pattern, len(text), text, n)
		}
	})
}

// drawPattern returns an expression of a few levels.
func drawPattern(rt *rapid.T, depth int) string {
	if depth == 0 {
		return rapid.SampledFrom([]string{"a", "bc", "K", "ß", "яж", "[xyz]", "[0-9]", ".", "", "解", "[a-d]e"}).Draw(rt,
			"atom")
	}
	a, b := drawPattern(rt, depth-1), drawPattern(rt, depth-1)
	return rapid.SampledFrom([]string{a + b, "(?:" + a + "|" + b + ")", "(?:" + a + ")?" + b, "(" + a + "){2}" + b,
		"(?:" + a + "){1,3}", "(?:" + a + ")+" + b, "(?:" + b + ")*" + a}).Draw(rt, "form")
}

func FuzzClassify(f *testing.F) {
	for _, pattern := range bounded() {
		f.Add(pattern, "prove that koos 1 + 2 \xff ends\n")
	}
	f.Add(`(((a*)+)?b){0,1000}`, "aaab")
	f.Add(`(?i)\b(?:х|y)+?$`, "Х")
	f.Fuzz(func(t *testing.T, pattern, said string) {
		r := Rules{Preset: "none",
			Keywords: []Keyword{{Tier: "b", Name: "n", Match: []string{pattern}, In: []string{"user", "system"}}}}
		k, err := NewClassifier(r, []string{"a", "b"}, nil)
		if err != nil || len(said) > 4096 || len(pattern) > 256 || strings.ContainsAny(said, "\u212a\u017f") {
			return
		}
		class := k.Classify(&ClassifierInput{User: says(said), System: says(said)})
		parsed, err := syntax.Parse("(?i)"+pattern, syntax.Perl)
		if err != nil {
			t.Fatalf("NewClassifier accepted an expression that does not parse: %v", err)
		}
		want, found := regexp.MustCompile("(?i)"+pattern).MatchString(said), class.Tier == 1
		if said == "" {
			want = false
		}
		if exact := reach(parsed) == everywhere || !unbounded(parsed); found != want && (exact || found) {
			t.Errorf("%q in %q: %v, want %v", pattern, said, found, want)
		}
	})
}

// plain returns a text of n bytes that no preset matches.
func plain(n int) []byte {
	return []byte(strings.Repeat("The quick brown fox jumps over the lazy dog, and then went home for tea with everyone. ",
		n/80+1)[:n])
}

func TestTextWithoutMatchAllocatesNothing(t *testing.T) {
	c := classifier(t, Rules{})
	said := plain(TextLimit)
	f := ClassifierInput{PromptTokens: 2000, MaxTokens: 100, User: func() []byte { return said }}
	if class := c.Classify(&f); class.Rule != "default" {
		t.Fatalf("the text matches: %+v", class)
	}
	// The minimum of 100 runs: a garbage collection empties the sync.Pool, and under the
	// race detector Put drops a quarter of its items.
	least := math.Inf(1)
	for range 100 {
		least = min(least, testing.AllocsPerRun(1, func() { c.Classify(&f) }))
	}
	if least > 0 {
		t.Errorf("%v allocations", least)
	}
}

func BenchmarkClassify(b *testing.B) {
	twenty := Rules{Preset: "none"}
	for i, word := range strings.Fields("prove debug refactor theorem algorithm implement analyse evaluate probability " +
		"derivative integral recursion concurrency benchmark optimise compiler kubernetes architecture classify extract") {
		twenty.Keywords = append(twenty.Keywords,
			Keyword{Tier: "large", Name: fmt.Sprint(i), Match: []string{`\b` + word + `\b`, `step.by.step ` + word}})
	}
	// Adjacent literals in one long word, none of which is a match.
	dense := Rules{Preset: "none", Keywords: []Keyword{{Tier: "large", Name: "dense", Match: []string{`\bprove\b`}}}}
	for name, c := range map[string]struct {
		rules Rules
		said  []byte
	}{
		"twenty": {twenty, plain(TextLimit)}, "groups": {Rules{}, plain(TextLimit)},
		"lesson": {Rules{Preset: "lesson"}, plain(TextLimit)},
		"dense":  {dense, []byte(strings.Repeat("prove", 2*TextLimit/5))},
	} {
		said, c := c.said, classifier(b, c.rules)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			f := ClassifierInput{PromptTokens: 2000, MaxTokens: 100, User: func() []byte { return said }}
			for b.Loop() {
				c.Classify(&f)
			}
		})
	}
}

// unbounded reports whether an expression has an unbounded repetition.
func unbounded(re *syntax.Regexp) bool {
	repeats := re.Op == syntax.OpStar || re.Op == syntax.OpPlus || re.Op == syntax.OpRepeat && re.Max < 0
	return repeats && longest(re.Sub[0]) > 0 || slices.ContainsFunc(re.Sub, unbounded)
}
