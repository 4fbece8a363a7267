package tiers

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Description is a catalog's classifier and aliases as structured data, with all defaults.
type Description struct {
	Mode         string         `json:"mode" enum:"max,first_match" doc:"max: the highest tier that a rule selects. first_match: the first rule that selects a tier decides."`
	Default      string         `json:"default" doc:"Tier of requests for which no rule selects a tier. Empty: there are no tiers."`
	Unavailable  string         `json:"unavailable" enum:"up,down,refuse" doc:"Target of a request if its tier has no worker up."`
	Sticky       bool           `json:"sticky" doc:"A chat does not move to a lower tier while it is stored."`
	StickyIdle   time.Duration  `json:"-"`
	Rules        []Rule         `json:"rules" nullable:"false" doc:"Rules in the order in which they are checked: prompt_tokens, max_tokens, and score or share from the highest tier, then the keyword groups, then default."`
	KeywordScore []TierScore    `json:"keyword_score" nullable:"false" doc:"Minimum score by tier, from the highest tier. The score of a tier is the sum of the weights of the matched groups for it and higher tiers."`
	LengthWeight float64        `json:"length_weight,omitempty" doc:"Weight of each doubling of the length of the last user turn in the score. Absent: no score selects a tier."`
	Score        []TierScore    `json:"score,omitempty" doc:"Scores that a request must exceed, from the highest tier, in place of keyword_score. Absent: no thresholds are configured."`
	Share        []TierShare    `json:"share,omitempty" doc:"Shares of the prompts that the scores select, from the highest tier, in place of keyword_score once enough scores are known."`
	Model        string         `json:"model,omitempty" doc:"Model whose score orders the prompts for the shares: the first eight digits of the SHA-256 of its file. Absent: the weights and the length order them."`
	Ignored      int64          `json:"max_tokens_ignored_from,omitempty" doc:"max_tokens is ignored from this value on. Absent: no value is too large."`
	Aliases      []AliasTargets `json:"aliases" nullable:"false" doc:"Aliases in the order of precedence: exact names, then patterns from the longest."`
}

// Rule is one rule of the classifier.
type Rule struct {
	Rule      string   `json:"rule" doc:"Name in X-Tier-Reason and in records: prompt_tokens, max_tokens, score, share, keyword:NAME or default."`
	Tier      string   `json:"tier" doc:"Tier that the rule selects. Of a keyword group: the tier to which its weight counts in keyword_score. Empty with score: the weight counts in the score alone."`
	Threshold int64    `json:"threshold,omitempty" doc:"Number of tokens that a request must exceed."`
	Score     float64  `json:"score,omitempty" doc:"Score that a request must exceed. Absent for the default tier, which gets all lower scores."`
	Share     float64  `json:"share,omitempty" doc:"Share of the prompts that the scores select for the tier."`
	Group     string   `json:"group,omitempty" doc:"Name of the keyword group."`
	Weight    float64  `json:"weight,omitempty" doc:"Weight of the keyword group."`
	In        []string `json:"in,omitempty" doc:"Texts that are searched: user, the last user turn, and system, the system prompt."`
	Match     []string `json:"match,omitempty" doc:"Regular expressions in RE2 syntax, without regard to case. One match suffices."`
	Preset    bool     `json:"preset,omitempty" doc:"The group is part of classifier.preset."`
}

// TierScore is the minimum keyword score of a tier.
type TierScore struct {
	Tier  string  `json:"tier"`
	Score float64 `json:"score"`
}

// TierShare is the share of prompts that go to a tier by their scores.
type TierShare struct {
	Tier  string  `json:"tier"`
	Share float64 `json:"share"`
}

// AliasTargets is an alias with its targets in the order of preference.
type AliasTargets struct {
	Name    string   `json:"name"`
	Targets []string `json:"targets" nullable:"false" doc:"Tiers, pools or models, or classify."`
	Pattern bool     `json:"pattern" doc:"The name is a pattern: * matches any run of characters, ? matches one."`
	Implied bool     `json:"implied,omitempty" doc:"The alias exists without being configured."`
}

