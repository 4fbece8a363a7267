package tiers

import "time"

// Rules says how a request that leaves the choice to the gateway is given a
// tier: the classifier section of config.yaml. Tiers stand in it by name.
type Rules struct {
	Mode         string             `yaml:"mode"`          // max or first_match; empty is max
	PromptTokens map[string]int64   `yaml:"prompt_tokens"` // by tier, the prompt that must be exceeded; nil is DefaultRules'
	MaxTokens    map[string]int64   `yaml:"max_tokens"`    // by tier, the max_tokens that must be exceeded; nil is DefaultRules'
	Preset       string             `yaml:"preset"`        // groups, lesson or none; empty is groups
	Keywords     []Keyword          `yaml:"keywords"`      // besides the preset's
	KeywordScore map[string]float64 `yaml:"keyword_score"` // by tier, what the weights of matched keywords must add up to; nil is DefaultRules'
	Default      string             `yaml:"default"`       // the tier when nothing else decides; empty is the first
	Sticky       Sticky             `yaml:"sticky"`
	Unavailable  string             `yaml:"unavailable"` // where a request goes whose tier has nobody up: up, down or refuse; empty is up
}

// Keyword is one group of expressions. However often they match, the group
// counts once.
type Keyword struct {
	Tier   string   `yaml:"tier"`   // the tier that it speaks for
	Name   string   `yaml:"name"`   // as it stands in the rule: keyword:name
	Weight float64  `yaml:"weight"` // 0 is 1
	In     []string `yaml:"in"`     // user, the last user turn, and system; empty is user
	Match  []string `yaml:"match"`  // regular expressions of RE2, matched without regard to case
}

// Sticky keeps a chat at its tier.
type Sticky struct {
	Enabled *bool         `yaml:"enabled"` // nil is true
	Idle    time.Duration `yaml:"idle"`    // how long a chat is remembered after its last request; 0 is 30m
}
