package tiers

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"
	"time"
)

// DefaultRules returns the meaning of empty Rules for tiers of these names, least capable
// first. The second of three or more tiers gets prompts of over 4,000 tokens, answers of over
// 500 and keywords of weight 1. The last of two or more gets prompts of over 16,000 tokens,
// answers of over 2,000 and keywords of weight 1. The token thresholds are those of the lesson
// on tiered serving. A tier that a configured group names has a keyword score of 1 as well.
func DefaultRules(tierNames []string) Rules {
	on := true
	r := Rules{
		Mode: "max", Preset: presetGraded, Unavailable: "up",
		PromptTokens: map[string]int64{}, MaxTokens: map[string]int64{}, KeywordScore: map[string]float64{},
		Sticky: Sticky{Enabled: &on, Idle: 30 * time.Minute}, // roughly how long an idle engine keeps a chat's cache
	}
	n := len(tierNames)
	if n > 0 {
		r.Default = tierNames[0]
	}
	if n > 2 {
		second := tierNames[1]
		r.PromptTokens[second], r.MaxTokens[second], r.KeywordScore[second] = 4000, 500, 1
	}
	if n > 1 {
		last := tierNames[n-1]
		r.PromptTokens[last], r.MaxTokens[last], r.KeywordScore[last] = 16000, 2000, 1
	}
	return r
}

// checker compiles rules and collects their mistakes.
type checker struct {
	tiers       []string
	errs        []error
	warnings    []string
	groups      []group
	expressions []expression
	size        int               // size of all expressions, as maxSize counts it
	names       map[string]string // group names to their keys in config.yaml
}

// addError records an error: the key, the mistake and the way out.
func (c *checker) addError(key, format string, args ...any) {
	c.errs = append(c.errs, errors.New(key+": "+fmt.Sprintf(format, args...)))
}

// addWarning records a setting that is valid but probably not intended.
func (c *checker) addWarning(key, format string, args ...any) {
	c.warnings = append(c.warnings, key+": "+fmt.Sprintf(format, args...))
}

// tierIndex returns a tier's index. An unknown name is recorded as an error.
func (c *checker) tierIndex(key, name string) int {
	i := slices.Index(c.tiers, name)
	if i < 0 {
		c.addError(key, "unknown tier %q: name one of the tiers (%s)", shorten(name), listNames(c.tiers))
	}
	return i
}

// threshold is the value that must be exceeded for a tier.
type threshold[N int64 | float64] struct {
	tier int
	over N
}

// thresholds returns a section of the rules, highest tier first.
func thresholds[N int64 | float64](c *checker, key string, section map[string]N) (all []threshold[N]) {
	for _, name := range slices.Sorted(maps.Keys(section)) {
		if i := c.tierIndex(key+"."+name, name); i >= 0 {
			all = append(all, threshold[N]{i, section[name]})
		}
	}
	slices.SortFunc(all, func(a, b threshold[N]) int { return cmp.Compare(b.tier, a.tier) })
	return all
}

// tokenThresholds is thresholds for numbers of tokens; tiers up to floor have no effect.
func (c *checker) tokenThresholds(key string, section, normal map[string]int64, floor int) []threshold[int64] {
	if section == nil {
		return thresholds(c, key, normal)
	}
	all, lowest := thresholds(c, key, section), int64(math.MaxInt64)
	for _, t := range all {
		at := key + "." + c.tiers[t.tier]
		switch {
		case t.tier <= floor:
			c.addWarning(at, "has no effect: the default tier %q is not lower: remove it, or lower classifier.default",
				c.tiers[floor])
		case t.over >= lowest:
			c.addWarning(at, "has no effect: a higher tier is already selected above %v: set a lower value, or remove it",
				lowest)
		}
		lowest = min(lowest, t.over)
	}
	return all
}

// scoreThresholds is thresholds for the sum of the matched groups' weights.
func (c *checker) scoreThresholds(section, normal map[string]float64, floor int) []threshold[float64] {
	const key = "classifier.keyword_score"
	if section == nil {
		section = maps.Clone(normal)
		for _, g := range c.groups {
			if g.tier > floor {
				section[c.tiers[g.tier]] = 1
			}
		}
		return thresholds(c, key, section)
	}
	// Groups for a higher tier count for a lower one too. A lower score
	// for a higher tier therefore hides a higher one below it only if no group
	// is for the lower tier alone. Such sections are accepted.
	all := thresholds(c, key, section)
	for _, t := range all {
		sum := 0.0
		for _, g := range c.groups {
			if g.tier >= t.tier {
				sum += g.weight
			}
		}
		if sum < t.over {
			c.addWarning(key+"."+c.tiers[t.tier], "cannot be reached: the weights of the groups "+
				"for that tier and higher ones sum to %v: lower the score, or add keywords", sum)
		}
	}
	return all
}

// addGroup compiles one Keyword, and each of its expressions with add.
func (c *checker) addGroup(key string, k Keyword, add func(key, pattern string, in source)) {
	g := group{name: k.Name, rule: "keyword:" + k.Name, weight: cmp.Or(k.Weight, 1),
		tier: c.tierIndex(key+".tier", k.Tier)}
	if other, taken := c.names[k.Name]; taken {
		c.addError(key+".name", "duplicate name %q, used by %s: use another name", k.Name, other)
	}
	c.names[k.Name] = key
	if slices.Contains(k.In, "system") {
		g.in |= inSystem
	}
	if len(k.In) == 0 || slices.Contains(k.In, "user") {
		g.in |= inUser
	}
	c.groups = append(c.groups, g)
	for i, pattern := range k.Match {
		add(fmt.Sprintf("%s.match[%d]", key, i), pattern, g.in)
	}
}

