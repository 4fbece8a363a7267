package tiers

import (
	"errors"
	"slices"
)

// Classification is the classifier's result for a request.
type Classification struct {
	Tier int    // index among the tiers' names; -1 without tiers
	Rule string // prompt_tokens, max_tokens, keyword:NAME, score, share or default
	// Score is the sum of the weights of all matched groups, plus classifier.length_weight times
	// log2(1 + bytes of the user text), in thousandths. Only classifier.score, and share unless a model decides, use it.
	Score float64
	// how the score compares with the thresholds, and why max_tokens was not counted, if it
	// exceeds the threshold of a higher tier; otherwise empty
	Note string
}

// Signal is the result of one kind of evidence for a request.
type Signal struct {
	Rule  string  `json:"rule"`           // prompt_tokens, max_tokens, keyword, score, share, default or sticky
	Tier  string  `json:"tier,omitempty"` // the tier that it requests; empty: none
	Value float64 `json:"value"`          // tokens, the score, or the weights of the matched groups for that tier
	// the threshold that Value exceeds, or else the lowest one; 0: none
	Threshold  float64  `json:"threshold,omitempty"`
	Matched    []string `json:"matched,omitempty"`     // names of all matched groups
	Exact      bool     `json:"exact,omitempty"`       // Value was counted, not estimated
	NotCounted string   `json:"not_counted,omitempty"` // why Value is ignored
}

// Classifier assigns tiers to requests. It is immutable and safe for concurrent use.
type Classifier struct {
	tiers       []string
	firstMatch  bool // mode first_match
	countsAll   bool // every max_tokens counts: preset lesson
	defaultTier int  // the default tier
	prompt      []threshold[int64]
	output      []threshold[int64]
	ceiling     int64 // the lowest max_tokens that is ignored as a ceiling
	scores      []threshold[float64]
	grading     grading
	model       *Model // nil: none
	matcher     *matcher
	warnings    []string
}

// NewClassifier checks rules and compiles them for tiers of these names, least capable first.
// The error joins all mistakes; each part starts with its key in config.yaml. Single values are
// checked before, by package config from the tags of Rules and Keyword. A nil model scores nothing.
func NewClassifier(rules Rules, tierNames []string, model *Model) (*Classifier, error) {
	c := &checker{tiers: slices.Clone(tierNames), names: map[string]string{}}
	normal := DefaultRules(c.tiers)
	k := &Classifier{tiers: c.tiers, defaultTier: min(0, len(c.tiers)-1), model: model}
	k.firstMatch = rules.Mode == "first_match"
	if rules.Default != "" {
		k.defaultTier = c.tierIndex("classifier.default", rules.Default)
	}
	floor := k.defaultTier
	if k.firstMatch {
		floor = -1 // the default applies only if no signal does
	}
	if c.checkExpressionCount(rules.Keywords) {
		for i, keyword := range rules.Keywords {
			c.addGroup(keyAt("classifier.keywords", i), keyword, c.addExpression)
		}
	}
	preset := rules.PresetName()
	scored := rules.KeywordScore
	if scored == nil {
		scored = normal.KeywordScore
	}
	c.addPreset(preset, c.lowestScored(scored, floor))
	k.countsAll = preset == "lesson"
	k.prompt = c.tokenThresholds("classifier.prompt_tokens", rules.PromptTokens, normal.PromptTokens, floor)
	k.output = c.tokenThresholds("classifier.max_tokens", rules.MaxTokens, normal.MaxTokens, floor)
	k.ceiling = ceilingOf(k.output)
	k.scores = c.scoreThresholds(rules.KeywordScore, normal.KeywordScore, floor)
	k.grading = c.newGrading(rules, preset, k.defaultTier, model)
	if k.grading.rule == "" {
		c.warnUnscored(rules, k.scores, floor)
	}
	if len(c.errs) > 0 {
		return nil, errors.Join(c.errs...)
	}
	k.matcher, k.warnings = newMatcher(c.groups, c.expressions, c.automaton(rules, preset)), c.warnings
	return k, nil
}

// Warnings returns rules that are valid but probably not intended, in the form of
// NewClassifier's errors.
func (k *Classifier) Warnings() []string { return slices.Clone(k.warnings) }

