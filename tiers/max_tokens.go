package tiers

import "strings"

// commonCeiling is the lowest max_tokens that clients send as a ceiling rather than as an
// estimate: 4,000 and 4,096 are defaults of several libraries, and coding agents send what the
// context leaves, from 4,000 to 64,000.
const commonCeiling = 4000

// leastDefault is the lowest power of two that clients send by default.
const leastDefault = 512

// titleDefault is what chat programs send with requests that they write themselves, such as Open WebUI
// for the title of a chat.
const titleDefault = 1000

// Notes of a Classification about a max_tokens that was not counted.
const (
	notCounted   = "max_tokens not counted: "
	noteRequired = notCounted + "the endpoint requires it"
	noteTools    = notCounted + "the request offers tools"
	noteCeiling  = notCounted + "so high a value is a ceiling"
	noteDefault  = notCounted + "a power of two is a client's default"
	noteTitle    = notCounted + "1000 is a client's default"
)

// countedMaxTokens returns the max_tokens that count for the tier, or 0 and the reason why not:
// the endpoint requires a limit, the request offers tools, or clients send the value by
// default. The rule uses one request only, so that equal requests get equal tiers on every
// gateway and after a restart.
func (k *Classifier) countedMaxTokens(f *ClassifierInput) (tokens int64, note string) {
	n := f.MaxTokens
	switch {
	case k.countsAll || n <= 0:
		return n, ""
	case f.LimitRequired:
		return 0, noteRequired
	case f.Tools:
		return 0, noteTools
	case n >= k.ceiling:
		return 0, noteCeiling
	case n >= leastDefault && n&(n-1) == 0:
		return 0, noteDefault
	case n == titleDefault:
		return 0, noteTitle
	}
	return n, ""
}

// ceilingOf returns the lowest max_tokens that is a ceiling under these thresholds: twice the
// highest one if that is above the common ceiling, so that a configured threshold is never
// unreachable.
func ceilingOf(output []threshold[int64]) int64 {
	ceiling := int64(commonCeiling)
	for _, t := range output {
		ceiling = max(ceiling, 2*min(t.over, 1<<40))
	}
	return ceiling
}

// outputSignal explains the signal of max_tokens.
func (k *Classifier) outputSignal(f *ClassifierInput) Signal {
	tokens, note := k.countedMaxTokens(f)
	s := signal(k, ruleOutput, tokens, k.output)
	s.Value, s.NotCounted = float64(f.MaxTokens), strings.TrimPrefix(note, notCounted)
	return s
}
