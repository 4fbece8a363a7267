package replay

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tierway/decisions"
	"tierway/routing"
	"tierway/tiers"
)

// graded returns rules with shares of the length alone.
func graded(medium, large float64) tiers.Rules {
	rules := thresholds(4000, 16000)
	rules.KeywordScore, rules.Share = nil, map[string]float64{"medium": medium, "large": large}
	return rules
}

// scoredRecords returns the records of n chats with random lengths, as the gateway of a setup would write and read
// them. change changes a record before it is written.
func scoredRecords(t *testing.T, s *Setup, n int, change func(i int, d *decisions.Decision)) []*decisions.Decision {
	t.Helper()
	var all []*decisions.Decision
	recent, source := tiers.NewRecentScores(1), rand.New(rand.NewPCG(1, 2))
	for i := range n {
		text := make([]byte, 1+source.IntN(3000))
		var e tiers.Evidence
		var score tiers.PendingScore
		v, err := s.Catalog.Resolve(tiers.Query{Model: tiers.Auto, Recent: recent, Evidence: &e, Pending: &score,
			Input: &tiers.ClassifierInput{PromptTokens: 100, User: func() []byte { return text }}})
		if err != nil {
			t.Fatal(err)
		}
		worker := map[string]string{"small": "a1", "medium": "b1", "large": "c1"}[v.Target]
		d := written(i, v.Target, worker, "least_load", 100, candidate(worker, 0))
		d.Dialect, d.Route, d.RequestedModel, d.Rule, d.RuleNote = "chat", "/chat/completions", tiers.Auto, v.Rule, v.Note
		d.Features = decisions.Features{Classified: true, UserTextBytes: e.UserBytes, Score: e.Score}
		if change != nil {
			change(i, d)
		}
		if d.Limit == "" && d.Dialect == "chat" {
			recent.Add(score)
		}
		b, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		read := new(decisions.Decision)
		if err := json.Unmarshal(b, read); err != nil {
			t.Fatal(err)
		}
		all = append(all, read)
	}
	return all
}

// TestASharesRecordIsReproduced from its stored form, whatever the draft changes besides.
func TestASharesRecordIsReproduced(t *testing.T) {
	now := setup(t, graded(0.3, 0.2), routing.Config{})
	records := scoredRecords(t, &now, 700, nil)
	rules := graded(0.3, 0.2)
	rules.PromptTokens = map[string]int64{"large": 9000}
	draft := setup(t, rules, routing.Config{})
	got := replay(t, Config{Now: now, Draft: &draft}, records...)
	if got.TiersReproduced != (Part{N: 700, Of: 700}) || len(got.ChangedTier) > 0 || len(got.Skipped) > 0 {
		t.Errorf("%+v, %+v, %+v", got.TiersReproduced, got.ChangedTier, got.Skipped)
	}
}

// TestTheSharesOfADraftStartAfter200Records of chats that were admitted. The others are left out, or add no score.
func TestTheSharesOfADraftStartAfter200Records(t *testing.T) {
	now, draft := setup(t, graded(0.3, 0.2), routing.Config{}), setup(t, graded(0.3, 0.1), routing.Config{})
	for name, c := range map[string]struct {
		change func(i int, d *decisions.Decision)
		want   []Count
	}{
		"all chats": {nil, []Count{{SkippedShare, 200}}},
		"every other counts tokens": {func(i int, d *decisions.Decision) {
			if i%2 == 1 {
				d.Dialect, d.Route = "messages", decisions.RouteCountTokens
			}
		}, []Count{{SkippedShare, 400 - 1}}},
		"every other is limited": {func(i int, d *decisions.Decision) {
			if i%2 == 1 {
				d.Attempts, d.Result, d.Status, d.Limit = nil, decisions.Refused, 429, "rpm"
			}
		}, []Count{{SkippedShare, 400 - 1}, {SkippedLimited, 151}}},
	} {
		got := replay(t, Config{Now: now, Draft: &draft}, scoredRecords(t, &now, 700, c.change)...)
		if diff := cmp.Diff(c.want, got.Skipped); diff != "" || got.TiersReproduced != (Part{N: 700, Of: 700}) {
			t.Errorf("%s: %+v %s", name, got.TiersReproduced, diff)
		}
		for _, m := range got.ChangedTier {
			if move := m.From + " " + m.To; move != "large medium" && move != "medium small" {
				t.Errorf("%s: %d went from %s to %s", name, m.N, m.From, m.To)
			}
		}
	}
}

// TestARecordWithoutAScoreIsLeftOut: a request that was not classified has no length, and no score in the window.
func TestARecordWithoutAScoreIsLeftOut(t *testing.T) {
	now := setup(t, thresholds(4000, 16000), routing.Config{})
	var records []*decisions.Decision
	for i := range 300 {
		d := written(i, "medium", "b1", "least_load", 100, candidate("b1", 0))
		d.Dialect, d.Rule, d.RequestedModel = "chat", "header", tiers.Auto
		d.Features = decisions.Features{Header: "medium"}
		records = append(records, d)
	}
	for name, rules := range map[string]tiers.Rules{
		"score": {Preset: "none", Score: map[string]float64{"large": 5}},
		"share": graded(0.3, 0.2),
	} {
		draft := setup(t, rules, routing.Config{})
		got := replay(t, Config{Now: now, Draft: &draft}, records...)
		if len(got.Skipped) > 0 || got.Decided != 300 { // the header still decides
			t.Errorf("%s: %+v", name, got.Skipped)
		}
	}
	for _, d := range records {
		d.Rule, d.RequestedModel, d.Features.Header = "model", "medium-model", ""
	}
	toAuto := func(s *Setup) { s.Catalog = withoutModels(t, graded(0.3, 0.2)) }
	draft := setup(t, graded(0.3, 0.2), routing.Config{}, toAuto)
	got := replay(t, Config{Now: now, Draft: &draft}, records...)
	if diff := cmp.Diff([]Count{{SkippedScore, 300}}, got.Skipped); diff != "" || len(got.ChangedTier) > 0 {
		t.Errorf("%s%+v", diff, got.ChangedTier)
	}
}

// withoutModels returns a catalog that leaves the tier of medium-model to the classifier.
func withoutModels(t *testing.T, rules tiers.Rules) *tiers.Catalog {
	t.Helper()
	c := tiers.Config{Rules: rules, Aliases: map[string]tiers.Targets{"medium-model": {tiers.Classify}}}
	for _, name := range []string{"small", "medium", "large"} {
		c.Targets = append(c.Targets, tiers.Target{Name: name, Tier: true})
	}
	k, err := tiers.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
