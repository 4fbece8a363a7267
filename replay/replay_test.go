package replay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tierway/decisions"
	"tierway/routing"
	"tierway/tiers"
)

// thresholds is rules under which only the prompt's length decides.
func thresholds(medium, large int64) tiers.Rules {
	off := false
	return tiers.Rules{Preset: "none", PromptTokens: map[string]int64{"medium": medium, "large": large},
		MaxTokens:    map[string]int64{},
		KeywordScore: map[string]float64{}, Sticky: tiers.Sticky{Enabled: &off}}
}

// setup returns three tiers of two workers each, a1 and a2 in small, b1 and b2 in medium, c1
// and c2 in large, under one policy.
func setup(t testing.TB, rules tiers.Rules, policy routing.Config, change ...func(*Setup)) Setup {
	t.Helper()
	c := tiers.Config{Rules: rules}
	s := Setup{}
	for i, name := range []string{"small", "medium", "large"} {
		c.Targets = append(c.Targets, tiers.Target{Name: name, Tier: true, Model: name + "-model"})
		letter := string(rune('a' + i))
		s.Pools = append(s.Pools,
			Pool{Name: name, Policy: policy, Members: []routing.Member{{ID: letter + "1", Weight: 1},
				{ID: letter + "2", Weight: 1}}})
	}
	var err error
	if s.Catalog, err = tiers.New(c); err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&s)
	}
	return s
}

// TestAttemptsInOtherTiersAreNotDecidedAgain: the request failed there before or after its own tier.
func TestAttemptsInOtherTiersAreNotDecidedAgain(t *testing.T) {
	s := setup(t, thresholds(1000, 2000), routing.Config{Name: "round_robin"})
	d := written(1, "small", "a1", "round_robin", 10, candidate("a1", 0), candidate("a2", 1))
	other := written(1, "medium", "b1", "round_robin", 10, candidate("b1", 0)).Attempts[0]
	other.Tier = "medium"
	d.Attempts = append(d.Attempts, other)
	r, err := New(Config{Now: s})
	if err != nil {
		t.Fatal(err)
	}
	r.Add(d)
	if got := r.Report(); got.WorkersReproduced.Of != 1 || len(got.Skipped) > 0 {
		t.Errorf("%+v", got)
	}
	if a := picked(d); a.Worker != "a1" {
		t.Errorf("the attempt at %s is decided again", a.Worker)
	}
}

// candidate returns an idle worker.
func candidate(id string, index int) routing.Candidate {
	return routing.Candidate{Worker: id, Index: index, Weight: 1, Rate: 1000}
}

// written returns a request of so many tokens without any preference that went to a worker of a
// tier, with the recorded candidates.
func written(n int, tier, worker, policy string, tokens int64, cs ...routing.Candidate) *decisions.Decision {
	at := time.Unix(1_800_000_000, 0).Add(time.Duration(n) * time.Second).UTC()
	return &decisions.Decision{SchemaVersion: decisions.SchemaVersion, Time: at, RequestID: fmt.Sprint("r", n),
		Generation: 1, Tier: tier, Rule: "default",
		Policy: policy, Worker: worker, PromptTokens: tokens, Features: decisions.Features{Classified: true},
		Result: decisions.OK, Status: 200,
		Attempts: []decisions.Attempt{{Worker: worker, AtMs: 1, Status: 200, FirstAtMs: 101, EndAtMs: 201, DurationMs: 100,
			Choice: &routing.Choice{Policy: policy, Rand: routing.Hash(n), PromptTokens: tokens, OutputTokens: 100,
				Seen: len(cs), Candidates: cs}}}}
}

func replay(t testing.TB, c Config, ds ...*decisions.Decision) *Report {
	t.Helper()
	r, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range ds {
		r.Add(d)
	}
	return r.Report()
}

