package tiers

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// ofLengths returns rules without groups: the score is log2(1 + bytes).
func ofLengths(rules Rules) Rules {
	rules.Preset = "none"
	return rules
}

func shares(medium, large float64) map[string]float64 {
	return map[string]float64{"medium": medium, "large": large}
}

func TestScoreIsWeightsPlusDoublingsOfTheLength(t *testing.T) {
	weight := func(w float64) *float64 { return &w }
	for _, c := range []struct {
		length *float64
		text   string
		want   float64
	}{
		{nil, "", 0}, {nil, "x", 1}, {nil, "xxx", 2}, {nil, "compare", 3.5}, {nil, "prove xx compare", 5.5 + 0.087},
		{weight(0), "compare", 0.5}, {weight(0), "xxxxxxx", 0}, {weight(0.5), "compare", 2},
	} {
		rules := words()
		rules.LengthWeight, rules.Share = c.length, shares(0.3, 0.2)
		if got := classifier(t, rules).Classify(&ClassifierInput{User: says(c.text)}); got.Score != c.want {
			t.Errorf("%q of weight %v scores %v, want %v", c.text, c.length, got.Score, c.want)
		}
	}
}

func TestScoreAboveAThresholdSelectsTheTier(t *testing.T) {
	rules := ofLengths(Rules{Score: shares(3, 5)})
	firstMatch := rules
	firstMatch.Mode = "first_match"
	higher := rules
	higher.Default = "medium"
	higher.Score = map[string]float64{"large": 5}
	for _, c := range []struct {
		rules      Rules
		bytes      int
		max        int64
		tier, rule string
		note       string
	}{
		{rules, 0, 0, "small", "score", "not above 3"},
		{rules, 7, 0, "small", "score", "not above 3"}, // a score of 3
		{rules, 8, 0, "medium", "score", "above 3"},
		{rules, 31, 0, "medium", "score", "above 3"},
		{rules, 32, 0, "large", "score", "above 5"},
		{rules, 8, 501, "medium", "max_tokens", ""},
		{rules, 8, 2001, "large", "max_tokens", ""},
		{rules, 32, 501, "large", "score", "above 5"},
		{rules, 0, 512, "small", "score", "not above 3; max_tokens not counted: a power of two is a client's default"},
		{firstMatch, 32, 501, "medium", "max_tokens", ""},
		{firstMatch, 0, 0, "small", "score", "not above 3"},
		{higher, 8, 0, "medium", "score", "not above 5"},
		{higher, 32, 0, "large", "score", "above 5"},
	} {
		got := classifier(t, c.rules).Classify(&ClassifierInput{User: says(strings.Repeat("x", c.bytes)), MaxTokens: c.max})
		if tier := three()[got.Tier]; tier != c.tier || got.Rule != c.rule || got.Note != c.note {
			t.Errorf("%d bytes, max_tokens %d: %s by %s (%s), want %s by %s (%s)", c.bytes, c.max, tier, got.Rule, got.Note,
				c.tier, c.rule, c.note)
		}
	}
}

func TestPresetGradedHasSharesForTiersAboveTheDefault(t *testing.T) {
	for _, c := range []struct {
		rules Rules
		tiers string
		want  string
	}{
		{Rules{}, "small medium large", "large 0.1, medium 0.3"},
		{Rules{}, "small large", "large 0.1"},
		{Rules{}, "a b c d", "d 0.1, b 0.3"},
		{Rules{}, "only", ""},
		{Rules{Default: "medium"}, "small medium large", "large 0.1"},
		{Rules{Default: "large"}, "small medium large", ""},
		{Rules{Share: map[string]float64{"large": 0.2}}, "small medium large", "large 0.2"},
		{Rules{Share: map[string]float64{}}, "small medium large", ""},
		{Rules{Score: map[string]float64{"large": 9}}, "small medium large", ""},
	} {
		c.rules.Preset = "graded"
		var got []string
		for _, s := range classifier(t, c.rules, strings.Fields(c.tiers)...).describeShares() {
			got = append(got, fmt.Sprintf("%s %v", s.Tier, s.Share))
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%+v for %s: %q, want %q", c.rules, c.tiers, text, c.want)
		}
	}
}