// countWithin is how far from a threshold, in tokens, a prompt is counted at most. A
// count costs 0.2 to 0.5 ms per KB, and prompts near a high threshold are long. Of the
// requests of a production chat service (Mooncake's trace) 24 % were counted without
// this bound at thresholds of 4,000 and 16,000 tokens, 48 KB of prose for 12 ms. With it
// 17 % are: prose of 12 to 21 KB, and of 57 KB and more. A third of 4,000 is the least
// bound that leaves the band around the lower threshold as it is.
// BenchmarkAuto of openai/prompt measures it.
const countWithin = 4000 / 3

// estimateLow and estimateHigh bound the exact tokens of a prompt by its estimate of a
// token for four bytes, so far as a count is worth its time: source code has about three
// bytes a token, plain English prose up to five and a third.
func estimateLow(estimate int64) int64  { return estimate - min(estimate/4, countWithin) }
func estimateHigh(estimate int64) int64 { return estimate + min(estimate/3, countWithin) + 1 }

// Classify returns the tier of a request. In mode max it is the highest tier that any signal
// requests, at least the default. In mode first_match it is the tier of the first signal among
// prompt tokens, max_tokens and keywords. With classifier.score, the score takes the place of the
// keywords. Without earlier scores, classifier.share has no effect. The prompt is counted if its estimate is too near a
// threshold to decide.
func (k *Classifier) Classify(f *ClassifierInput) Classification {
	return k.decide(f, windowSource{}, nil, nil, nil)
}

// decide is Classify with the earlier scores of a window, for classifier.share. It also fills e with the
// evidence, x with each signal and p with the score for the window, unless they are nil.
func (k *Classifier) decide(f *ClassifierInput, at windowSource, e *Evidence, x *ClassifierReport,
	p *PendingScore) Classification {
	s := k.matcher.begin()
	defer k.matcher.end(s)
	class, tokens, exact := k.classify(f, at, s)
	if p != nil {
		*p = k.pending(f, at, s)
	}
	if e != nil {
		*e = Evidence{Classified: true, UserBytes: s.userBytes, Groups: s.names(), Score: k.scored(s), Model: s.modelScore()}
		if exact {
			e.Counted = tokens
		}
	}
	if x != nil {
		*x = ClassifierReport{Tier: k.name(class.Tier), Rule: class.Rule, Score: class.Score,
			Model: s.modelScore(), Signals: k.signals(f, s, tokens, exact)}
	}
	return class
}

// signals returns each signal of a request that was just classified.
func (k *Classifier) signals(f *ClassifierInput, s *search, tokens int64, exact bool) []Signal {
	prompt := signal(k, rulePrompt, tokens, k.prompt)
	prompt.Exact = exact
	return []Signal{prompt, k.outputSignal(f), k.textSignal(s), {Rule: "default", Tier: k.name(k.defaultTier)}}
}

// textSignal returns the signal of the text: the score, or else the keyword groups.
func (k *Classifier) textSignal(s *search) Signal {
	if len(s.thresholds) > 0 {
		by := signal(k, k.grading.rule, s.score, s.thresholds)
		by.Matched = s.names()
		return by
	}
	tier, _ := k.keywordTier(s)
	words := Signal{Rule: "keyword", Tier: k.name(tier), Matched: s.names()}
	for _, t := range k.scores { // down to the requested tier, or else to the lowest
		words.Value, words.Threshold = s.weight(t.tier), t.over
		if t.tier == tier {
			break
		}
	}
	return words
}

// signal explains a number of tokens, or a score.
func signal[N int64 | float64](k *Classifier, rule string, value N, all []threshold[N]) Signal {
	s := Signal{Rule: rule, Value: float64(value)}
	for i, t := range all {
		if value > t.over {
			s.Tier, s.Threshold = k.name(t.tier), float64(t.over)
			return s
		}
		if i == 0 || float64(t.over) < s.Threshold {
			s.Threshold = float64(t.over)
		}
	}
	return s
}

func (k *Classifier) name(tier int) string {
	if tier < 0 {
		return ""
	}
	return k.tiers[tier]
}

