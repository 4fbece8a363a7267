package tiers

import (
	"cmp"
	"math/bits"
	"testing"

	"pgregory.net/rapid"
)

// TestDefaultMaxTokensIsNotCounted has values that clients send by default, and values that
// only a client that needs a long answer sends.
func TestDefaultMaxTokensIsNotCounted(t *testing.T) {
	const required, tools = "max_tokens not counted: the endpoint requires it",
		"max_tokens not counted: the request offers tools"
	const ceiling, usual = "max_tokens not counted: so high a value is a ceiling",
		"max_tokens not counted: a power of two is a client's default"
	raised := Rules{MaxTokens: map[string]int64{"large": 8000}}
	for name, c := range map[string]struct {
		rules Rules
		f     ClassifierInput
		want  string
		note  string
	}{
		"a wish for a longish answer":   {Rules{}, ClassifierInput{MaxTokens: 501}, "medium max_tokens", ""},
		"a wish for a long answer":      {Rules{}, ClassifierInput{MaxTokens: 3000}, "large max_tokens", ""},
		"the last value that is a wish": {Rules{}, ClassifierInput{MaxTokens: 3999}, "large max_tokens", ""},
		"a short answer, where it is required": {Rules{}, ClassifierInput{MaxTokens: 64, LimitRequired: true},
			"small default", ""},
		"1,024, where it is required": {Rules{}, ClassifierInput{MaxTokens: 1024, LimitRequired: true},
			"small default", required},
		"3,000, where it is required": {Rules{}, ClassifierInput{MaxTokens: 3000, LimitRequired: true},
			"small default", required},
		"an agent's 32,000": {Rules{}, ClassifierInput{MaxTokens: 32000, Tools: true}, "small default",
			tools},
		"an agent's 3,000": {Rules{}, ClassifierInput{MaxTokens: 3000, Tools: true}, "small default",
			tools},
		"an agent's, where it is required": {Rules{},
			ClassifierInput{MaxTokens: 64000, Tools: true, LimitRequired: true}, "small default", required},
		"a ceiling without tools": {Rules{}, ClassifierInput{MaxTokens: 4000}, "small default", ceiling},
		"a larger ceiling":        {Rules{}, ClassifierInput{MaxTokens: 32000}, "small default", ceiling},
		"a default of 1,024":      {Rules{}, ClassifierInput{MaxTokens: 1024}, "small default", usual},
		"a default of 2,048":      {Rules{}, ClassifierInput{MaxTokens: 2048}, "small default", usual},
		"a default of 1,000": {Rules{}, ClassifierInput{MaxTokens: 1000}, "small default",
			"max_tokens not counted: 1000 is a client's default"},
		"one more than 1,000":      {Rules{}, ClassifierInput{MaxTokens: 1001}, "medium max_tokens", ""},
		"less than a power of two": {Rules{}, ClassifierInput{MaxTokens: 2047}, "large max_tokens", ""},
		"small powers of two are no defaults": {Rules{MaxTokens: map[string]int64{"medium": 100}},
			ClassifierInput{MaxTokens: 256}, "medium max_tokens", ""},
		"thresholds beyond the usual ceilings": {raised, ClassifierInput{MaxTokens: 9000}, "large max_tokens", ""},
		"a ceiling beyond raised thresholds":   {raised, ClassifierInput{MaxTokens: 16000}, "small default", ceiling},
		"lower thresholds keep the ceiling": {Rules{MaxTokens: map[string]int64{"large": 100}},
			ClassifierInput{MaxTokens: 3000}, "large max_tokens", ""},
		"another signal decides all the same": {Rules{}, ClassifierInput{MaxTokens: 32000, Tools: true, PromptTokens: 5000},
			"medium prompt_tokens", tools},
		"nothing is said where it changes none": {Rules{},
			ClassifierInput{MaxTokens: 32000, Tools: true, PromptTokens: 17000}, "large prompt_tokens", ""},
		"no thresholds": {Rules{MaxTokens: map[string]int64{}},
			ClassifierInput{MaxTokens: 32000, Tools: true}, "small default", ""},
		"the lesson counts every one": {Rules{Preset: "lesson"},
			ClassifierInput{MaxTokens: 4096, Tools: true, LimitRequired: true}, "large max_tokens", ""},
		"the lesson counts powers of two": {Rules{Preset: "lesson"}, ClassifierInput{MaxTokens: 1024},
			"medium max_tokens", ""},
	} {
		c.rules.Preset = cmp.Or(c.rules.Preset, "groups")
		k := classifier(t, c.rules)
		class, signals := explained(k, &c.f)
		if got := three()[class.Tier] + " " + class.Rule; got != c.want || class.Note != c.note || class != k.Classify(&c.f) {
			t.Errorf("%s: %s (%s), want %s (%s)", name, got, class.Note, c.want, c.note)
		}
		if s := signals[1]; s.Value != float64(c.f.MaxTokens) ||
			c.note != "" && (s.Tier != "" || "max_tokens not counted: "+s.NotCounted != c.note) {
			t.Errorf("%s: the signal is %+v, want the note %q", name, s, c.note)
		}
	}
}

// TestUncountedMaxTokensIsInTheNote checks that a resolution says why max_tokens was not
// counted, beside the other overridden rules.
func TestUncountedMaxTokensIsInTheNote(t *testing.T) {
	k := catalogOf(t, Rules{Preset: "groups"})
	f := &ClassifierInput{MaxTokens: 32000, Tools: true}
	v, err := k.Resolve(Query{Model: Auto, Input: f})
	if want := "max_tokens not counted: the request offers tools"; err != nil || v.Target != "small" ||
		v.Rule != "default" || v.Note != want {
		t.Errorf("%+v, %v; want the note %q", v, err, want)
	}
	v, err = k.Resolve(Query{Model: Auto, Input: f, Available: func(target string) bool { return target != "small" }})
	if want := "max_tokens not counted: the request offers tools; default selected small"; err != nil ||
		v.Target != "medium" || v.Rule != "unavailable" || v.Note != want {
		t.Errorf("%+v, %v; want the note %q", v, err, want)
	}
	v, err = k.Resolve(Query{Model: Auto, Header: "large", Input: f})
	if err != nil || v.Rule != "header" || v.Note != "" {
		t.Errorf("a request with a tier in its header is not classified: %+v, %v", v, err)
	}
}

// TestMaxTokensNeverMovesARequestWithTools compares requests with the same requests without
// max_tokens.
func TestMaxTokensNeverMovesARequestWithTools(t *testing.T) {
	k := classifier(t, Rules{Preset: "groups"})
	rapid.Check(t, func(rt *rapid.T) {
		f := ClassifierInput{PromptTokens: rapid.Int64Range(0, 30000).Draw(rt, "prompt"),
			MaxTokens: rapid.Int64Range(0, 1<<31-1).Draw(rt, "max"),
			Tools:     rapid.Bool().Draw(rt, "tools"), LimitRequired: rapid.Bool().Draw(rt, "required")}
		without := f
		without.MaxTokens = 0
		got, plain := k.Classify(&f), k.Classify(&without)
		counted := !f.Tools && !f.LimitRequired && f.MaxTokens < 4000 &&
			!(f.MaxTokens >= 512 && bits.OnesCount64(uint64(f.MaxTokens)) == 1) && f.MaxTokens != 1000
		if !counted && (got.Tier != plain.Tier || got.Rule != plain.Rule) {
			rt.Errorf("%+v is %+v, without max_tokens %+v", f, got, plain)
		}
		if counted && got.Note != "" {
			rt.Errorf("%+v counts, and the note is %q", f, got.Note)
		}
	})
}
