package tiers

import (
	_ "embed"
	"strings"
)

//go:embed preset.txt
var presetText string

// presetExpressions returns the expressions of a group of preset.txt.
func presetExpressions(group string) (all []string) {
	_, section, _ := strings.Cut(presetText, "\n["+group+"]\n")
	section, _, _ = strings.Cut(section, "\n\n[")
	for line := range strings.SplitSeq(strings.ReplaceAll(strings.TrimSuffix(section, "\n"), "\n\t", ""), "\n") {
		if !strings.HasPrefix(line, "# ") {
			all = append(all, line)
		}
	}
	return all
}

// presetGroups returns the preset groups: what to look for in a request that a
// small model tends to get wrong and a large one right. Each expression has a
// literal of three bytes or more that must occur where it matches, and none is
// unbounded, so that a turn is scanned once and an expression runs only around
// its literal. Single words that everyday prompts share with code or maths
// (class, program, script, table, solve, proof, python) count only beside a word
// that settles the meaning, and a single relation or percentage only beside a
// question about a quantity. docs/tiers.md has what the groups are worth. The strong
// model's lead is largest on code, which therefore asks for the last tier and the
// other groups for a lower one.
func presetGroups(lower, last string) []Keyword {
	return []Keyword{
		{Tier: last, Name: "code", Weight: 2, Match: presetExpressions("code")},
		{Tier: lower, Name: "maths", Weight: 1, Match: presetExpressions("maths")},
		{Tier: lower, Name: "logic", Weight: 1, Match: presetExpressions("logic")},
		// Essays compare and assess as often as factual questions do, and small models
		// write good essays: this group needs another one beside it.
		{Tier: lower, Name: "analysis", Weight: 0.5, Match: presetExpressions("analysis")},
		{Tier: lower, Name: "extraction", Weight: 1, Match: presetExpressions("extraction")},
	}
}

// presetLesson returns the preset lesson: four groups of single words, as short
// guides to tiered serving give them, any of which asks for the last tier.
func presetLesson(last string) []Keyword {
	words := func(name, match string) Keyword {
		return Keyword{Tier: last, Name: name, Weight: 1, Match: []string{match}}
	}
	return []Keyword{
		words("code", `\bcode\b|\bprogram\b|\bimplementation\b|\bdebug\b`),
		words("analysis", `\banalyze\b|\banalysis\b|\bevaluate\b|\bcompare\b`),
		words("reasoning", `\bstep.by.step\b|\bchain.of.thought\b|\breason\b`),
		words("maths", `\bmath\b|\bcalculate\b|\bequation\b|\bproof\b`),
	}
}