// Describe returns the catalog's classifier and aliases. aliases are those of its Config. The caller owns the
// result.
func (k *Catalog) Describe(aliases map[string]Targets) Description {
	c := k.classifier
	d := Description{Mode: "max", Default: k.Default(), Unavailable: "refuse", Sticky: k.chatIdle > 0,
		StickyIdle: k.chatIdle, Rules: c.describeRules(), KeywordScore: []TierScore{}, Aliases: []AliasTargets{}}
	if c.firstMatch {
		d.Mode = "first_match"
	}
	if k.unavailableStep != 0 {
		d.Unavailable = map[int]string{1: "up", -1: "down"}[k.unavailableStep]
	}
	for _, s := range c.scores {
		d.KeywordScore = append(d.KeywordScore, TierScore{Tier: c.tiers[s.tier], Score: s.over})
	}
	if g := &c.grading; g.rule != "" {
		d.LengthWeight, d.Score, d.Share = g.lengthWeight, c.describeScores(), c.describeShares()
		d.Model = c.orderedBy()
	}
	if !c.countsAll && len(c.output) > 0 {
		d.Ignored = c.ceiling
	}
	for _, name := range slices.Sorted(maps.Keys(aliases)) {
		if !isGlob(name) {
			d.Aliases = append(d.Aliases, AliasTargets{Name: name, Targets: slices.Clone(aliases[name])})
		}
	}
	if _, configured := aliases[Auto]; !configured && k.names[Auto].free {
		d.Aliases = append(d.Aliases, AliasTargets{Name: Auto, Targets: []string{Classify}, Implied: true})
	}
	for _, g := range k.globs {
		d.Aliases = append(d.Aliases, AliasTargets{Name: g.pattern, Targets: slices.Clone(aliases[g.pattern]), Pattern: true})
	}
	return d
}

func (k *Classifier) describeScores() (all []TierScore) {
	for _, t := range k.grading.tiers {
		if k.grading.rule == ruleScore {
			all = append(all, TierScore{Tier: k.tiers[t.tier], Score: t.value})
		}
	}
	return all
}

// describeShares returns the share of each tier alone.
func (k *Classifier) describeShares() (all []TierShare) {
	sum := 0.0
	for _, t := range k.grading.tiers {
		if k.grading.rule == ruleShare {
			all = append(all, TierShare{Tier: k.tiers[t.tier], Share: roundShare(t.value - sum)})
		}
		sum = t.value
	}
	return all
}

// describeGrading returns a rule for each tier that scores select, highest tier first, and one for the default tier.
func (k *Classifier) describeGrading() (rules []Rule) {
	for _, s := range k.describeScores() {
		rules = append(rules, Rule{Rule: ruleScore, Tier: s.Tier, Score: s.Score})
	}
	rest := 1.0
	for _, s := range k.describeShares() {
		rules = append(rules, Rule{Rule: ruleShare, Tier: s.Tier, Share: s.Share})
		rest -= s.Share
	}
	switch rest = roundShare(rest); {
	case k.grading.rule == ruleScore:
		rules = append(rules, Rule{Rule: ruleScore, Tier: k.name(k.defaultTier)})
	case k.grading.rule == ruleShare && rest > 0:
		rules = append(rules, Rule{Rule: ruleShare, Tier: k.name(k.defaultTier), Share: rest})
	}
	return rules
}

// roundShare removes the error of sums of decimals.
func roundShare(share float64) float64 { return math.Round(1e9*share) / 1e9 }

// describeRules returns the rules in the order in which they are checked.
func (k *Classifier) describeRules() []Rule {
	rules := []Rule{}
	for _, t := range k.prompt {
		rules = append(rules, Rule{Rule: "prompt_tokens", Tier: k.tiers[t.tier], Threshold: t.over})
	}
	for _, t := range k.output {
		rules = append(rules, Rule{Rule: "max_tokens", Tier: k.tiers[t.tier], Threshold: t.over})
	}
	rules = append(rules, k.describeGrading()...)
	for i, g := range k.matcher.groups {
		r := Rule{Rule: g.rule, Tier: k.tiers[g.tier], Group: g.name, Weight: g.weight, Preset: g.preset}
		if k.grading.rule == ruleScore {
			r.Tier = ""
		}
		for _, e := range k.matcher.expressions {
			if e.group == i {
				r.Match = append(r.Match, strings.TrimPrefix(e.match.String(), "(?i)"))
			}
		}
		for _, from := range [...]struct {
			in   source
			name string
		}{{inUser, "user"}, {inSystem, "system"}} {
			if g.in&from.in != 0 {
				r.In = append(r.In, from.name)
			}
		}
		rules = append(rules, r)
	}
	if k.defaultTier >= 0 {
		rules = append(rules, Rule{Rule: "default", Tier: k.name(k.defaultTier)})
	}
	return rules
}
