package server

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/config"
	"tierway/decisions"
	"tierway/replay"
	"tierway/server/control"
	"tierway/tenants"
	"tierway/tierscore"
)

// hashKey is the key of the hashes of trainedModel.
const hashKey = "0123456789abcdef"

// trainedModel writes a model, for which a prompt with a word gains from the large tier, and returns its path. It knows
// requests without a key and without a system prompt.
func trainedModel(t *testing.T, path, word string) string {
	t.Helper()
	heads := [2]tierscore.Head{}
	for i := range heads {
		heads[i].Weights = make([]float64, tierscore.Columns+1)
	}
	var f tierscore.Features
	tierscore.NewExtractor(hashKey).Extract(&f, &tierscore.Input{Tenant: tenants.Anonymous().Tenant, User: []byte(word)})
	heads[1].Weights[f.AppendColumns(nil)[0]] = 9
	m, err := tierscore.NewModel(f.Key(), []uint32{f.Route()}, heads[0], heads[1])
	if err != nil {
		t.Fatal(err)
	}
	m.Standardize([]float64{0, 0.2}, []float64{0, 20})
	m.Enabled = true
	text, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// newModelRig is newShareRig with a model.
func newModelRig(t *testing.T, classifier, path string, decides bool) *adminRig {
	t.Helper()
	return newShareRig(t, fmt.Sprintf("%s, sticky: { enabled: false } }\nlearning: { hash_key: %s, model: %q, decide: %t",
		classifier, hashKey, trainedModel(t, path, "hard"), decides))
}

// ask sends a prompt with an id.
func (r *adminRig) ask(id, text string) httpAnswer {
	r.t.Helper()
	got := r.post("/v1/chat/completions", chatBody("auto", text, ""), "X-Request-ID", id)
	if got.status != http.StatusOK {
		r.t.Fatalf("%s: %d %s", id, got.status, got.body)
	}
	return got
}

// fill starts the shares: one prompt of ten is hard.
func (r *adminRig) fill() {
	r.t.Helper()
	for i := range 200 {
		text := strings.Repeat("tea ", 1+i*7%200)
		if i%10 == 0 {
			text += "hard"
		}
		r.ask(fmt.Sprint("fill-", i), text)
	}
}

// recordOf returns the record of a request.
func (r *adminRig) recordOf(id string) (d *decisions.Decision) {
	r.t.Helper()
	r.until("the request is recorded", func() bool {
		i := slices.IndexFunc(r.recorded().Last(0), func(d *decisions.Decision) bool { return d.RequestID == id })
		if i >= 0 {
			d = r.recorded().Last(0)[i]
		}
		return d != nil
	})
	return d
}

// TestAShadowModelIsRecorded: the record and the explanation have its score, and the rules decide. A request with a
// system prompt has a route that the model does not know.
func TestAShadowModelIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newModelRig(t, "preset: none", filepath.Join(t.TempDir(), "tier.model"), false)
		got := r.ask("hard", "hard")
		if tier, rule := tierOf(got); tier != "small" || rule != "default" {
			t.Errorf("%s by %s", tier, rule)
		}
		score := r.recordOf("hard").Features.ModelScore
		if score == nil || !score.Known || score.Value < 3 || len(score.Model) != 8 {
			t.Fatalf("the score is %+v", score)
		}
		e := r.explained("/v1/chat/completions", chatBody("auto", "hard", ""))
		if x := e.Classified.Model; !slices.Contains(e.Notes, score.String()) || x == nil || *x != *score {
			t.Errorf("the notes are %q, want %q", e.Notes, score)
		}
		if e := r.explain(http.StatusOK, order{"decision": "hard"}); !slices.Contains(e.Notes, score.String()) {
			t.Errorf("the notes of the past request are %q, want %q", e.Notes, score)
		}
		body := `{"model":"auto","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"hard"}]}`
		r.post("/v1/chat/completions", body, "X-Request-ID", "unknown")
		if score := r.recordOf("unknown").Features.ModelScore; score == nil || score.Known {
			t.Errorf("an unknown route has the score %+v", score)
		}
		r.post("/v1/chat/completions", chatBody("large", "hard", ""), "X-Request-ID", "named")
		if score := r.recordOf("named").Features.ModelScore; score != nil {
			t.Errorf("a request that names its tier has the score %+v", score)
		}
	})
}