func TestLowerThresholdMovesExactlyThePromptsAboveIt(t *testing.T) {
	now := setup(t, thresholds(4000, 16000), routing.Config{})
	var ds []*decisions.Decision
	for n := range 100 {
		ds = append(ds, written(n, "small", "a1", "least_load", int64(n)*30, candidate("a1", 0))) // 0 to 2,970 tokens
	}
	ds = append(ds, written(100, "large", "c1", "least_load", 20_000, candidate("c1", 0)))
	draft := setup(t, thresholds(2000, 16000), routing.Config{})
	for _, d := range ds {
		d.Features.Counted = max(1, d.PromptTokens) // or the draft asks for it near the threshold
	}
	got := replay(t, Config{Now: now, Draft: &draft}, ds...)
	want := []TierMove{{From: "small", To: "medium", N: 33, Examples: []string{"r67", "r68", "r69", "r70", "r71"}}}
	if diff := cmp.Diff(want, got.ChangedTier); diff != "" {
		t.Error(diff)
	}
	wantTiers := []Tier{
		{Tier: "large", Requests: Totals{1, 1}, Prompt: Totals{20_000, 20_000}},
		{Tier: "medium", Requests: Totals{0, 33}, Prompt: Totals{0, 30 * (67 + 99) * 33 / 2}},
		{Tier: "small", Requests: Totals{100, 67}, Prompt: Totals{30 * 99 * 50, 30 * 66 * 67 / 2}},
	}
	if diff := cmp.Diff(wantTiers, got.ByTier); diff != "" {
		t.Error(diff)
	}
	if got.Decided != 101 || len(got.Skipped) > 0 || got.TiersReproduced != (Part{101, 101}) || got.Redecided != 68 ||
		got.ChangedWorker != 0 || got.Unknown.Counts != 0 {
		t.Errorf("%+v", got)
	}
}

// TestRecordedCeilingIsNotCounted checks that a record says why max_tokens was not counted, so
// that the tier is reproduced, and that a draft may count it.
func TestRecordedCeilingIsNotCounted(t *testing.T) {
	rules := thresholds(4000, 16000)
	rules.MaxTokens = map[string]int64{"large": 2000}
	now := setup(t, rules, routing.Config{})
	rules.Preset, rules.KeywordScore = "lesson", nil
	draft := setup(t, rules, routing.Config{})
	var ds []*decisions.Decision
	for n, f := range []decisions.Features{{Tools: true}, {LimitRequired: true}, {}} {
		d := written(n, []string{"small", "small", "large"}[n], []string{"a1", "a1", "c1"}[n], "least_load", 10,
			candidate([]string{"a1", "a1", "c1"}[n], 0))
		d.MaxTokens, d.Features.Tools, d.Features.LimitRequired = 3000, f.Tools, f.LimitRequired
		ds = append(ds, d)
	}
	got := replay(t, Config{Now: now, Draft: &draft}, ds...)
	want := []TierMove{{From: "small", To: "large", N: 2, Examples: []string{"r0", "r1"}}}
	if diff := cmp.Diff(want, got.ChangedTier); diff != "" || got.TiersReproduced != (Part{3, 3}) {
		t.Errorf("reproduced %+v, -want +got:\n%s", got.TiersReproduced, diff)
	}
}

// TestExploredRequestsStayWhereTheyWere: no rule selected their tier, so no draft moves them.
func TestExploredRequestsStayWhereTheyWere(t *testing.T) {
	now := setup(t, thresholds(4000, 16000), routing.Config{})
	draft := setup(t, thresholds(10, 16000), routing.Config{})
	var ds []*decisions.Decision
	for n, rule := range []string{"exploration", "exploration", "default"} {
		tier, worker := []string{"large", "small", "small"}[n], []string{"c1", "a1", "a1"}[n]
		d := written(n, tier, worker, "least_load", 100, candidate(worker, 0))
		d.Rule, d.RequestedModel, d.Features.Counted = rule, tiers.Auto, 100
		ds = append(ds, d)
	}
	got := replay(t, Config{Now: now, Draft: &draft}, ds...)
	want := []TierMove{{From: "small", To: "medium", N: 1, Examples: []string{"r2"}}}
	if diff := cmp.Diff(want, got.ChangedTier); diff != "" || got.TiersReproduced != (Part{3, 3}) || len(got.Skipped) > 0 {
		t.Errorf("reproduced %+v, skipped %v, -want +got:\n%s", got.TiersReproduced, got.Skipped, diff)
	}
}