// resolveAndAdd resolves a request and adds its score, as the gateway does.
func resolveAndAdd(t testing.TB, k *Catalog, q Query) Resolution {
	t.Helper()
	var score PendingScore
	q.Pending = &score
	v, err := k.Resolve(q)
	if err != nil {
		t.Fatal(err)
	}
	q.Recent.Add(score)
	return v
}

// TestSharesStartAfter200Prompts: before, keyword_score decides.
func TestSharesStartAfter200Prompts(t *testing.T) {
	k := catalogOf(t, Rules{Preset: "graded"})
	recent := NewRecentScores(1)
	send := func(text string) (Resolution, Evidence) {
		var e Evidence
		v := resolveAndAdd(t, k, Query{Model: "auto", Recent: recent, Evidence: &e,
			Input: &ClassifierInput{User: says(text)}})
		return v, e
	}
	const code = "Write a function in Python that sorts a list."
	for i := range minScores {
		text, want := strings.Repeat("x ", i+1), "default"
		if i%2 == 1 {
			text, want = code, "keyword:code"
		}
		if v, e := send(text); v.Rule != want || v.Note != "share starts after 200 prompts" ||
			e.Score.Thresholds != nil || e.Score.Value == 0 {
			t.Fatalf("prompt %d went by %q (%s) with %+v, want %q", i, v.Rule, v.Note, e, want)
		}
	}
	v, e := send(strings.Repeat("x ", 5000))
	if v.Target != "large" || v.Rule != "share" || v.Note != "score among the highest 10 %" ||
		len(e.Score.Thresholds) != 2 {
		t.Errorf("the longest prompt is at %+v with %+v", v, e)
	}
	recent = NewRecentScores(1)
	byOutput := Query{Model: "auto", Recent: recent, Input: &ClassifierInput{MaxTokens: 600}}
	if v := resolveAndAdd(t, k, byOutput); v.Note != "" {
		t.Errorf("max_tokens decided, and the note is %q", v.Note)
	}
	for range minScores {
		send(code)
	}
	if v, _ := send("Hi"); v.Target != "small" || v.Rule != "share" || v.Note != "score below the highest 40 %" {
		t.Errorf("the shortest prompt is at %+v", v)
	}
}

// TestAliasesAndTenantsHaveWindowsOfTheirOwn: names that match one pattern are one alias.
func TestAliasesAndTenantsHaveWindowsOfTheirOwn(t *testing.T) {
	c := Config{Rules: ofLengths(Rules{Share: shares(0.3, 0.2)}),
		Aliases: toOne(map[string]string{"best": Classify, "any-*": Classify})}
	for _, name := range three() {
		c.Targets = append(c.Targets, Target{Name: name, Tier: true})
	}
	k, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	recent := NewRecentScores(MaxScoreWindows)
	rule := func(model string, tenant uint64) string {
		return resolveAndAdd(t, k, Query{Model: model, Recent: recent,
			Input: &ClassifierInput{Tenant: tenant, User: says("Hi")}}).Rule
	}
	for range minScores {
		rule("any-1", 1)
	}
	for _, c := range []struct {
		model  string
		tenant uint64
		want   string
	}{
		{"any-1", 1, "share"}, {"any-2", 1, "share"}, {"any-1", 2, "default"}, {"best", 1, "default"}, {"auto", 1, "default"},
	} {
		if got := rule(c.model, c.tenant); got != c.want {
			t.Errorf("%s of tenant %d goes by %s, want %s", c.model, c.tenant, got, c.want)
		}
	}
}