// TestAModelThatDecidesIsExplainedAndReplayed: header, record, explanation and replay agree. Under a draft without the
// model, the recorded texts decide again.
func TestAModelThatDecidesIsExplainedAndReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newModelRig(t, "preset: graded", filepath.Join(t.TempDir(), "tier.model"), true)
		r.fill()
		e := r.explained("/v1/chat/completions", chatBody("auto", "hard", ""))
		got := r.ask("hard", "hard")
		if tier, rule := tierOf(got); tier != "large" || rule != "share" || e.Tier != tier || e.Rule != rule ||
			noteOf(got) != "model score among the highest 10 %" || e.Note != noteOf(got) {
			t.Errorf("%s by %s: %s, explained as %s by %s: %s", tier, rule, noteOf(got), e.Tier, e.Rule, e.Note)
		}
		long := r.ask("long", strings.Repeat("tea ", 300))
		if tier, _ := tierOf(long); tier == "large" || !strings.HasPrefix(noteOf(long), "model score below") {
			t.Errorf("a long prompt went to %s: %s", tier, noteOf(long))
		}
		d := r.recordOf("hard")
		if s := d.Features.Score; s.Model != d.Features.ModelScore.Model || s.Value != d.Features.ModelScore.Value ||
			!slices.Contains(e.Notes, s.String()) || !strings.Contains(s.String(), "on the scale of model") {
			t.Errorf("%+v, %+v, %q", s, d.Features.ModelScore, e.Notes)
		}
		r.recordOf("long")
		if a := r.replay(`{"last":300}`); a.TiersReproduced.N != 202 || a.TiersReproduced.Of != 202 {
			t.Errorf("%+v of 202 tiers are reproduced", a.TiersReproduced)
		}
		draft := strings.Replace(r.text, "decide: true", "decide: false", 1)
		a := r.replay(fmt.Sprintf(`{"draft":%q}`, draft))
		if a.Decided != 2 || !slices.Equal(a.Skipped, []replay.Count{{Name: replay.SkippedShare, N: 200}}) ||
			len(a.ChangedTier) == 0 {
			t.Errorf("without the model: %d decided, %+v skipped, %+v", a.Decided, a.Skipped, a.ChangedTier)
		}
	})
}

// TestANewModelIsReloaded: it takes effect with windows of its own. Records of the earlier model are not decided again
// by it. A model that cannot be read refuses the reload.
func TestANewModelIsReloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "tier.model")
		r := newModelRig(t, "preset: graded", path, true)
		r.source = func() (*config.File, error) { return config.Parse("config.yaml", []byte(r.text), nil) }
		r.fill()
		first := r.recordOf("fill-199").Features.ModelScore.Model
		trainedModel(t, path, "tea")
		result, err := r.Reload(t.Context(), control.ReloadRequest{})
		if err != nil || result.Generation != 2 || len(result.Changes) != 1 || result.Changes[0].Path != "learning.model" {
			t.Fatalf("%v: %+v", err, result)
		}
		if got := r.ask("second", "tea"); noteOf(got) != "share starts after 200 prompts" {
			t.Errorf("the new model has the thresholds of the old one: %s", noteOf(got))
		}
		if score := r.recordOf("second").Features.ModelScore; score.Model == first || !score.Known {
			t.Errorf("the score is %+v, before by %s", score, first)
		}
		a := r.replay(fmt.Sprintf(`{"draft":%q}`, r.text))
		if !slices.Contains(a.Skipped, replay.Count{Name: replay.SkippedModel, N: 200}) {
			t.Errorf("records of the earlier model: %+v", a.Skipped)
		}
		if err := os.WriteFile(path, []byte("no model"), 0o600); err != nil {
			t.Fatal(err)
		}
		result, err = r.Reload(t.Context(), control.ReloadRequest{})
		if err == nil || len(result.Problems) != 1 || !strings.Contains(result.Problems[0].Message, "it is no model") {
			t.Errorf("%v: %+v", err, result.Problems)
		}
		r.ask("third", "tea")
		if score := r.recordOf("third").Features.ModelScore; score == nil || score.Model == first {
			t.Errorf("after a refused reload the score is %+v", score)
		}
	})
}
