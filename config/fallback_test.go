package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// listed is a configuration with lists of targets.
const listed = keys + `tiers:
  - {name: small, model: s, workers: [{name: ws, url: "http://h:1"}], fallback: [large]}
  - {name: large, model: l, workers: [{name: wl, url: "http://h:2"}], fallback: [small, p]}
pools:
  - {name: p, models: [q], serves: [chat, completions, responses, messages, tokenize, embeddings], workers: [{name: wp, url: "http://h:3"}]}
models: { one: small, list: [large, q], "glob-*": [small] }
`

// TestListsOfTargetsAreReadAndPrinted: a single target is printed without a list, as the file writes it.
func TestListsOfTargetsAreReadAndPrinted(t *testing.T) {
	f := parsed(t, listed, nil)
	if faults := schemaFaults(t, []byte(listed)); len(faults) > 0 {
		t.Errorf("the schema refuses it: %v", faults)
	}
	if got := f.Warnings(); len(got) > 0 {
		t.Errorf("it has the warnings %v", got)
	}
	out := string(printed(f))
	for _, want := range []string{"one: small\n", "list:\n", "- large\n", "glob-*: small\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("it is printed without %q:\n%s", want, out)
		}
	}
	again, err := Parse("f", printed(f), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(f.Models, again.Models); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestOrderOfTargetsIsAChange(t *testing.T) {
	var got []string
	changed := strings.NewReplacer("[large, q]", "[q, large]", "one: small", "one: [large]", "[small, p]",
		"[p, small]").Replace(listed)
	for _, c := range Changes(parsed(t, listed, nil), parsed(t, changed, nil)) {
		got = append(got, c.Op+" "+c.Path+": "+c.Old+" → "+c.New+" "+c.Effect)
	}
	want := []string{"replace tiers[large].fallback: [small, p] → [p, small] live",
		"replace models.list: [large, q] → [q, large] live", "replace models.one: small → large live"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestMistakesInListsHaveTheirPosition: each is reported once, and names the way out.
func TestMistakesInListsHaveTheirPosition(t *testing.T) {
	for name, c := range map[string]struct{ from, to, want string }{
		"unknown":          {"list: [large, q]", "list: [large, nowhere]", `7:37: models.list[1]: unknown target "nowhere"`},
		"unknown, a tier":  {"[small, p]", "[small, smal]", `4:89: tiers[1].fallback[1]: unknown target "smal"`},
		"the alias itself": {"list: [large, q]", "list: [list, q]", `7:30: models.list[0]: "list" is the alias itself`},
		"empty":            {"list: [large, q]", "list: []", `7:29: models.list: the list is empty (name a target`},
		"empty, a tier":    {"[small, p]", "[]", `tiers[1].fallback: the list is empty (name a target`},
		"twice":            {"list: [large, q]", "list: [large, large]", `models.list[1]: "large" leads to "large", which is in the list already (remove it)`},
		"twice, a tier":    {"[small, p]", "[small, small]", `tiers[1].fallback[1]: "small" is listed twice (remove one of them)`},
		"itself":           {"[small, p]", "[large]", `tiers[1].fallback[0]: "large" leads to "large", which is in the list already`},
		"classify":         {"list: [large, q]", "list: [classify, q]", `models.list[0]: "classify" cannot be in a list`},
		"not a target":     {"list: [large, q]", "list: [{a: b}]", "models.list[0]: want a string, got a section of keys"},
	} {
		got := problemsOf(t, strings.Replace(listed, c.from, c.to, 1), nil)
		if len(got) != 1 || !strings.Contains(got[0], c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestTargetWithoutAKindOfTheFirstIsAWarning: such requests pass it over.
func TestTargetWithoutAKindOfTheFirstIsAWarning(t *testing.T) {
	f := parsed(t, strings.Replace(listed, "serves: [chat, completions, responses, messages, tokenize, embeddings]",
		"serves: [chat, embeddings]", 1), nil)
	var got []string
	for _, p := range f.Warnings() {
		got = append(got, p.Path+": "+p.Message)
	}
	const lacks = `: "p" does not serve completions, responses, messages, tokenize, which "large" serves: such requests pass it over`
	if want := []string{"tiers[1].fallback[1]" + lacks, "models.list[1]" + lacks}; !slices.Equal(got, want) {
		t.Errorf("the warnings are %q, want %q", got, want)
	}
}
