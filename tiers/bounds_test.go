package tiers

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
)

// many returns n groups of one expression each.
func many(n int, expression func(i int) string) Rules {
	r := Rules{Preset: "none"}
	for i := range n {
		r.Keywords = append(r.Keywords, Keyword{Tier: "large", Name: fmt.Sprint("g", i), Match: []string{expression(i)}})
	}
	return r
}

func TestExpressionsOfAConfigurationAreBounded(t *testing.T) {
	word := func(i int) string { return fmt.Sprintf(`\bword%d\b`, i) }
	long := func(i int) string { return fmt.Sprintf(`\bword%d.{1,900}end\b`, i) }
	list := func(i int) string {
		var words []string
		for j := range 1000 {
			words = append(words, fmt.Sprintf("number%03dof%03d", j, i))
		}
		return strings.Join(words, "|")
	}
	grown := many(10, list)
	grown.Keywords[0].Match = slices.Repeat([]string{"word"}, 992)
	for name, c := range map[string]struct {
		rules   Rules
		wrong   string
		warning string
	}{
		"few": {many(200, word), "", ""},
		"many": {many(201, word), "", "classifier.keywords: 201 expressions: a crafted prompt can take " +
			"several milliseconds to classify: use at most 200"},
		"as many as allowed": {many(1000, word), "", "classifier.keywords: 1000 expressions: a crafted prompt " +
			"can take several milliseconds to classify: use at most 200"},
		"too many": {many(1001, word),
			"classifier.keywords: 1001 expressions are too many: use at most 1000", ""},
		"too many in a group": {grown, "classifier.keywords: 1001 expressions are too many: use at most 1000", ""},
		"long ones": {many(400, long), "classifier.keywords[164].match[0]: too large: all expressions together " +
			"have size 300080, and the limit is 300000: shorten repetitions such as {1,500}, or remove expressions", ""},
		"long lists": {many(30, list), "classifier.keywords[20].match[0]: too large: all expressions together " +
			"have size 301098, and the limit is 300000: shorten repetitions such as {1,500}, or remove expressions", ""},
	} {
		k, err := NewClassifier(c.rules, three(), nil)
		if got := fmt.Sprint(err); err != nil && got != c.wrong || err == nil && c.wrong != "" {
			t.Errorf("%s: %s, want %s", name, got, c.wrong)
		}
		if err != nil {
			continue
		}
		if got := strings.Join(k.Warnings(), "\n"); got != c.warning {
			t.Errorf("%s: warns %q, want %q", name, got, c.warning)
		}
	}
}

// TestInstructionsAreEstimatedBeforeCompilation compares the estimate with the compiler's
// result: a repetition must not be compiled to find out that it is too large.
func TestInstructionsAreEstimatedBeforeCompilation(t *testing.T) {
	patterns := append(bounded(), `(?:abcdefgh){1000}`, `a{2,900}?`, `x{700,}`, `(?:(?:ab|c.){10}){100}`)
	for _, g := range groupsOfPreset("medium", "large") {
		patterns = append(patterns, g.Match...)
	}
	for _, pattern := range patterns {
		re, err := syntax.Parse("(?i)"+pattern, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		made, err := syntax.Compile(re.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := instructions(re), len(made.Inst); got < want/2-8 || got > 2*want+8 {
			t.Errorf("%s: estimated %d instructions, compiled %d", pattern, got, want)
		}
	}
}