// addExpression compiles an expression of the last group.
func (c *checker) addExpression(key, pattern string, in source) {
	var broken *syntax.Error
	if strings.ContainsRune(pattern, '\b') {
		c.addError(key, "%q contains a backspace, as YAML reads \\b in double quotes: "+
			"write the expression in single quotes", pattern)
		return
	}
	if _, err := syntax.Parse(pattern, syntax.Perl); errors.As(err, &broken) {
		c.addError(key, "%s %q: write it in the syntax of RE2", broken.Code, broken.Expr)
		return
	}
	parsed, err := syntax.Parse("(?i)"+pattern, syntax.Perl)
	if err != nil {
		c.addError(key, "cannot be matched without regard to case (%v): write it in the syntax of RE2", err)
		return
	}
	known := required(parsed)
	needs := known.needs()
	size := sizeOf(parsed, needs)
	if !c.checkSize(key, size) {
		return
	}
	compiled := regexp.MustCompile("(?i)" + pattern) // parsed above
	switch {
	case known.known && len(known.exact) == 0:
		c.addError(key, "matches nothing: remove it")
	// These texts have nothing in common: an expression that matches all of them finds nothing.
	case compiled.MatchString("") && compiled.MatchString("a") && compiled.MatchString(" "):
		c.addError(key, "matches every text: remove its optional parts")
	}
	if shortest(needs) < 3 {
		c.addWarning(key, "has an alternative without a literal of three bytes, which makes it slow on long prompts: "+
			"give each alternative such a literal")
	}
	c.expressions = append(c.expressions, expression{group: len(c.groups) - 1, in: in, match: compiled,
		needs: needs, reach: reach(parsed), size: size})
}

// compiled has the expressions of the presets, by pattern, and the automaton of each preset, by name. A preset
// never changes, and it is nearly all of the work of a configuration that does not switch it off.
var compiled struct{ expressions, automata sync.Map } //nolint:gochecknoglobals // a cache of constants

// addPresetExpression is addExpression for an expression of a preset, which is compiled once.
func (c *checker) addPresetExpression(key, pattern string, in source) {
	if known, ok := compiled.expressions.Load(pattern); ok {
		e := known.(expression)
		if e.group, e.in = len(c.groups)-1, in; c.checkSize(key, e.size) {
			c.expressions = append(c.expressions, e)
		}
		return
	}
	problems, before := len(c.errs)+len(c.warnings), len(c.expressions)
	c.addExpression(key, pattern, in)
	if len(c.errs)+len(c.warnings) == problems && len(c.expressions) > before {
		compiled.expressions.Store(pattern, c.expressions[before])
	}
}

// automaton returns the automaton of all expressions. It is compiled once for each preset without other
// groups.
func (c *checker) automaton(rules Rules, preset string) *automaton {
	if len(rules.Keywords) > 0 || len(c.expressions) == 0 {
		return newAutomaton(c.expressions)
	}
	if known, ok := compiled.automata.Load(preset); ok {
		return known.(*automaton)
	}
	a := newAutomaton(c.expressions)
	compiled.automata.Store(preset, a)
	return a
}

// addPreset compiles the built-in groups. The strong ones are for the last tier, the others for
// the lowest one with a keyword score.
func (c *checker) addPreset(name string, lowest int) {
	if len(c.tiers) == 0 {
		return
	}
	last := c.tiers[len(c.tiers)-1]
	var all []Keyword
	switch name {
	case presetGroups, presetGraded:
		all = groupsOfPreset(c.tiers[lowest], last)
	case "lesson":
		all = presetLesson(last)
	}
	for i, k := range all {
		if mine, taken := c.names[k.Name]; taken {
			c.addError(mine+".name", "duplicate name %q, used by the preset %q: "+
				"use another name, or set preset to none", k.Name, name)
			continue
		}
		c.addGroup(fmt.Sprintf("classifier.preset[%d]", i), k, c.addPresetExpression)
		c.groups[len(c.groups)-1].preset = true
	}
}

// lowestScored returns the lowest tier above the first and above floor that has a keyword
// score, or else the last.
func (c *checker) lowestScored(section map[string]float64, floor int) int {
	for i := max(floor, 0) + 1; i < len(c.tiers); i++ {
		if _, scored := section[c.tiers[i]]; scored {
			return i
		}
	}
	return len(c.tiers) - 1
}

// warnUnscored warns of groups that no keyword score counts.
func (c *checker) warnUnscored(rules Rules, scores []threshold[float64], floor int) {
	for i, k := range rules.Keywords {
		tier := slices.Index(c.tiers, k.Tier)
		scored := slices.ContainsFunc(scores, func(t threshold[float64]) bool { return t.tier <= tier && t.tier > floor })
		if tier >= 0 && !scored {
			c.addWarning(keyAt("classifier.keywords", i)+".tier",
				"has no effect: keyword_score has no entry for %q or a lower tier above the default: "+
					"name a tier above classifier.default here, and give it a keyword_score", k.Tier)
		}
	}
}

func keyAt(key string, i int) string { return fmt.Sprintf("%s[%d]", key, i) }