// TestARecordReproducesItsShare: the thresholds of a request are those of its record, whatever scores
// came later.
func TestARecordReproducesItsShare(t *testing.T) {
	k := catalogOf(t, Rules{Preset: "graded"})
	rapid.Check(t, func(t *rapid.T) {
		recent := NewRecentScores(1)
		texts := rapid.SliceOfN(rapid.IntRange(0, 3000), 190, 260).Draw(t, "lengths")
		for i, n := range texts {
			text := strings.Repeat("x", n)
			if n%7 == 0 {
				text = "Prove that " + text
			}
			var e Evidence
			f := ClassifierInput{User: says(text), MaxTokens: int64(n % 900)}
			var score PendingScore
			want, err := k.Resolve(Query{Model: "auto", Input: &f, Recent: recent, Evidence: &e, Pending: &score})
			if err != nil {
				t.Fatal(err)
			}
			recent.Add(score)
			if share := want.Rule == "share"; share && i < minScores {
				t.Fatalf("prompt %d went by its share", i)
			}
			var again Evidence
			got, missing, err := k.ResolveRecorded(Query{Model: "auto", Evidence: &again,
				Input: &ClassifierInput{MaxTokens: f.MaxTokens}}, &e, nil)
			if got != want || missing != MissingNothing || err != nil || !reflect.DeepEqual(again, e) {
				t.Fatalf("%+v with %+v was repeated as %+v with %+v, %q, %v", want, e, got, again, missing, err)
			}
		}
	})
}

