package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tierway/tierscore"
)

// hashKey is the key of writeModel's models.
const hashKey = "0123456789abcdef"

// writeModel writes a model without routes, and returns its path.
func writeModel(t *testing.T, enabled bool, report string) string {
	t.Helper()
	var f tierscore.Features
	tierscore.NewExtractor(hashKey).Extract(&f, &tierscore.Input{})
	zero := tierscore.Head{Weights: make([]float64, tierscore.Columns)}
	m, err := tierscore.NewModel(f.Key(), nil, zero, zero)
	if err != nil {
		t.Fatal(err)
	}
	m.Enabled, m.Report = enabled, []byte(report)
	text, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tier.model")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestLearningIsChecked: every problem names the key and the way out, and none shows the key of the hashes.
func TestLearningIsChecked(t *testing.T) {
	enabled, disabled := writeModel(t, true, "{}"), writeModel(t, false, `{"reason":"the model is worse"}`)
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	const graded, secret = "classifier: { preset: graded }\n", "hash_key: '${HASH_KEY}'"
	for name, c := range map[string]struct {
		classifier, learning, key, model string
		want                             []string
	}{
		"a key":  {learning: secret, key: hashKey},
		"shadow": {learning: secret + ", model: '${MODEL}'", key: hashKey, model: disabled},
		"deciding": {classifier: graded, learning: secret + ", model: '${MODEL}', decide: true", key: hashKey,
			model: enabled},
		"with a share": {classifier: "classifier: { share: { large: 0.1 } }\n",
			learning: secret + ", model: '${MODEL}', decide: true", key: hashKey, model: enabled},
		"a short key": {learning: "hash_key: hunter2", want: []string{
			"learning.hash_key: has 7 bytes; the minimum is 16 (generate one with `openssl rand -hex 32`)"}},
		"an empty key": {learning: `hash_key: ""`, want: []string{
			"learning.hash_key: has 0 bytes; the minimum is 16 (generate one with `openssl rand -hex 32`)"}},
		"no key": {learning: "model: '${MODEL}'", model: enabled, want: []string{
			"learning.model: has no effect without learning.hash_key (set hash_key to the key of the hashes with which the " +
				"model was trained)"}},
		"another key": {learning: secret + ", model: '${MODEL}'", key: "fedcba9876543210", model: enabled, want: []string{
			`learning.model: "${MODEL}" was trained with another key than learning.hash_key, so no request would have a ` +
				"score (set the key of the training, or train again)"}},
		"no file": {learning: secret + ", model: '${MODEL}'", key: hashKey, model: other + "/none", want: []string{
			`learning.model: cannot use "${MODEL}": not a directory (name a file that tierway train of this release has written)`}},
		"no model file": {learning: secret + ", model: '${MODEL}'", key: hashKey, model: other, want: []string{
			`learning.model: cannot use "${MODEL}": the file does not begin with "tierway score 1\n": it is no model of this ` +
				"release; train again (name a file that tierway train of this release has written)"}},
		"no model": {classifier: graded, learning: secret + ", decide: true", key: hashKey, want: []string{
			"learning.decide: there is no model (set learning.model to a file of tierway train, or remove the key)"}},
		"a disabled model": {classifier: graded, learning: secret + ", model: '${MODEL}', decide: true", key: hashKey,
			model: disabled, want: []string{"learning.decide: the model is not enabled: the model is worse (collect more " +
				"labels and train again with tierway train, or remove the key)"}},
		"no share": {classifier: "classifier: { preset: groups }\n", learning: secret + ", model: '${MODEL}', decide: true",
			key: hashKey, model: enabled, want: []string{
				"learning.decide: no share orders prompts by a score (write classifier.share, such as share: { large: 0.2 }, or " +
					"preset: graded; or remove the key)"}},
	} {
		t.Run(name, func(t *testing.T) {
			src := keys + three + c.classifier + "learning: { " + c.learning + " }\n"
			got := problemsOf(t, src, map[string]string{"HASH_KEY": c.key, "MODEL": c.model})
			for i, p := range got {
				_, got[i], _ = strings.Cut(p, ": ") // f:LINE:COLUMN: learning…
			}
			if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestANewModelIsAChange: a model with the same path and another content is a change, which a reload applies. A draft
// has the model of the file beside it, and reads no other one.
func TestANewModelIsAChange(t *testing.T) {
	file, other := writeModel(t, true, "{}"), writeModel(t, true, `{"a":1}`)
	dir := filepath.Dir(file)
	src := keys + three + "classifier: { preset: graded }\n" +
		"learning: { hash_key: '${HASH_KEY}', model: tier.model, decide: true }\n"
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	env := environment(map[string]string{"HASH_KEY": hashKey})
	load := func() *File {
		f, err := Load(path, env)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	before := load()
	if before.Learning.Model != file || !before.model.Enabled || strings.Contains(fmt.Sprint(before), hashKey) {
		t.Errorf("%+v", before.Learning)
	}
	if changes := Changes(before, load()); len(changes) != 0 {
		t.Errorf("%+v", changes)
	}
	text, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	changes := Changes(before, load())
	if len(changes) != 1 || changes[0].Path != "learning.model" || changes[0].Effect != effectLive {
		t.Errorf("%+v", changes)
	}
	draft, err := before.Draft(t.Context(), []byte(src))
	if err != nil || draft.model != before.model || !reflect.DeepEqual(draft.Learning, before.Learning) {
		t.Errorf("%v: the draft has another model than the file beside it", err)
	}
	src = strings.ReplaceAll(src, "tier.model", other)
	if _, err := before.Draft(t.Context(), []byte(src)); err == nil || !strings.Contains(err.Error(), "learning.model") {
		t.Errorf("a draft with another model that decides: %v", err)
	}
	draft, err = before.Draft(t.Context(), []byte(strings.Replace(src, ", decide: true", "", 1)))
	if err != nil || draft.model != nil {
		t.Errorf("a draft has read a model that the file beside it does not name: %v", err)
	}
}
