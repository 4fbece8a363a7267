package tenants

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestOverlapAgreesWithItsDefinition(t *testing.T) {
	cases := []struct {
		a, b string
		want bool
	}{
		{"gpt-4o", "gpt-4*", true}, {"gpt-4*", "*-mini", true}, {"gpt-3", "gpt-4*", false}, {"*", "", true}, {"?", "", false},
		{"a?c", "abc", true}, {"a?c", "ac", false}, {"*a", "b*", true}, {"a*", "b*", false}, {"", "", true},
		{"a**b", "ab", true}, {"?*", "*?", true},
	}
	for _, c := range cases {
		if Overlap(c.a, c.b) != c.want || Overlap(c.b, c.a) != c.want {
			t.Errorf("%q and %q: want %t", c.a, c.b, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab*?]{0,6}`).Draw(t, "pattern")
		text := rapid.StringMatching(`[ab]{0,6}`).Draw(t, "text")
		if got, want := Overlap(pattern, text), matches(pattern, text); got != want {
			t.Fatalf("%q and %q: want %t", pattern, text, want)
		}
	})
}

// matches is the plain definition that Overlap is compared with.
func matches(pattern, text string) bool {
	switch {
	case pattern == "":
		return text == ""
	case pattern[0] == '*':
		return slices.ContainsFunc(splits(text), func(rest string) bool { return matches(pattern[1:], rest) })
	case text == "":
		return false
	}
	return (pattern[0] == '?' || pattern[0] == text[0]) && matches(pattern[1:], text[1:])
}

func splits(text string) []string {
	var all []string
	for i := range len(text) + 1 {
		all = append(all, text[i:])
	}
	return all
}
