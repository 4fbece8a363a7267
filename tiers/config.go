package tiers

import "time"

// Rules is the classifier section of config.yaml. Tiers are given by name. An empty Mode means
// max, Preset groups, Unavailable up and Default the first tier; nil maps mean those of
// DefaultRules.
type Rules struct {
	Mode         string             `yaml:"mode" enum:"max,first_match" doc:"'max': the highest tier that the prompt's length, max_tokens or a keyword asks for. 'first_match': the first of these that asks for any."`
	PromptTokens map[string]int64   `yaml:"prompt_tokens" absent:"'16000' for the last tier, of three or more '4000' for the second" doc:"Prompt tokens that must be exceeded for a tier. A map that is given replaces the default one whole; '{}' turns the rule off."`
	MaxTokens    map[string]int64   `yaml:"max_tokens" absent:"'2000' for the last tier, of three or more '500' for the second" doc:"Thresholds per tier: a request whose 'max_tokens' exceeds one asks for that tier. 'max_tokens' is ignored on /v1/messages, which requires it, and in requests with tools. Values that clients send by default are ignored too: powers of two from 512, and 4000 or more (or twice the highest threshold, if that is more). 'preset: lesson' counts all. A map that is given replaces the default one whole; '{}' turns the rule off."`
	Preset       string             `yaml:"preset" enum:"groups,lesson,none" doc:"Built-in keywords. 'groups': code asks for the last tier; maths, logic, analysis and extraction ask for the lowest tier above the default that has a keyword_score. 'lesson': four groups of single words that ask for the last tier. 'none': only your own keywords."`
	Keywords     []Keyword          `yaml:"keywords" ordered:"true" doc:"Groups of expressions, besides the preset's. A group counts once however often it matches. All groups together may have 1000 expressions; 'check' warns of more than 200."`
	KeywordScore map[string]float64 `yaml:"keyword_score" above:"0" absent:"'1' for the last tier, for the second of three or more and for those of 'keywords'" doc:"What the weights of the matched groups must add up to for a tier; groups for a higher tier count for a lower one too. A map that is given replaces the default one whole; '{}' turns the rule off."`
	Default      string             `yaml:"default" absent:"the first tier" doc:"The tier of requests that nothing else decides."`
	Sticky       Sticky             `yaml:"sticky" doc:"A chat does not fall to a lower tier while its cache is warm."`
	Unavailable  string             `yaml:"unavailable" enum:"up,down,refuse" doc:"Where a request goes whose tier has no worker up: to the next tier 'up' or 'down', or nowhere: 'refuse'. Models asked for by their own name never move."`
}

// Keyword is one group of expressions. A group counts once however often it matches. Weight 0
// means 1; without In the last user turn is searched.
type Keyword struct {
	Tier   string   `yaml:"tier" required:"true" doc:"The tier that the group speaks for."`
	Name   string   `yaml:"name" required:"true" form:"name" doc:"The group's name, as X-Tier-Reason shows it: keyword:name."`
	Weight float64  `yaml:"weight" above:"0" absent:"'1'" doc:"What it adds to the tier's score."`
	In     []string `yaml:"in" enum:"user,system" absent:"user" doc:"Where it is looked for: 'user' is the last user turn, 'system' the system prompt."`
	Match  []string `yaml:"match" required:"true" doc:"Regular expressions of RE2, matched without regard to case. In single quotes a backslash stays one."`
}

// Sticky keeps a chat at its tier. A nil Enabled means true, and Idle 0 means 30m.
type Sticky struct {
	Enabled *bool         `yaml:"enabled" doc:"Keep a chat at its tier."`
	Idle    time.Duration `yaml:"idle" doc:"How long a chat is remembered after its last request."`
}
