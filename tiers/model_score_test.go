package tiers

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tierway/tierscore"
)

// hardModel returns a model for which a text with the word hard gains from the large tier. It knows the route of the
// tenant acme without a system prompt.
func hardModel(t testing.TB, hash string, decides bool) *Model {
	t.Helper()
	small, large := tierscore.Head{Weights: make([]float64, tierscore.Columns+1)},
		tierscore.Head{Weights: make([]float64, tierscore.Columns+1)}
	f := featuresOf("acme", "hard")
	large.Weights[f.AppendColumns(nil)[0]] = 9
	m, err := tierscore.NewModel(f.Key(), []uint32{f.Route()}, small, large)
	if err != nil {
		t.Fatal(err)
	}
	m.Standardize([]float64{0, 0.2}, []float64{0, 20})
	m.Enabled = true
	return &Model{Score: m, Hash: hash, Decides: decides}
}

func featuresOf(tenant, text string) *tierscore.Features {
	f := new(tierscore.Features)
	tierscore.NewExtractor("").Extract(f, &tierscore.Input{Tenant: tenant, User: []byte(text), Turns: 1})
	return f
}

// asks returns the input of a tenant's text.
func asks(tenant, text string) *ClassifierInput {
	return &ClassifierInput{User: says(text), Features: func() *tierscore.Features { return featuresOf(tenant, text) }}
}

// modelCatalog is catalogOf with a model.
func modelCatalog(t testing.TB, r Rules, m *Model) *Catalog {
	t.Helper()
	c := Config{Rules: r, Model: m}
	for _, name := range three() {
		c.Targets = append(c.Targets, Target{Name: name, Tier: true, Model: name + "-model"})
	}
	k, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

const hashA, hashB = "0a0a0a0a77", "0b0b0b0b77"

// startShares adds the scores of prompts of acme and of a tenant that the model does not know. Of ten prompts, one is
// hard.
func startShares(t testing.TB, k *Catalog, recent *RecentScores) {
	t.Helper()
	source := rand.New(rand.NewPCG(1, 2))
	for i := range minScores {
		text := strings.Repeat("tea ", 1+source.IntN(200))
		if i%10 == 0 {
			text = "hard " + text
		}
		resolveAndAdd(t, k, Query{Model: Auto, Recent: recent, Input: asks([]string{"acme", "other"}[i%2], text)})
	}
}

// TestAShadowModelChangesNoDecision: the evidence has its score, and everything else is that of the same rules.
func TestAShadowModelChangesNoDecision(t *testing.T) {
	rules := []Rules{{Preset: "graded"}, {Score: shares(5, 9)}, {}, keywordRules(codeGroup("panic"))}
	type pair struct{ with, without *Catalog }
	var all []pair
	for _, r := range rules {
		all = append(all, pair{modelCatalog(t, r, hardModel(t, hashA, false)), catalogOf(t, r)})
	}
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.SampledFrom(all).Draw(t, "rules")
		with, without := NewRecentScores(1), NewRecentScores(1)
		for i := range rapid.SampledFrom([]int{1, minScores + 20}).Draw(t, "prompts") {
			text := strings.Repeat(rapid.SampledFrom([]string{"hard ", "tea ", "panic: prove it\n"}).Draw(t, "word"), i%50)
			tenant := rapid.SampledFrom([]string{"acme", "other"}).Draw(t, "tenant")
			ask := func(k *Catalog, recent *RecentScores) (v Resolution, e Evidence, x ClassifierReport, p PendingScore) {
				v, err := k.Resolve(Query{Model: Auto, Recent: recent, Input: asks(tenant, text), Evidence: &e, Report: &x,
					Pending: &p})
				if err != nil {
					t.Fatal(err)
				}
				recent.Add(p)
				return v, e, x, p
			}
			v, e, x, p := ask(k.with, with)
			score := e.Model
			if score == nil || score.Model != hashA[:8] || score.Known != (tenant == "acme") || *score != p.Model ||
				*x.Model != *score {
				t.Fatalf("%.20q of %s has the score %+v, %+v", text, tenant, score, p.Model)
			}
			e.Model, x.Model, p.Model = nil, nil, ModelScore{}
			v2, e2, x2, p2 := ask(k.without, without)
			v.list, v.selected, v2.list, v2.selected = nil, nil, nil, nil
			if !reflect.DeepEqual([]any{v, e, x, p}, []any{v2, e2, x2, p2}) {
				t.Fatalf("%.20q: with the model %+v %+v, without it %+v %+v", text, v, e, v2, e2)
			}
		}
	})
}

