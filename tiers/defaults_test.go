package tiers

import (
	"fmt"
	"testing"
)

// TestPresetGroupsUseEachOfThreeTiers checks the tier of each preset group, depending on the
// tiers with a keyword score.
func TestPresetGroupsUseEachOfThreeTiers(t *testing.T) {
	const plain, maths, code, both = "Write a poem about spring.", "Solve for x: 3x - 7 = 11",
		"Write a function that sorts a list.", "Solve for x: 3x - 7 = 11 and return JSON"
	score := func(medium, large float64) Rules {
		r := Rules{KeywordScore: map[string]float64{}}
		for name, v := range map[string]float64{"medium": medium, "large": large} {
			if v > 0 {
				r.KeywordScore[name] = v
			}
		}
		return r
	}
	own := Rules{Keywords: []Keyword{{Tier: "large", Name: "own", Match: []string{"poem"}}}}
	for name, c := range map[string]struct {
		rules Rules
		tiers []string
		want  string // the tiers of plain, maths, code and both
	}{
		"three tiers":                  {Rules{}, three(), "0 1 2 1"},
		"two tiers":                    {Rules{}, []string{"small", "large"}, "0 1 1 1"},
		"four tiers":                   {Rules{}, []string{"a", "b", "c", "d"}, "0 1 3 1"},
		"one tier":                     {Rules{}, []string{"small"}, "0 0 0 0"},
		"the defaults, written":        {score(1, 1), three(), "0 1 2 1"},
		"a score for the last only":    {score(0, 1), three(), "0 2 2 2"},
		"a score for the second only":  {score(1, 0), three(), "0 1 1 1"},
		"two groups, or code":          {score(0, 2), three(), "0 0 2 2"},
		"a higher score for the last":  {score(1, 2), three(), "0 1 2 1"},
		"the second is the default":    {Rules{Default: "medium"}, three(), "1 2 2 2"},
		"the first of those that ask":  {Rules{Mode: "first_match"}, three(), "0 1 2 1"},
		"a group of one's own":         {own, three(), "2 1 2 1"},
		"none of the lesson's words":   {Rules{Preset: "lesson"}, three(), "0 0 0 0"},
		"nothing but one's own groups": {Rules{Preset: "none", Keywords: own.Keywords}, three(), "2 0 0 0"},
	} {
		k := classifier(t, c.rules, c.tiers...)
		got := ""
		for _, text := range []string{plain, maths, code, both} {
			got += fmt.Sprint(k.Classify(&ClassifierInput{User: says(text)}).Tier, " ")
		}
		if got != c.want+" " {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if w := k.Warnings(); len(w) > 0 {
			t.Errorf("%s: warns %q", name, w)
		}
	}
}

// TestLessonWordsRequestTheLastTier whatever other tiers have a score.
func TestLessonWordsRequestTheLastTier(t *testing.T) {
	for _, r := range []Rules{{Preset: "lesson"},
		{Preset: "lesson", KeywordScore: map[string]float64{"medium": 1, "large": 1}}} {
		if class := classifier(t, r).Classify(&ClassifierInput{User: says("What is the dress code?")}); class.Tier != 2 ||
			class.Rule != "keyword:code" {
			t.Errorf("%+v", class)
		}
	}
}
