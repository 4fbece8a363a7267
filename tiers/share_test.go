package tiers

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// sendLengths resolves n prompts of random lengths with the further fields of q, adds their scores, and returns the
// last resolutions.
func sendLengths(t testing.TB, k *Catalog, q Query, n, last int) (all []Resolution) {
	t.Helper()
	source := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		q.Model, q.Input = Auto, &ClassifierInput{User: says(strings.Repeat("x", 1+source.IntN(3000)))}
		if v := resolveAndAdd(t, k, q); i >= n-last {
			all = append(all, v)
		}
	}
	return all
}

// countTargets returns the requests by target.
func countTargets(all []Resolution) map[string]int {
	counts := map[string]int{}
	for _, v := range all {
		counts[v.Target]++
	}
	return counts
}

// TestAReloadKeepsScoresOfTheSameScoring: other shares and signals use the same scores, and other groups or another
// length_weight start anew.
func TestAReloadKeepsScoresOfTheSameScoring(t *testing.T) {
	half := 0.5
	for name, c := range map[string]struct {
		rules Rules
		keeps bool
	}{
		"equal":          {Rules{Preset: "graded"}, true},
		"other shares":   {Rules{Preset: "graded", Share: shares(0.1, 0.2)}, true},
		"another signal": {Rules{Preset: "graded", MaxTokens: map[string]int64{"large": 9}}, true},
		"another weight": {Rules{Preset: "graded", LengthWeight: &half}, false},
		"another group":  {Rules{Preset: "graded", Keywords: []Keyword{codeWords()}}, false},
	} {
		recent := NewRecentScores(MaxScoreWindows)
		sendLengths(t, catalogOf(t, Rules{Preset: "graded"}), Query{Recent: recent}, minScores, 0)
		v := sendLengths(t, catalogOf(t, c.rules), Query{Recent: recent}, 1, 1)[0]
		if keeps := v.Rule == "share"; keeps != c.keeps {
			t.Errorf("%s: the next request went by %s", name, v.Rule)
		}
	}
}

// TestARestrictedTenantGetsItsOtherTiers: prompts of a share that the tenant may not use go to the next lower tier.
func TestARestrictedTenantGetsItsOtherTiers(t *testing.T) {
	k, recent := catalogOf(t, Rules{Preset: "graded"}), NewRecentScores(1)
	all := sendLengths(t, k, Query{Recent: recent, Allowed: func(name string) bool { return name != "large" }},
		minScores+maxScores, 1000)
	counts := countTargets(all)
	// Four standard errors at 600 of 1,000: 62 prompts, and 44 by the thresholds.
	if counts["large"] > 0 || counts["small"] < 490 || counts["small"] > 710 {
		t.Errorf("the targets are %v", counts)
	}
	for _, v := range all {
		if want := map[bool]string{true: "clamped", false: "share"}[strings.Contains(v.Note, "selected large") ||
			strings.Contains(v.Note, "clamped")]; v.Rule != want {
			t.Fatalf("a request went by %s: %s", v.Rule, v.Note)
		}
	}
}

// TestTwoTiersShareThePrompts: the last tier gets its share, and the first one the rest.
func TestTwoTiersShareThePrompts(t *testing.T) {
	k, err := New(Config{Rules: Rules{Preset: "graded"},
		Targets: []Target{{Name: "small", Tier: true}, {Name: "large", Tier: true}}})
	if err != nil {
		t.Fatal(err)
	}
	counts := countTargets(sendLengths(t, k, Query{Recent: NewRecentScores(1)}, minScores+maxScores, 1000))
	if counts["large"] < 54 || counts["large"] > 146 { // four standard errors of 1,000 prompts and 2,000 scores: 46
		t.Errorf("the targets are %v", counts)
	}
}

// TestAShareInFirstMatchComesLast: prompt_tokens and max_tokens come first, and every other request has a score.
func TestAShareInFirstMatchComesLast(t *testing.T) {
	k, recent := catalogOf(t, Rules{Preset: "graded", Mode: "first_match"}), NewRecentScores(1)
	sendLengths(t, k, Query{Recent: recent}, minScores, 0)
	long := strings.Repeat("x", 3000)
	for _, c := range []struct {
		maxTokens    int64
		text         string
		target, rule string
	}{
		{501, long, "medium", "max_tokens"}, {0, long, "large", "share"}, {0, "x", "small", "share"},
	} {
		v := resolveAndAdd(t, k, Query{Model: Auto, Recent: recent,
			Input: &ClassifierInput{MaxTokens: c.maxTokens, User: says(c.text)}})
		if v.Target != c.target || v.Rule != c.rule {
			t.Errorf("%d bytes with max_tokens %d: %s by %s, want %s by %s", len(c.text), c.maxTokens, v.Target, v.Rule,
				c.target, c.rule)
		}
	}
}

