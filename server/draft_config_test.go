package server

import (
	"testing"
	"testing/synctest"

	"go.yaml.in/yaml/v3"

	"tierway/config"
)

// edited returns the rig's configuration with the changes of over: sections are merged key by key,
// lists of named sections item by item. A policy of another name replaces the section.
func (r *rig) edited(over string) string {
	r.t.Helper()
	var a, b any
	for text, to := range map[string]*any{r.text: &a, over: &b} {
		if err := yaml.Unmarshal([]byte(text), to); err != nil {
			r.t.Fatal(err)
		}
	}
	out, err := yaml.Marshal(merged(a, b))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(out)
}

// draft parses the result of edited.
func (r *rig) draft(over string) *config.File {
	r.t.Helper()
	f, err := r.control.Snapshot().Base.Draft(r.t.Context(), []byte(r.edited(over)))
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

// merged returns a with the changes of b.
func merged(a, b any) any {
	switch b := b.(type) {
	case map[string]any:
		a, ok := a.(map[string]any)
		if !ok || b["name"] != nil && a["name"] != b["name"] {
			return b
		}
		for k, v := range b {
			a[k] = merged(a[k], v)
		}
		return a
	case []any:
		a, _ := a.([]any)
		for _, item := range b {
			at := indexByName(a, item)
			if at < 0 {
				a = append(a, item)
				continue
			}
			a[at] = merged(a[at], item)
		}
		return a
	}
	return b
}

// indexByName returns the index of the item with the name of item as, or -1.
func indexByName(items []any, as any) int {
	want, _ := as.(map[string]any)
	for i, item := range items {
		if m, ok := item.(map[string]any); ok && m["name"] != nil && m["name"] == want["name"] {
			return i
		}
	}
	return -1
}

// TestAnEditedConfigurationIsComplete: the result of edited is a valid draft.
func TestAnEditedConfigurationIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newExplainRig(t)
		f := r.draft(`tiers: [ { name: large, workers: [ { name: l0, weight: 3 } ] } ]`)
		if got := config.Changes(r.control.Snapshot().Base, f); len(got) != 1 ||
			got[0].Path != "tiers[large].workers[l0].weight" {
			t.Errorf("the draft changes %+v", got)
		}
	})
}