func TestWeightZeroMovesAllRequestsOfAWorker(t *testing.T) {
	now := setup(t, thresholds(4000, 16000), routing.Config{})
	draft := setup(t, thresholds(4000, 16000), routing.Config{}, func(s *Setup) { s.Pools[0].Members[0].Weight = 0 })
	var ds []*decisions.Decision
	for n := range 40 {
		// Between two idle workers the request's random number decides: odd ones select a1.
		ds = append(ds, written(n, "small", []string{"a2", "a1"}[n%2], "least_load", 100, candidate("a1", 0),
			candidate("a2", 1)))
	}
	got := replay(t, Config{Now: now, Draft: &draft}, ds...)
	want := []WorkerMove{{Tier: "small", From: "a1", To: "a2", N: 20, Examples: []string{"r1", "r3", "r5", "r7", "r9"}}}
	if diff := cmp.Diff(want, got.WorkerMoves); diff != "" {
		t.Error(diff)
	}
	if got.ChangedWorker != 20 || got.Redecided != 40 || got.WorkersReproduced != (Part{40, 40}) ||
		!slices.Equal(got.ChangedBy, []Count{{"least_load", 20}}) {
		t.Errorf("%+v", got)
	}
}

func TestNewWorkerStartsIdle(t *testing.T) {
	busy := func(id string, index int) routing.Candidate {
		c := candidate(id, index)
		c.Inflight, c.PendingTokens, c.OutputTokens = 4, 4000, 400
		return c
	}
	now := setup(t, thresholds(4000, 16000), routing.Config{})
	draft := setup(t, thresholds(4000, 16000), routing.Config{}, func(s *Setup) {
		s.Pools[0].Members = append(s.Pools[0].Members, routing.Member{ID: "a3", Weight: 1},
			routing.Member{ID: "spare", Weight: 1, Group: 1})
	})
	got := replay(t, Config{Now: now, Draft: &draft},
		written(0, "small", "a2", "least_load", 100, busy("a1", 0), busy("a2", 1)))
	if len(got.WorkerMoves) != 1 || got.WorkerMoves[0].To != "a3" {
		t.Errorf("%+v", got)
	}
	// A worker that was down is not a new worker, whatever the draft changes.
	got = replay(t, Config{Now: now, Draft: &draft}, written(0, "small", "a1", "least_load", 100, candidate("a1", 0)))
	for _, m := range got.WorkerMoves {
		if m.To == "a2" {
			t.Errorf("to a worker that was not there: %+v", m)
		}
	}
}

func TestRegretIsTheLostTimeToTheFirstToken(t *testing.T) {
	slow, free := candidate("a1", 0), candidate("a2", 1)
	slow.PendingTokens, slow.Overlap = 3000, 900 // (3,000 + 100) ÷ 1,000 tokens/s are 3.1 s; free takes 1.0 s
	now := setup(t, thresholds(4000, 16000), routing.Config{Name: "round_robin"})
	d := written(0, "small", "a1", "round_robin", 1000, slow, free)
	d.Attempts[0].Choice.Memory = 1
	d.Stream, d.Attempts[0].FirstAtMs = true, 1301 // 1.3 s, over 1.2 times what a2 would have taken
	draft := setup(t, thresholds(4000, 16000), routing.Config{})
	got := replay(t, Config{Now: now, Draft: &draft}, d)
	want := Regrets{Now: Regret{N: 1, Mean: 2100, Wrong: 1}, Draft: Regret{N: 1}}
	if p95 := got.Regret.Now.P95; p95 < 2100/1.02 || p95 > 2100*1.02 {
		t.Errorf("p95 %v", p95)
	}
	got.Regret.Now.P95 = 0
	if diff := cmp.Diff(want, got.Regret); diff != "" {
		t.Error(diff)
	}
	if got.Realised == nil || *got.Realised != 1 || got.RealisedOf != 1 {
		t.Errorf("realised: %v", got.Realised)
	}
}

