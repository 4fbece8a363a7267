package tiers

import "time"

// Rules is the classifier section of config.yaml. Tiers are given by name. An empty Mode means
// max, an empty Preset PresetName, Unavailable up and Default the first tier; nil maps mean those of
// DefaultRules, or no thresholds and shares. A nil LengthWeight means 1.
type Rules struct {
	Mode         string             `yaml:"mode" enum:"max,first_match" doc:"How the signals are combined. 'max': the highest tier that 'prompt_tokens', 'max_tokens' or 'keywords' selects. 'first_match': the first signal in this order that selects a tier decides."`
	PromptTokens map[string]int64   `yaml:"prompt_tokens" absent:"'16000' for the last tier; with three or more tiers also '4000' for the second" doc:"Thresholds by tier: a prompt with more tokens selects that tier. The map replaces the default as a whole; '{}' turns the signal off."`
	MaxTokens    map[string]int64   `yaml:"max_tokens" absent:"'2000' for the last tier; with three or more tiers also '500' for the second" doc:"Thresholds by tier: a request with a larger 'max_tokens' selects that tier. 'max_tokens' is ignored on /v1/messages, which requires it, and in requests with tools. Values that clients send by default are ignored too: powers of two from 512 on, and all values from 4000 on. If twice the highest threshold is larger than 4000, it applies instead. 'preset: lesson' ignores no value. The map replaces the default as a whole; '{}' turns the signal off."`
	Preset       string             `yaml:"preset" enum:"graded,groups,lesson,none" absent:"'graded', or 'groups' with 'keywords' or 'keyword_score'" doc:"Built-in keyword groups. 'groups': 'code' selects the last tier; 'maths', 'logic', 'analysis' and 'extraction' select the lowest tier above the default that has a 'keyword_score'. 'graded': the same groups; their weights and the length of the prompt are a score, and the tier is selected by 'share'. 'lesson': four groups of single words, which select the last tier. 'none': only the groups of 'keywords'."`
	Keywords     []Keyword          `yaml:"keywords" ordered:"true" doc:"Keyword groups in addition to those of 'preset'. A group counts once, however often it matches. All groups together have at most 1000 expressions; 'tierway check' warns above 200."`
	KeywordScore map[string]float64 `yaml:"keyword_score" above:"0" absent:"'1' for the last tier, with three or more tiers for the second, and for each tier in 'keywords'" doc:"Minimum score by tier. The score of a tier is the sum of the weights of the matched groups for this tier and higher ones. The map replaces the default as a whole; '{}' turns the signal off. With 'share' it applies until the shares start, and with 'score' never."`
	Score        map[string]float64 `yaml:"score" absent:"no thresholds" doc:"Thresholds by tier: a prompt with a higher score selects that tier, in place of 'keyword_score'. The score is the sum of the weights of all matched groups, plus 'length_weight' for each doubling of the length of the last user turn. 'tierway explain' prints it."`
	Share        map[string]float64 `yaml:"share" above:"0" max:"1" absent:"none; with 'preset: graded' and without 'score', '0.1' for the last tier and, with three or more tiers, '0.3' for the second" doc:"Shares of prompts by tier: the prompts with the highest scores select the highest tier, in place of 'keyword_score'. The default tier gets the rest. The thresholds are quantiles of the last 2000 scores of the same tenant and alias; the first 200 prompts are decided by 'keyword_score'. '{}' turns the shares of the preset off."`
	LengthWeight *float64           `yaml:"length_weight" absent:"'1'" doc:"Weight of the length in the score, which is the weights of the matched groups plus 'length_weight' × log2(1 + bytes of the last user turn)."`
	Default      string             `yaml:"default" absent:"the first tier" doc:"Tier of requests for which no signal selects a tier."`
	Sticky       Sticky             `yaml:"sticky" doc:"Chats that stay at their tier, where their prompts are cached."`
	Unavailable  string             `yaml:"unavailable" enum:"up,down,refuse" doc:"Target of a request if its tier has no worker up. 'up': the next higher tier with a worker up, or else the next lower one. 'down': the reverse. 'refuse': the request stays at its tier and is rejected with 503 'no_healthy_worker' after 'queue.engine_wait'. Also applies to queued requests whose tier loses its last worker. Requests for a worker's own model never move."`
}

// Keyword is one group of expressions. A group counts once, however often it matches. Weight 0
// means 1. Without In, the last user turn is searched.
type Keyword struct {
	Tier   string   `yaml:"tier" required:"true" doc:"Tier that the group selects."`
	Name   string   `yaml:"name" required:"true" form:"name" doc:"Name of the group. X-Tier-Reason shows it as 'keyword:NAME'."`
	Weight float64  `yaml:"weight" above:"0" absent:"'1'" doc:"Weight that a match adds to the score of the tier and of all lower tiers."`
	In     []string `yaml:"in" enum:"user,system" absent:"user" doc:"Texts that are searched: 'user' is the last user turn, 'system' the system prompt."`
	Match  []string `yaml:"match" required:"true" doc:"Regular expressions in RE2 syntax; case is ignored. Write them in single quotes, in which YAML keeps backslashes."`
}

// Sticky keeps a chat at its tier. A nil Enabled means true, and Idle 0 means 30m.
type Sticky struct {
	Enabled *bool         `yaml:"enabled" doc:"A chat does not move to a lower tier while it is stored."`
	Idle    time.Duration `yaml:"idle" doc:"How long a chat is stored after its last request."`
}