// TestSharesOfADraftDependOnItsScoring: classifiers of equal scoring make the same thresholds.
func TestSharesOfADraftDependOnItsScoring(t *testing.T) {
	half := 0.5
	made := classifier(t, Rules{Preset: "graded"})
	for name, c := range map[string]struct {
		rules Rules
		same  bool
	}{
		"equal":                   {Rules{Preset: "graded"}, true},
		"other signals":           {Rules{Preset: "graded", MaxTokens: map[string]int64{"large": 7}}, true},
		"the groups with shares":  {Rules{Share: shares(0.3, 0.1)}, true},
		"without shares":          {Rules{Preset: "groups"}, true},
		"other shares":            {Rules{Preset: "graded", Share: shares(0.3, 0.2)}, false},
		"another weight":          {Rules{Preset: "graded", LengthWeight: &half}, false},
		"a further group":         {Rules{Preset: "graded", Keywords: []Keyword{codeWords()}}, false},
		"shares without a preset": {ofLengths(Rules{Share: shares(0.3, 0.1)}), false},
	} {
		if got := classifier(t, c.rules).HasSameThresholds(made); got != c.same {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func codeWords() Keyword { return Keyword{Tier: "large", Name: "mine", Match: []string{"indemnify"}} }

func TestMistakesInScoresAreReported(t *testing.T) {
	half := 0.5
	for name, c := range map[string]struct {
		rules Rules
		want  string
	}{
		"both":            {Rules{Score: shares(8, 9), Share: shares(0.3, 0.2)}, "classifier.score: both score and share"},
		"the first tier":  {Rules{Share: map[string]float64{"small": 0.3}}, `classifier.share.small: "small" is the default tier`},
		"below default":   {Rules{Default: "medium", Score: map[string]float64{"small": 3}}, `classifier.score.small: score selects only tiers above the default tier "medium": remove it, or lower`},
		"above 1":         {Rules{Share: shares(0.7, 0.4)}, "classifier.share: the shares sum to 1.1: lower them"},
		"an unknown tier": {Rules{Share: map[string]float64{"huge": 0.2}}, `classifier.share.huge: unknown tier "huge"`},
		"falling":         {Rules{Score: shares(9, 9)}, "classifier.score.medium: has no effect: a higher tier is already selected above 9"},
		"out of reach":    {Rules{Score: shares(8, 40)}, "classifier.score.large: cannot be exceeded: the highest possible score is 19.5"},
		"a keyword_score": {Rules{Score: shares(8, 9), KeywordScore: shares(1, 1)}, "classifier.keyword_score: has no effect beside classifier.score"},
		"a lonely weight": {Rules{Preset: "groups", LengthWeight: &half}, "classifier.length_weight: has no effect without scores"},
		"the first tier in first_match": {Rules{Mode: "first_match", Default: "medium", Share: map[string]float64{"small": 0.1}},
			`classifier.share.small: share selects only tiers above the default tier "medium"`},
		"no tier above the default": {Rules{Preset: "graded", Default: "large", PromptTokens: map[string]int64{}, MaxTokens: map[string]int64{}},
			`classifier.preset: graded has no effect: no tier is above the default tier "large"`},
		"nothing to score": {ofLengths(Rules{Share: shares(0.3, 0.2), LengthWeight: new(float64)}),
			"classifier.share: has no effect: all scores are 0 (add keywords, or raise length_weight)"},
		"sums of decimals": {Rules{Share: map[string]float64{"medium": 0.3 + 0.6, "large": 0.1}}, ""},
		"groups that only add to the score": {Rules{Share: shares(0.3, 0.2), KeywordScore: map[string]float64{},
			Keywords: []Keyword{codeWords()}}, ""},
	} {
		k, err := NewClassifier(c.rules, three(), nil)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = strings.Join(k.Warnings(), "\n")
		}
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" || strings.Contains(got, "\n") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if most := (&checker{}).highestScore(1); most != math.Log2(1+2*TextLimit+4) {
		t.Errorf("the highest score of a length is %v", most)
	}
}

// fullWindow returns the resolution of a text under preset graded, with its score added, as a function, after
// 2,000 prompts. It keeps no evidence: the record of a request allocates.
func fullWindow(t testing.TB, text []byte, maxTokens int64) func() Resolution {
	k, recent := catalogOf(t, Rules{Preset: "graded"}), NewRecentScores(1)
	length := 0
	f := ClassifierInput{PromptTokens: 250, MaxTokens: maxTokens, User: func() []byte { return text[:length] }}
	var score PendingScore
	resolve := func() Resolution {
		v, err := k.Resolve(Query{Model: "auto", Input: &f, Recent: recent, Pending: &score})
		if err != nil {
			t.Fatal(err)
		}
		recent.Add(score)
		return v
	}
	for i := range maxScores {
		length = 1 + i*len(text)/maxScores
		resolve()
	}
	length = len(text)
	return resolve
}

// TestAScoredRequestAllocatesNothing, apart from its record.
func TestAScoredRequestAllocatesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		text      string
		maxTokens int64
		note      string
	}{
		"plain": {string(plain(2 << 10)), 0, "score among the highest 10 %"},
		"a max_tokens that does not count": {"Hi", 4096,
			"score below the highest 40 %; max_tokens not counted: so high a value is a ceiling"},
		"a matched group": {"Write a function in Python that sorts a list. " + string(plain(2<<10)), 0,
			"score among the highest 10 %"},
	} {
		resolve := fullWindow(t, []byte(c.text), c.maxTokens)
		if v := resolve(); v.Rule != "share" || v.Note != c.note {
			t.Errorf("%s went by %+v", name, v)
		}
		least := math.Inf(1) // as in TestTextWithoutMatchAllocatesNothing
		for range 100 {
			least = min(least, testing.AllocsPerRun(1, func() { resolve() }))
		}
		if least > 0 {
			t.Errorf("%s: %v allocations", name, least)
		}
	}
}

// BenchmarkShare measures the resolution of a request under preset graded with a full window, and the
// window alone.
func BenchmarkShare(b *testing.B) {
	for _, size := range []int{1 << 10, 8 << 10} {
		resolve := fullWindow(b, plain(size), 0)
		b.Run(fmt.Sprintf("resolve/%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				resolve()
			}
		})
	}
	recent := NewRecentScores(1)
	source := rand.New(rand.NewPCG(1, 2))
	b.Run("window", func(b *testing.B) {
		b.ReportAllocs()
		var to []threshold[float64]
		for b.Loop() {
			to = recent.appendThresholds(to[:0], windowKey{}, twoShares())
			recent.Add(PendingScore{value: source.NormFloat64(), known: true})
		}
	})
}