// TestAModelThatDecidesOrdersPrompts: a short hard prompt goes to the large tier. A route that the model does not know
// is ordered by the default score. Another model has other windows.
func TestAModelThatDecidesOrdersPrompts(t *testing.T) {
	k, recent := modelCatalog(t, Rules{Preset: "graded"}, hardModel(t, hashA, true)), NewRecentScores(2)
	startShares(t, k, recent)
	for _, c := range []struct{ tenant, text, target, note string }{
		{"acme", "hard", "large", "model score among the highest 10 %"},
		{"acme", strings.Repeat("tea ", 900), "small", "model score below the highest 40 %"},
		{"other", "hard", "small", "default score below the highest 40 %"},
		{"other", strings.Repeat("tea ", 900), "large", "default score among the highest 10 %"},
	} {
		var e Evidence
		v, err := k.Resolve(Query{Model: Auto, Recent: recent, Input: asks(c.tenant, c.text), Evidence: &e})
		if err != nil || v.Target != c.target || v.Rule != "share" || v.Note != c.note || e.Score.Model != hashA[:8] ||
			e.Score.Value != e.Model.Value {
			t.Errorf("%.10q of %s went to %s by %s (%s) with %+v, %+v: %v", c.text, c.tenant, v.Target, v.Rule, v.Note,
				e.Score, e.Model, err)
		}
	}
	other := modelCatalog(t, Rules{Preset: "graded"}, hardModel(t, hashB, true))
	for name, k := range map[string]*Catalog{"another model": other, "no model": catalogOf(t, Rules{Preset: "graded"})} {
		v := resolveAndAdd(t, k, Query{Model: Auto, Recent: recent, Input: asks("acme", "hard")})
		if !strings.Contains(v.Note, "share starts after") {
			t.Errorf("%s has the thresholds of the first: %s", name, v.Note)
		}
	}
	if d := k.Describe(nil); d.Model != hashA[:8] || len(d.Share) != 2 {
		t.Errorf("the classifier is described with the model %q", d.Model)
	}
	if k.Classifier().HasSameThresholds(other.Classifier()) {
		t.Error("the thresholds of different models are the same")
	}
}

// TestAWholeShareTakesEachScore, also scores far below the mean.
func TestAWholeShareTakesEachScore(t *testing.T) {
	m := hardModel(t, hashA, true)
	m.Score.Standardize([]float64{0.5, 0.5 + 1e-9}, []float64{0, 1})
	k, recent := modelCatalog(t, Rules{Share: map[string]float64{"large": 1}}, m), NewRecentScores(1)
	startShares(t, k, recent)
	var e Evidence
	v, err := k.Resolve(Query{Model: Auto, Recent: recent, Input: asks("acme", "tea"), Evidence: &e})
	if err != nil || v.Target != "large" || e.Model.Value != -maxModelScore {
		t.Errorf("%s by %+v, %+v: %v", v.Target, e.Score, e.Model, err)
	}
}

