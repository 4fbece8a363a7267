package tiers

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// glob is an alias that stands for many names: `*` is any run of characters,
// also none, `?` is exactly one. Every other character stands for itself.
type glob struct {
	pattern string
	match   *regexp.Regexp
	to      route
}

func isGlob(name string) bool { return strings.ContainsAny(name, "*?") }

// compile returns the pattern as a regular expression over the whole name,
// which Go matches in time linear in the name.
func compile(pattern string) *regexp.Regexp {
	wild := strings.NewReplacer(`\*`, `.*`, `\?`, `.`)
	return regexp.MustCompile(`(?s)\A` + wild.Replace(regexp.QuoteMeta(pattern)) + `\z`)
}

// starred is a run of wildcards with a `*` in it.
var starred = regexp.MustCompile(`[*?]*\*[*?]*`)

// canonical writes globs that match the same names alike: within a run of
// wildcards only the number of `?` and whether there is a `*` make a difference.
func canonical(pattern string) string {
	return starred.ReplaceAllStringFunc(pattern, func(run string) string {
		return strings.Repeat("?", strings.Count(run, "?")) + "*"
	})
}

// longestFirst orders globs as they are tried: the one with more characters
// first, since it usually says more; of equally long ones that with fewer `*`,
// then with fewer `?`, then by spelling, so that the order never depends on a map's.
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