// TestAChatStaysAtTheTierOfItsShare when a later turn has a lower score.
func TestAChatStaysAtTheTierOfItsShare(t *testing.T) {
	k, recent, chats := catalogOf(t, Rules{Preset: "graded"}), NewRecentScores(1), NewChats(MaxChats)
	sendLengths(t, k, Query{Recent: recent}, minScores, 0)
	for _, c := range []struct {
		session              uint64
		text                 string
		target, rule, partOf string
	}{
		{7, strings.Repeat("x", 3000), "large", "share", "highest 10 %"},
		{7, "x", "large", "sticky", "share selected small"},
		{8, "x", "small", "share", "below"},
	} {
		v := resolveAndAdd(t, k, Query{Model: Auto, Recent: recent, Chats: chats,
			Input: &ClassifierInput{Now: time.Unix(1000, 0), Session: c.session, User: says(c.text)}})
		if v.Target != c.target || v.Rule != c.rule || !strings.Contains(v.Note, c.partOf) {
			t.Errorf("%d bytes in chat %d: %s by %s (%s)", len(c.text), c.session, v.Target, v.Rule, v.Note)
		}
	}
}

// TestAnUnknownScoreIsReported, and added to no window: the request was not classified, its record lacks the groups, or
// it came before the shares start. If another signal decides, nothing is missing.
func TestAnUnknownScoreIsReported(t *testing.T) {
	withGroup := Rules{Preset: "graded", Keywords: []Keyword{codeWords()}}
	zero := 0.0
	was := Evidence{Classified: true, UserBytes: 100}
	long := int64(90_000) // selects the last tier
	for name, c := range map[string]struct {
		rules   Rules
		was     Evidence
		unknown []string
		tokens  int64
		model   string
		scores  int // in the window
		want    Missing
		adds    bool
	}{
		"a known score":                  {Rules{Preset: "graded"}, was, nil, 10, Auto, minScores, MissingNothing, true},
		"not classified":                 {Rules{Preset: "graded"}, Evidence{}, nil, 10, Auto, minScores, MissingScore, false},
		"not classified, for score":      {Rules{Score: shares(3, 5)}, Evidence{}, nil, 10, Auto, 0, MissingScore, false},
		"not classified, but long":       {Rules{Preset: "graded"}, Evidence{}, nil, long, Auto, minScores, MissingNothing, false},
		"not classified, but named":      {Rules{Preset: "graded"}, Evidence{}, nil, 10, "medium", minScores, MissingNothing, false},
		"only groups, not classified":    {Rules{Score: shares(1, 2), LengthWeight: &zero}, Evidence{}, nil, 10, Auto, 0, MissingKeywords, false},
		"a new group":                    {withGroup, was, []string{"mine"}, 10, Auto, minScores, MissingKeywords, false},
		"a new group, but long":          {withGroup, was, []string{"mine"}, long, Auto, minScores, MissingNothing, false},
		"before the shares start":        {Rules{Preset: "graded"}, was, nil, 10, Auto, minScores - 1, MissingScores, true},
		"before they start, but long":    {Rules{Preset: "graded"}, was, nil, long, Auto, 0, MissingNothing, true},
		"before they start, but a model": {Rules{Preset: "graded"}, was, nil, 10, "large-model", 0, MissingNothing, false},
	} {
		k, recent := catalogOf(t, c.rules), NewRecentScores(1)
		sendLengths(t, k, Query{Recent: recent}, c.scores, 0)
		var score PendingScore
		_, missing, err := k.ResolveRecorded(Query{Model: c.model, Recent: recent, Pending: &score,
			Input: &ClassifierInput{PromptTokens: c.tokens}}, &c.was, c.unknown)
		if err != nil || missing != c.want || score.known != c.adds {
			t.Errorf("%s: missing %q, adds %v, %v; want %q, %v", name, missing, score.known, err, c.want, c.adds)
		}
	}
}
