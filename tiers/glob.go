package tiers

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// glob is an alias for many names: `*` is any run of characters, including none, and `?`
// exactly one. Every other character stands for itself.
type glob struct {
	pattern string
	to      route
}

func isGlob(name string) bool { return strings.ContainsAny(name, "*?") }

// MatchGlob reports whether the whole name matches the pattern, in which `*` is any run of characters and
// `?` exactly one.
func MatchGlob(pattern, name string) bool {
	p, n, star, from := 0, 0, -1, 0
	for n < len(name) {
		_, size := utf8.DecodeRuneInString(name[n:])
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, n
			p++
		case p < len(pattern) && pattern[p] == '?':
			p, n = p+1, n+size
		case p < len(pattern) && pattern[p] == name[n]:
			p, n = p+1, n+1
		case star >= 0: // the last * takes one more character
			_, size = utf8.DecodeRuneInString(name[from:])
			from += size
			p, n = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// starred matches a run of wildcards that contains a `*`.
var starred = regexp.MustCompile(`[*?]*\*[*?]*`)

// canonical returns the same text for globs that match the same names: within a run of
// wildcards, only the number of `?` and the presence of a `*` matter.
func canonical(pattern string) string {
	return starred.ReplaceAllStringFunc(pattern, func(run string) string {
		return strings.Repeat("?", strings.Count(run, "?")) + "*"
	})
}

// longestFirst sorts globs by precedence: the one with more characters first, as it is usually
// more specific; then fewer `*`, fewer `?`, and the spelling, so that the order never depends
// on a map.
func longestFirst(globs []glob) {
	slices.SortFunc(globs, func(a, b glob) int {
		return cmp.Or(
			cmp.Compare(utf8.RuneCountInString(b.pattern), utf8.RuneCountInString(a.pattern)),
			cmp.Compare(strings.Count(a.pattern, "*"), strings.Count(b.pattern, "*")),
			cmp.Compare(strings.Count(a.pattern, "?"), strings.Count(b.pattern, "?")),
			cmp.Compare(a.pattern, b.pattern),
		)
	})
}

// Bounds of names in messages: a configuration may have thousands of names and of mistakes, and a name of any length.
const (
	maxListed = 24 // names; they fill two or three lines of a terminal
	maxShown  = 64 // characters of a name
)

// listNames returns the first names, separated by commas.
func listNames(names []string) string {
	var shown []string
	for _, name := range names[:min(len(names), maxListed)] {
		shown = append(shown, shorten(name))
	}
	list := strings.Join(shown, ", ")
	if more := len(names) - len(shown); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}

// shorten cuts a name after maxShown characters.
func shorten(name string) string {
	if r := []rune(name); len(r) > maxShown {
		return string(r[:maxShown]) + "…"
	}
	return name
}
