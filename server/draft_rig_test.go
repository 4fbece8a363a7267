package server

import (
	"testing"

	"go.yaml.in/yaml/v3"

	"tierway/config"
)

// edited returns the text of the rig's configuration with a text laid over it: sections
// key by key, lists of named sections item by item. Another policy replaces the section.
func (r *rig) edited(over string) string {
	r.t.Helper()
	var a, b any
	for text, to := range map[string]*any{r.text: &a, over: &b} {
		if err := yaml.Unmarshal([]byte(text), to); err != nil {
			r.t.Fatal(err)
		}
	}
	out, err := yaml.Marshal(laidOver(a, b))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(out)
}

// draft parses edited.
func (r *rig) draft(over string) *config.File {
	r.t.Helper()
	f, err := r.control.Snapshot().Base.Draft([]byte(r.edited(over)))
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

func laidOver(a, b any) any {
	switch b := b.(type) {
	case map[string]any:
		a, ok := a.(map[string]any)
		if !ok || b["name"] != nil && a["name"] != b["name"] {
			return b
		}
		for k, v := range b {
			a[k] = laidOver(a[k], v)
		}
		return a
	case []any:
		a, _ := a.([]any)
		for _, item := range b {
			at := named(a, item)
			if at < 0 {
				a = append(a, item)
				continue
			}
			a[at] = laidOver(a[at], item)
		}
		return a
	}
	return b
}

// named returns the index of the item with the name of another one, -1 without one.
func named(items []any, as any) int {
	want, _ := as.(map[string]any)
	for i, item := range items {
		if m, ok := item.(map[string]any); ok && m["name"] != nil && m["name"] == want["name"] {
			return i
		}
	}
	return -1
}

// TestAnEditedConfigurationIsComplete: the tests' own drafts are complete files.
func TestAnEditedConfigurationIsComplete(t *testing.T) {
	r := newExplainRig(t)
	f := r.draft(`tiers: [ { name: large, workers: [ { name: l0, weight: 3 } ] } ]`)
	if got := config.Changes(r.control.Snapshot().Base, f); len(got) != 1 ||
		got[0].Path != "tiers[large].workers[l0].weight" {
		t.Errorf("it changes %+v", got)
	}
}