// classify also returns the prompt's tokens, and whether they were counted.
func (k *Classifier) classify(f *ClassifierInput, at windowSource, s *search) (
	class Classification, tokens int64, exact bool,
) {
	if k.defaultTier < 0 {
		return Classification{Tier: -1, Rule: "default"}, f.PromptTokens, false
	}
	k.matchTexts(f, s)
	k.scoresOf(f, s)
	k.freezeThresholds(f, at, s)
	text, by := k.textTier(s)
	output, note := k.countedMaxTokens(f)
	decide := func(tokens int64) (tier int, rule string) {
		return k.combineSignals(tokens, output, text, by)
	}
	tokens = f.PromptTokens
	if k.uncertain(tokens, decide) {
		if n, ok := f.count(); ok {
			tokens, exact = n, true
		}
	}
	class.Tier, class.Rule = decide(tokens)
	if highestExceeded(f.MaxTokens, k.output) <= class.Tier {
		note = ""
	}
	class.Note = k.grading.note(class, s, note)
	class.Score = s.scores.Default
	return class, tokens, exact
}

// matchTexts searches the texts for the groups, or restores the recorded groups.
func (k *Classifier) matchTexts(f *ClassifierInput, s *search) {
	if f.recorded != nil {
		s.restoreGroups(f.recorded)
		return
	}
	userText := text(f.User)
	s.userBytes = len(userText)
	if len(userText) > 0 {
		s.scan(userText, inUser)
	}
	if k.matcher.in&inSystem != 0 {
		s.scan(text(f.System), inSystem)
	}
}

// uncertain reports whether the error of an estimate could change the tier.
func (k *Classifier) uncertain(estimate int64, decide func(int64) (int, string)) bool {
	low, high := estimateLow(estimate), estimateHigh(estimate)
	tier, _ := decide(estimate)
	for _, t := range k.prompt {
		if t.over < low || t.over >= high {
			continue
		}
		below, _ := decide(t.over)
		above, _ := decide(t.over + 1)
		if below != tier || above != tier {
			return true
		}
	}
	return false
}

// combineSignals returns the tier that the signals request; text is the tier that the text
// requests by the rule textRule, or -1.
func (k *Classifier) combineSignals(prompt, output int64, text int, textRule string) (tier int, rule string) {
	tier, rule = k.defaultTier, "default"
	// consider adds a signal and reports whether it is final.
	consider := func(to int, by string) bool {
		if to >= 0 && (k.firstMatch || to > tier || to == tier && rule == "default") {
			tier, rule = to, by
			return k.firstMatch
		}
		return false
	}
	if consider(highestExceeded(prompt, k.prompt), rulePrompt) ||
		consider(highestExceeded(output, k.output), ruleOutput) {
		return tier, rule
	}
	consider(text, textRule)
	return tier, rule
}

// highestExceeded returns the highest tier with a threshold below value, or -1.
func highestExceeded[N int64 | float64](value N, all []threshold[N]) int {
	for _, t := range all {
		if value > t.over {
			return t.tier
		}
	}
	return -1
}

// textTier returns the tier that the text requests and the rule: by its score, which always requests
// one, or else by its groups, or -1.
func (k *Classifier) textTier(s *search) (tier int, rule string) {
	if len(s.thresholds) > 0 {
		return max(highestExceeded(s.score, s.thresholds), k.defaultTier), k.grading.rule
	}
	return k.keywordTier(s)
}

// keywordTier returns the highest tier that the matched groups request, or -1, and the rule of the
// heaviest of the groups for that tier or a higher one.
func (k *Classifier) keywordTier(s *search) (tier int, rule string) {
	for _, t := range k.scores {
		// Sums of written decimals such as 0.1 are off by about 1e-16 each.
		if s.weight(t.tier) < t.over-1e-9 {
			continue
		}
		group := -1
		for i, g := range k.matcher.groups {
			if s.matched[i] && g.tier >= t.tier && (group < 0 || g.weight > k.matcher.groups[group].weight) {
				group = i
			}
		}
		if group >= 0 {
			return t.tier, k.matcher.groups[group].rule
		}
	}
	return -1, ""
}

// weight returns the sum of the weights of the matched groups for a tier and higher ones.
func (s *search) weight(tier int) float64 {
	sum := 0.0
	for i, matched := range s.matched {
		if g := &s.m.groups[i]; matched && g.tier >= tier {
			sum += g.weight
		}
	}
	return sum
}
