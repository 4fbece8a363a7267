package tiers

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func three() []string { return []string{"small", "medium", "large"} }

func classifier(t testing.TB, r Rules, names ...string) *Classifier {
	t.Helper()
	if len(names) == 0 {
		names = three()
	}
	c, err := NewClassifier(r, names, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// words is two groups of plain keywords.
func words() Rules {
	return Rules{Preset: "none", KeywordScore: map[string]float64{"medium": 0.5, "large": 1}, Keywords: []Keyword{
		{Tier: "large", Name: "reasoning", Match: []string{`\bprove\b`, `step.by.step`}},
		{Tier: "large", Name: "half", Weight: 0.5, Match: []string{`compare`}},
		{Tier: "large", Name: "other", Weight: 0.5, Match: []string{`contrast`}},
		{Tier: "medium", Name: "mail", Weight: 0.5, Match: []string{`e-?mail`}, In: []string{"user", "system"}},
		{Tier: "large", Name: "rules", Weight: 2, Match: []string{`be rigorous`}, In: []string{"system"}},
	}}
}

func says(text string) func() []byte { return func() []byte { return []byte(text) } }

func TestExpectedSignalDecides(t *testing.T) {
	for name, c := range map[string]struct {
		f          ClassifierInput
		max, first string
	}{
		"nothing":       {ClassifierInput{}, "small default", "small default"},
		"a threshold":   {ClassifierInput{PromptTokens: 4000, MaxTokens: 500}, "small default", "small default"},
		"one over it":   {ClassifierInput{PromptTokens: 4001}, "medium prompt_tokens", "medium prompt_tokens"},
		"over the next": {ClassifierInput{PromptTokens: 16001}, "large prompt_tokens", "large prompt_tokens"},
		"output":        {ClassifierInput{MaxTokens: 501}, "medium max_tokens", "medium max_tokens"},
		"much output":   {ClassifierInput{MaxTokens: 2001}, "large max_tokens", "large max_tokens"},
		"prompt and output": {ClassifierInput{PromptTokens: 6000, MaxTokens: 600}, "medium prompt_tokens",
			"medium prompt_tokens"},
		"prompt and much output": {ClassifierInput{PromptTokens: 6000, MaxTokens: 3000}, "large max_tokens",
			"medium prompt_tokens"},
		"a keyword": {ClassifierInput{User: says("Prove it")}, "large keyword:reasoning",
			"large keyword:reasoning"},
		"part of a word": {ClassifierInput{User: says("improved")}, "small default", "small default"},
		"a long keyword": {ClassifierInput{User: says("prove that"), PromptTokens: 5000}, "large keyword:reasoning",
			"medium prompt_tokens"},
		"output before keyword": {ClassifierInput{User: says("prove that"), MaxTokens: 600}, "large keyword:reasoning",
			"medium max_tokens"},
		"half a score": {ClassifierInput{User: says("compare, compare")}, "medium keyword:half",
			"medium keyword:half"},
		"two halves": {ClassifierInput{User: says("compare and contrast")}, "large keyword:half",
			"large keyword:half"},
		"not for the higher tier": {ClassifierInput{User: says("compare emails")}, "medium keyword:half",
			"medium keyword:half"},
		"the weightiest": {ClassifierInput{User: says("prove, compare")}, "large keyword:reasoning",
			"large keyword:reasoning"},
		"system text": {ClassifierInput{System: says("prove; Be Rigorous")}, "large keyword:rules",
			"large keyword:rules"},
		"not the user's": {ClassifierInput{User: says("be rigorous")}, "small default", "small default"},
		"either":         {ClassifierInput{User: says("E-Mail")}, "medium keyword:mail", "medium keyword:mail"},
		"keyword and prompt": {ClassifierInput{User: says("prove"), PromptTokens: 20000}, "large prompt_tokens",
			"large prompt_tokens"},
	} {
		for mode, want := range map[string]string{"max": c.max, "first_match": c.first} {
			r := words()
			r.Mode = mode
			class := classifier(t, r).Classify(&c.f)
			if got := three()[class.Tier] + " " + class.Rule; got != want {
				t.Errorf("%s, mode %s: %s, want %s", name, mode, got, want)
			}
		}
	}
}

func TestSignalForTheDefaultTierIsTheRule(t *testing.T) {
	class := classifier(t,
		Rules{Default: "medium", PromptTokens: map[string]int64{"medium": 10}}).Classify(&ClassifierInput{PromptTokens: 11})
	if class.Tier != 1 || class.Rule != "prompt_tokens" {
		t.Errorf("%+v", class)
	}
}

func TestRuleNamesAGroupOfTheTier(t *testing.T) {
	r := words()
	r.Keywords = append(r.Keywords, Keyword{Tier: "medium", Name: "heavy", Weight: 9, Match: []string{"heavy"}},
		Keyword{Tier: "large", Name: "loose", Match: []string{`\w\W\w`}, In: []string{"system"}})
	c := classifier(t, r)
	for want, f := range map[string]ClassifierInput{
		"2 keyword:reasoning": {User: says("heavy, prove")},
		"0 default":           {User: says("a-1")},
		"2 keyword:loose":     {System: says("a-1")},
	} {
		class := c.Classify(&f)
		if got := fmt.Sprint(class.Tier, " ", class.Rule); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestNoMaxTokensIsNoSignal(t *testing.T) {
	if class := classifier(t,
		Rules{Mode: "first_match", Default: "large",
			MaxTokens: map[string]int64{"small": 0}}).Classify(&ClassifierInput{}); class.Rule != "default" {
		t.Errorf("%+v", class)
	}
	if class := classifier(t, Rules{MaxTokens: map[string]int64{"medium": 0}}).Classify(
		&ClassifierInput{MaxTokens: -1}); class.Rule != "default" {
		t.Errorf("%+v", class)
	}
}

func TestDefaultIsAFloorInModeMaxOnly(t *testing.T) {
	for mode, want := range map[string]string{"max": "2 default", "first_match": "1 prompt_tokens"} {
		class := classifier(t, Rules{Mode: mode, Default: "large"}).Classify(&ClassifierInput{PromptTokens: 6000})
		if got := fmt.Sprint(class.Tier, " ", class.Rule); got != want {
			t.Errorf("mode %s: %s, want %s", mode, got, want)
		}
	}
}

func TestDefaultsDependOnTheTiersPosition(t *testing.T) {
	for want, names := range map[string][]string{
		"map[] map[] map[]":                                  {"a"},
		"map[b:16000] map[b:2000] map[b:1]":                  {"a", "b"},
		"map[b:4000 c:16000] map[b:500 c:2000] map[b:1 c:1]": {"a", "b", "c"},
		"map[b:4000 d:16000] map[b:500 d:2000] map[b:1 d:1]": {"a", "b", "c", "d"},
	} {
		r := DefaultRules(names)
		if got := fmt.Sprint(r.PromptTokens, r.MaxTokens, r.KeywordScore); got != want {
			t.Errorf("%v: %s, want %s", names, got, want)
		}
		if c := classifier(t, r, names...); len(c.Warnings()) > 0 && len(names) > 1 {
			t.Errorf("%v: the defaults are warned of: %q", names, c.Warnings())
		}
	}
	empty := classifier(t, Rules{PromptTokens: map[string]int64{}, MaxTokens: map[string]int64{},
		KeywordScore: map[string]float64{}})
	if class := empty.Classify(&ClassifierInput{PromptTokens: 1e6, MaxTokens: 1e6,
		User: says("prove that this equation")}); class.Tier != 0 {
		t.Errorf("empty sections decide: %+v", class)
	}
	if class := classifier(t,
		Rules{Preset: "none", Keywords: []Keyword{{Tier: "medium", Name: "x", Match: []string{"xyz"}}}}).
		Classify(&ClassifierInput{User: says("xyz")}); class.Tier != 1 {
		t.Errorf("a group without a score decides nothing: %+v", class)
	}
	none, err := NewClassifier(Rules{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if class := none.Classify(&ClassifierInput{}); class.Tier != -1 {
		t.Errorf("without tiers: %+v", class)
	}
}

func TestPromptIsCountedOnlyNearAThreshold(t *testing.T) {
	for name, c := range map[string]struct {
		estimate, exact int64
		user            string
		counted         bool
		tier            int
	}{
		"far below":                {2900, 5000, "", false, 0},
		"near below, is above":     {3100, 4001, "", true, 1},
		"near below, is below":     {3900, 3901, "", true, 0},
		"near above, is below":     {5300, 4000, "", true, 0},
		"far above":                {5400, 3000, "", false, 1},
		"near, decided by a word":  {3900, 4100, "prove", false, 2},
		"near the last, by a word": {15900, 16100, "prove", false, 2},
		"near the last":            {15900, 16100, "", true, 2},
		"too far below the last":   {14600, 16100, "", false, 1},
		"too far above the last":   {17400, 15900, "", false, 2},
	} {
		n := 0
		f := ClassifierInput{PromptTokens: c.estimate, User: says(c.user), Count: func() (int64, bool) {
			n++
			return c.exact, true
		}}
		class := classifier(t, words()).Classify(&f)
		if class.Tier != c.tier || n > 1 || (n == 1) != c.counted {
			t.Errorf("%s: tier %d, counted %d times", name, class.Tier, n)
		}
	}
	f := ClassifierInput{PromptTokens: 4100, Count: func() (int64, bool) { return 0, false }}
	if class := classifier(t, words()).Classify(&f); class.Tier != 1 {
		t.Errorf("a count that cannot be had: %+v", class)
	}
	// The words request large below medium's threshold; between the thresholds
	// the prompt's length requests less.
	r := words()
	r.Mode, r.PromptTokens = "first_match", map[string]int64{"medium": 4000, "large": 4400}
	f = ClassifierInput{PromptTokens: 4500, User: says("prove"), Count: func() (int64, bool) { return 4200, true }}
	if class := classifier(t, r).Classify(&f); class.Tier != 1 {
		t.Errorf("a prompt between two thresholds was not counted: %+v", class)
	}
}

func TestMoreNeverLowersTheTierInModeMax(t *testing.T) {
	c := classifier(t, words())
	piece := rapid.SampledFrom([]string{"prove ", "step by step", "compare ", "contrast\n", "email", "x ", "ſtep.by.step",
		"é"})
	rapid.Check(t, func(rt *rapid.T) {
		before := strings.Join(rapid.SliceOfN(piece, 0, 5).Draw(rt, "text"), " ")
		f := ClassifierInput{PromptTokens: rapid.Int64Range(0, 30000).Draw(rt, "prompt"),
			MaxTokens: rapid.Int64Range(0, 4000).Draw(rt, "max"), User: says(before)}
		more := ClassifierInput{PromptTokens: f.PromptTokens + rapid.Int64Range(0, 9000).Draw(rt, "more prompt"),
			MaxTokens: f.MaxTokens,
			User:      says(before + " " + strings.Join(rapid.SliceOfN(piece, 0, 5).Draw(rt, "more text"), " "))}
		a, b := c.Classify(&f), c.Classify(&more)
		if b.Tier < a.Tier || b.Score < a.Score {
			rt.Errorf("%+v became %+v", a, b)
		}
	})
}

// explained returns a request's classification and its signals.
func explained(k *Classifier, f *ClassifierInput) (Classification, []Signal) {
	var x ClassifierReport
	return k.decide(f, windowSource{}, nil, &x, nil), x.Signals
}

func TestExplanationAgreesWithClassify(t *testing.T) {
	c := classifier(t, words())
	f := ClassifierInput{PromptTokens: 16100, MaxTokens: 100, User: says("compare emails"),
		Count: func() (int64, bool) { return 15999, true }}
	class, signals := explained(c, &f)
	if class != c.Classify(&f) {
		t.Errorf("%+v is not %+v", class, c.Classify(&f))
	}
	want := "[{prompt_tokens medium 15999 4000 [] true } {max_tokens  100 500 [] false } {keyword medium 1 0.5 [half " +
		"mail] false } {default small 0 0 [] false }]"
	if got := fmt.Sprint(signals); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	rapid.Check(t, func(rt *rapid.T) {
		f := ClassifierInput{PromptTokens: rapid.Int64Range(0, 30000).Draw(rt, "prompt"),
			MaxTokens: rapid.Int64Range(0, 4000).Draw(rt, "max"),
			User:      says(rapid.SampledFrom([]string{"", "prove", "compare", "compare, contrast"}).Draw(rt, "text"))}
		class, signals := explained(c, &f)
		highest := ""
		for _, s := range signals[:3] {
			if s.Tier != "" && (highest == "" || s.Tier == "large") {
				highest = s.Tier
			}
			passes := s.Value > s.Threshold || s.Rule == "keyword" && s.Value >= s.Threshold
			if (passes && s.NotCounted == "") != (s.Tier != "") {
				rt.Errorf("it does not add up: %+v", s)
			}
		}
		if class != c.Classify(&f) || highest != "" && three()[class.Tier] != highest {
			rt.Errorf("%+v from %+v", class, signals)
		}
	})
}

func TestEachMistakeInRulesIsReportedUnderItsConfigKey(t *testing.T) {
	for name, c := range map[string]struct {
		rules Rules
		want  []string
	}{
		"default": {Rules{Default: "big"},
			[]string{`classifier.default: unknown tier "big": name one of the tiers (small, medium, large)`}},
		"thresholds": {Rules{PromptTokens: map[string]int64{"big": 1}, MaxTokens: map[string]int64{"tiny": 1},
			KeywordScore: map[string]float64{"x": 1}}, []string{
			`classifier.prompt_tokens.big: unknown tier "big"`, `classifier.max_tokens.tiny: unknown tier`,
			`classifier.keyword_score.x: unknown tier`}},
		"keywords": {Rules{Keywords: []Keyword{
			{Name: "nowhere"},
			{Tier: "large", Name: "a b", Match: []string{`(`, `a{2`, `a**`, `x*|`, `[^\x00-\x{10FFFF}]`}},
			{Tier: "large", Name: "code", Match: []string{"abc"}},
			{Tier: "large", Name: "twice", Match: []string{"abc"}}, {Tier: "large", Name: "twice", Match: []string{"abc"}},
		}}, []string{
			`classifier.keywords[0].tier: unknown tier ""`,
			`classifier.keywords[1].match[0]: missing closing ) "(": write it`,
			`classifier.keywords[1].match[2]: invalid nested repetition operator "**"`,
			`classifier.keywords[1].match[3]: matches every text: `, `classifier.keywords[1].match[4]: matches nothing: `,
			`classifier.keywords[4].name: duplicate name "twice", used by classifier.keywords[3]`,
			`classifier.keywords[2].name: duplicate name "code", used by the preset "groups"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewClassifier(c.rules, three(), nil)
			if err == nil {
				t.Fatal("no mistake was found")
			}
			if got := strings.Split(err.Error(), "\n"); len(got) != len(c.want) {
				t.Errorf("got %d mistakes, want %d:\n%v", len(got), len(c.want), err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no mistake is %s:\n%v", want, err)
				}
			}
		})
	}
}

func TestRulesWithoutEffectAreWarnedOf(t *testing.T) {
	word := func(tier, match string) []Keyword { return []Keyword{{Tier: tier, Name: "w", Match: []string{match}}} }
	for name, c := range map[string]struct {
		rules Rules
		want  string
	}{
		"nothing":     {words(), ""},
		"the presets": {Rules{Preset: "lesson"}, ""},
		"no literal": {Rules{Keywords: word("large", `\w+ing|ab`)},
			"classifier.keywords[0].match[0]: has an alternative without a literal of three bytes"},
		"one alternative without a literal": {Rules{Keywords: word("large", `prove|go`)},
			"classifier.keywords[0].match[0]: has an alternative without"},
		"a lower threshold for a higher tier": {Rules{PromptTokens: map[string]int64{"medium": 4000, "large": 4000}},
			"classifier.prompt_tokens.medium: has no effect: a higher tier is already selected above 4000"},
		"below the default": {Rules{Default: "medium", MaxTokens: map[string]int64{"medium": 500}},
			`classifier.max_tokens.medium: has no effect: the default tier "medium"`},
		"a score just reached": {Rules{Preset: "none", Keywords: word("large", "abc"),
			KeywordScore: map[string]float64{"large": 1}}, ""},
		"below in first_match": {Rules{Mode: "first_match", Default: "medium", MaxTokens: map[string]int64{"medium": 500}},
			""},
		"a score out of reach": {Rules{Preset: "none", Keywords: word("large", "abc"),
			KeywordScore: map[string]float64{"large": 2}}, "classifier.keyword_score.large: cannot be reached"},
		"a group without a score": {Rules{Preset: "none", Keywords: word("medium", "abc"),
			KeywordScore: map[string]float64{}},
			"classifier.keywords[0].tier: has no effect"},
	} {
		got := strings.Join(classifier(t, c.rules).Warnings(), "\n")
		if !strings.HasPrefix(got, c.want) || strings.Contains(got, "\n") || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestBackspaceInAnExpressionIsAnError: YAML turns \b in double quotes into a backspace, and
// such an expression never matches.
func TestBackspaceInAnExpressionIsAnError(t *testing.T) {
	rules := Rules{Preset: "none", Keywords: []Keyword{{Tier: "large", Name: "w", Match: []string{"\bnewsletter\b"}}}}
	_, err := NewClassifier(rules, []string{"small", "large"}, nil)
	if err == nil || !strings.Contains(err.Error(), "classifier.keywords[0].match[0]: ") ||
		!strings.Contains(err.Error(), "single quotes") {
		t.Errorf("the error is %v", err)
	}
}