func TestUndecidableRecordsAreCounted(t *testing.T) {
	now := setup(t, thresholds(4000, 16000), routing.Config{})
	gone := setup(t, thresholds(4000, 16000), routing.Config{}, func(s *Setup) {
		s.Pools[0].Members = []routing.Member{{ID: "new", Weight: 0}}
	})
	refused := &decisions.Decision{RequestID: "refused", Result: decisions.Refused}
	cut := written(1, "small", "a1", "least_load", 100, candidate("a1", 0))
	cut.Attempts[0].Choice.Seen = 50
	unplaced := written(2, "small", "", "least_load", 100)
	unplaced.Attempts = nil
	limited := written(7, "small", "", "", 100)
	limited.Attempts, limited.Result, limited.Status, limited.Limit = nil, decisions.Refused, 429, "rpm"
	other := written(3, "small", "a1", "least_load", 5000, candidate("a1", 0)) // the configuration would have it in medium
	other.Features.Counted = 5000
	lower := setup(t, thresholds(4000, 4500), routing.Config{})
	// a2 was not a1's equal
	mystery := written(4, "small", "a2", "least_load", 100, candidate("a1", 0), candidate("a2", 1))
	mystery.Attempts[0].Choice.Candidates[1].PendingTokens = 9000
	lighter := setup(t, thresholds(4000, 16000), routing.Config{}, func(s *Setup) { s.Pools[0].Members[0].Weight = 0 })
	for name, c := range map[string]struct {
		d     *decisions.Decision
		draft *Setup
		want  string
	}{
		"refused":      {refused, &now, SkippedRefused},
		"failed early": {&decisions.Decision{Result: decisions.Failed, Status: 503}, &now, SkippedRefused},
		"list of models": {&decisions.Decision{Route: "/v1/models", Result: decisions.OK, Status: 200}, &now,
			SkippedUnrouted},
		"client left early": {&decisions.Decision{Result: decisions.ClientGone, Status: 499}, &now, SkippedUnrouted},
		"limited":           {limited, &now, SkippedLimited},
		"many candidates":   {cut, &now, SkippedIncomplete},
		"no worker":         {unplaced, &now, SkippedUnplaced},
		"no worker is left": {written(5, "small", "a1", "least_load", 100, candidate("a1", 0)), &gone, SkippedWorkers},
		"tier unexplained":  {other, &lower, SkippedTier},
		"pool gone": {func() *decisions.Decision { d := written(6, "old", "x", "", 1); d.Rule = "path"; return d }(),
			&now, SkippedTier},
		"equal all the way":  {mystery, &now, ""},
		"worker unexplained": {mystery, &lighter, SkippedWorker},
	} {
		got := replay(t, Config{Now: now, Draft: c.draft}, c.d)
		want := []Count{{c.want, 1}}
		if c.want == "" {
			want = []Count{}
		}
		if diff := cmp.Diff(want, got.Skipped); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestKeywordGroupsWithoutRecordsAreReported(t *testing.T) {
	group := tiers.Keyword{Tier: "large", Name: "law", Match: []string{"court"}}
	rules := thresholds(4000, 16000)
	now := setup(t, rules, routing.Config{})
	rules.Keywords, rules.KeywordScore = []tiers.Keyword{group}, map[string]float64{"large": 1}
	draft := setup(t, rules, routing.Config{})
	sure := written(1, "large", "c1", "least_load", 50_000, candidate("c1", 0)) // large already
	got := replay(t, Config{Now: now, Draft: &draft}, written(0, "small", "a1", "least_load", 100, candidate("a1", 0)),
		sure)
	if diff := cmp.Diff([]Count{{SkippedKeywords, 1}}, got.Skipped); diff != "" ||
		!slices.Equal(got.Groups, []string{"law"}) || got.Decided != 1 {
		t.Errorf("%s%+v", diff, got)
	}
}

func TestRecordsAreDecidedInTheOrderOfTheirPicks(t *testing.T) {
	now := setup(t, thresholds(4000, 16000), routing.Config{})
	rapid.Check(t, func(t *rapid.T) {
		var ds []*decisions.Decision
		for n := range 30 {
			d := written(n, "small", "a1", "least_load", 1000, candidate("a1", 0), candidate("a2", 1))
			d.Features.Chain = []routing.Link{{Hash: uint64(n % 5), End: 4000}}
			ds = append(ds, d)
		}
		want := replayed(t, now, ds)
		if diff := cmp.Diff(want, replayed(t, now, rapid.Permutation(ds).Draw(t, "order"))); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestReplayBuffersABoundedNumberOfRecords(t *testing.T) {
	r, err := New(Config{Now: setup(t, thresholds(4000, 16000), routing.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 * maxBuffered {
		r.Add(written(n+1, "small", "a1", "least_load", 100, candidate("a1", 0)))
		if len(r.buffered) > maxBuffered || len(r.now.events) > 2 { // each lasts 200 ms of the second until the next
			t.Fatalf("after %d records %d are buffered, and %d events", n+1, len(r.buffered), len(r.now.events))
		}
	}
	r.Add(written(0, "small", "a1", "least_load", 100, candidate("a1", 0)))
	if got := r.Report(); got.Late != 1 || got.Records != 3*maxBuffered+1 || got.Decided != got.Records {
		t.Errorf("%+v", got)
	}
}

func TestMovedRequestIsPlacedInItsNewTier(t *testing.T) {
	price := func(s *Setup) {
		s.Pools[0].Cost = func(prompt, cached, output int64) float64 { return float64(prompt-cached) + float64(output) }
		s.Pools[1].Cost = func(prompt, cached, output int64) float64 { return 2 * (float64(prompt-cached) + float64(output)) }
	}
	now := setup(t, thresholds(4000, 16000), routing.Config{}, price)
	draft := setup(t, thresholds(2000, 16000), routing.Config{Name: "chwbl"}, price)
	var ds []*decisions.Decision
	for n := range 8 { // one prompt, again and again
		d := written(n, "small", []string{"a2", "a1"}[n%2], "least_load", 3000, candidate("a1", 0), candidate("a2", 1))
		d.Features.Counted, d.Features.Prefix, d.Features.Chain = 3000, 7, []routing.Link{{Hash: 7, End: 12_000}}
		d.Attempts[0].Usage = decisions.Usage{Prompt: 3000, Output: 100}
		ds = append(ds, d)
	}
	got := replay(t, Config{Now: now, Draft: &draft}, ds...)
	if len(got.ChangedTier) != 1 || got.ChangedTier[0].N != 8 || got.ChangedWorker != 0 || got.Redecided != 0 {
		t.Errorf("%+v", got)
	}
	// Least load spreads the prompt over both workers, each of which computes it once;
	// chwbl keeps it at one. Of a fully cached prompt, the last token is computed.
	whole, rest := 3000.0, 2999.0
	if want := (Estimates{Now: 6 * rest / (8 * whole), Draft: 7 * rest / (8 * whole)}); *got.Hit != want {
		t.Errorf("hit rate %+v, want %+v", *got.Hit, want)
	}
	if want := (Estimates{Now: 2*whole + 6 + 800, Draft: 2 * (whole + 7 + 800)}); *got.Cost != want {
		t.Errorf("cost %+v, want %+v", *got.Cost, want)
	}
}

func replayed(t *rapid.T, now Setup, ds []*decisions.Decision) *Report {
	r, err := New(Config{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range ds {
		r.Add(d)
	}
	return r.Report()
}

// TestStepDecidesOneBufferedRecord, so that a caller with a time limit can end between two records.
func TestStepDecidesOneBufferedRecord(t *testing.T) {
	r, err := New(Config{Now: setup(t, thresholds(4000, 16000), routing.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r.Add(&decisions.Decision{})
	}
	steps := 0
	for r.Step() {
		steps++
	}
	if steps != 3 {
		t.Errorf("%d steps for 3 records", steps)
	}
}