// TestARecordWithAModelIsReproduced by the model that decided. Under another one its score is missing, unless another
// signal decides.
func TestARecordWithAModelIsReproduced(t *testing.T) {
	rules := Rules{Preset: "graded"}
	k, recent := modelCatalog(t, rules, hardModel(t, hashA, true)), NewRecentScores(2)
	shadow := modelCatalog(t, rules, hardModel(t, hashA, false))
	other := modelCatalog(t, rules, hardModel(t, hashB, true))
	startShares(t, k, recent)
	for _, tenant := range []string{"acme", "other"} {
		for _, text := range []string{"hard", "tea", strings.Repeat("tea ", 900), "Prove that it is hard"} {
			var e, ofShadow Evidence
			v, err := k.Resolve(Query{Model: Auto, Recent: recent, Input: asks(tenant, text), Evidence: &e})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := shadow.Resolve(Query{Model: Auto, Input: asks(tenant, text), Evidence: &ofShadow}); err != nil {
				t.Fatal(err)
			}
			again := func(k *Catalog, was *Evidence, recent *RecentScores, tokens int64) (Resolution, Missing) {
				v, missing, err := k.ResolveRecorded(Query{Model: Auto, Recent: recent,
					Input: &ClassifierInput{PromptTokens: tokens}}, was, nil)
				if err != nil {
					t.Fatal(err)
				}
				return v, missing
			}
			if got, missing := again(k, &e, nil, 0); missing != MissingNothing || got.Target != v.Target || got.Rule != v.Rule ||
				got.Note != v.Note {
				t.Errorf("%.10q of %s: %+v again, was %+v; missing %q", text, tenant, got, v, missing)
			}
			if got, missing := again(k, &ofShadow, recent, 0); missing != MissingNothing || got.Target != v.Target {
				t.Errorf("%.10q of %s, recorded in shadow: %s, want %s; missing %q", text, tenant, got.Target, v.Target, missing)
			}
			if _, missing := again(other, &e, nil, 0); missing != MissingModel {
				t.Errorf("%.10q of %s under another model: missing %q", text, tenant, missing)
			}
			if _, missing := again(other, &e, nil, 90_000); missing != MissingNothing {
				t.Errorf("a long prompt under another model: missing %q", missing)
			}
			if got, _ := again(shadow, &e, nil, 0); strings.Contains(got.Note, "highest") {
				t.Errorf("thresholds on the model's score decide without the model: %+v", got)
			}
		}
	}
}

// modelWindow returns the resolution of a text with all of features, model and keywords, as a function.
func modelWindow(t testing.TB, text []byte, r Rules, m *Model) func() {
	k, recent, extractor := modelCatalog(t, r, m), NewRecentScores(1), tierscore.NewExtractor("")
	features, length := new(tierscore.Features), 0
	f := ClassifierInput{PromptTokens: 250, User: func() []byte { return text[:length] },
		Features: func() *tierscore.Features {
			extractor.Extract(features, &tierscore.Input{Tenant: "acme", User: text[:length], Turns: 1})
			return features
		}}
	var score PendingScore
	resolve := func() {
		if _, err := k.Resolve(Query{Model: Auto, Input: &f, Recent: recent, Pending: &score}); err != nil {
			t.Fatal(err)
		}
		recent.Add(score)
	}
	for i := range maxScores {
		length = 1 + i*len(text)/maxScores
		resolve()
	}
	length = len(text)
	return resolve
}

func TestAModelAllocatesNothing(t *testing.T) {
	resolve := modelWindow(t, plain(2<<10), Rules{Preset: "graded"}, hardModel(t, hashA, true))
	least := 1.0 // as in TestTextWithoutMatchAllocatesNothing
	for range 100 {
		least = min(least, testing.AllocsPerRun(1, resolve))
	}
	if least > 0 {
		t.Errorf("%v allocations", least)
	}
}

// BenchmarkModel measures the resolution of a request under preset graded, without a model and with one that decides.
func BenchmarkModel(b *testing.B) {
	for _, size := range []int{1 << 10, 8 << 10} {
		for _, m := range []*Model{nil, hardModel(b, hashA, true)} {
			resolve := modelWindow(b, plain(size), Rules{Preset: "graded"}, m)
			b.Run(fmt.Sprintf("%d/%v", size, m != nil), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					resolve()
				}
			})
		}
	}
}
