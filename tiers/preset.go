package tiers

import (
	_ "embed"
	"strings"
)

//go:embed preset.txt
var presetText string

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

// Presets that decide by the same groups.
const (
	presetGroups = "groups"
	presetGraded = "graded"
)

// PresetName returns the preset of the rules. Rules without one have graded, but groups if they have keywords or a
// keyword_score of their own, which the shares of graded would replace.
func (r *Rules) PresetName() string {
	switch {
	case r.Preset != "":
		return r.Preset
	case len(r.Keywords) > 0 || r.KeywordScore != nil:
		return presetGroups
	}
	return presetGraded
}

// groupsOfPreset returns the groups of the presets groups and graded, which detect requests that a small model often
// answers wrongly and a large one correctly. Each expression requires a literal of at least three bytes
// and is bounded, so that a turn is scanned once and an expression runs only around its
// literal. Words that everyday prompts share with code or maths (class, program, script, table,
// solve, proof, python) count only beside a word that settles the meaning. A single relation or
// percentage counts only beside a question about a quantity. docs/tiers.md has the measured
// value of the groups. The strong model's lead is largest on code, which therefore requests the
// last tier; the other groups request a lower one.
func groupsOfPreset(lower, last string) []Keyword {
	return []Keyword{
		{Tier: last, Name: "code", Weight: 2, Match: presetExpressions("code")},
		{Tier: lower, Name: "maths", Weight: 1, Match: presetExpressions("maths")},
		{Tier: lower, Name: "logic", Weight: 1, Match: presetExpressions("logic")},
		// Essays compare and assess as often as factual questions, and small models
		// write good essays: this group needs a second group.
		{Tier: lower, Name: "analysis", Weight: 0.5, Match: presetExpressions("analysis")},
		{Tier: lower, Name: "extraction", Weight: 1, Match: presetExpressions("extraction")},
	}
}

// presetLesson returns the preset "lesson": four groups of single words, as in short guides to
// tiered serving. Each of them requests the last tier.
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
