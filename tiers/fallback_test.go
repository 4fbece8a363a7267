package tiers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// listed returns a catalog of three tiers and two pools with lists of targets.
func listed(t testing.TB) *Catalog {
	t.Helper()
	k, err := New(Config{
		Targets: []Target{
			{Name: "small", Tier: true, Model: "s"},
			{Name: "medium", Tier: true, Model: "m", Models: []string{"m-lora"}, Fallback: []string{"small"}},
			{Name: "large", Tier: true, Model: "l", Fallback: []string{"medium", "other"}},
			{Name: "embed", Models: []string{"bge"}, Fallback: []string{"other"}},
			{Name: "other", Models: []string{"o"}},
		},
		Aliases: map[string]Targets{
			"best": {"large", "m-lora", "other"}, "one": {"large"}, "vectors": {"embed"}, "glob-*": {"medium", "embed"},
		},
		Rules: Rules{Preset: "none", PromptTokens: map[string]int64{"large": 1000}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// blocking returns a Blocked under which the named targets have no worker.
func blocking(names ...string) func(string) string {
	return func(name string) string {
		if slices.Contains(names, name) {
			return "has no healthy worker"
		}
		return ""
	}
}

func TestFirstTargetThatCanTakeTheRequestGetsIt(t *testing.T) {
	long := &ClassifierInput{Now: start(), PromptTokens: 5000, Session: 1}
	for name, c := range map[string]struct {
		q    Query
		want string
	}{
		"the first": {Query{Model: "best"}, "large l alias"},
		"no worker": {Query{Model: "best", Blocked: blocking("large")},
			"medium m-lora fallback:medium large has no healthy worker; alias selected large"},
		"two without a worker": {Query{Model: "best", Blocked: blocking("large", "medium")},
			"other o fallback:other large has no healthy worker; medium has no healthy worker; alias selected large"},
		"context": {Query{Model: "best", Fits: only("other")},
			"other o fallback:other large has too little context; medium has too little context; alias selected large"},
		"all blocked": {Query{Model: "best", Blocked: blocking("large", "medium", "other")}, "large l alias"},
		"all blocked, the first too small": {Query{Model: "best", Fits: only("medium", "other"),
			Blocked: blocking("large", "medium", "other")},
			"medium m-lora fallback:medium large has too little context; alias selected large"},
		"not the next tier, as unavailable would": {Query{Model: "best", Blocked: blocking("large", "medium", "other"),
			Available: only("small")}, "large l alias"},
		"fits none, as without a list": {Query{Model: "glob-x", Fits: only("large")},
			"large l context alias selected medium"},
		"the first is not allowed": {Query{Model: "best", Allowed: only("medium", "other")},
			"medium m-lora fallback:medium large is not allowed; alias selected large"},
		"the second is not allowed": {Query{Model: "best", Allowed: only("large", "other"), Blocked: blocking("large")},
			"other o fallback:other large has no healthy worker; medium is not allowed; alias selected large"},
		"none is allowed":  {Query{Model: "best", Allowed: only("small")}, "unknown model"},
		"a right by model": {Query{Model: "best", AllowedModel: only("best"), Blocked: blocking("large")}, "medium m-lora fallback:medium large has no healthy worker; alias selected large"},
		"a glob":           {Query{Model: "glob-1", Blocked: blocking("medium")}, "embed bge fallback:embed medium has no healthy worker; alias selected medium"},
		"a tier's fallback": {Query{Model: "large", Blocked: blocking("large")},
			"medium m fallback:medium large has no healthy worker; model selected large"},
		"of an alias with one target": {Query{Model: "one", Blocked: blocking("large", "medium")},
			"other o fallback:other large has no healthy worker; medium has no healthy worker; alias selected large"},
		"it is not followed further": {Query{Model: "large", Blocked: blocking("large", "medium", "other")}, "large l model"},
		"no right to the fallback's names": {Query{Model: "large", AllowedModel: only("large", "o"),
			Blocked: blocking("large")},
			"other o fallback:other large has no healthy worker; medium is not allowed; model selected large"},
		"of the header's tier": {Query{Model: "best", Header: "medium", Blocked: blocking("medium")},
			"small s fallback:small medium has no healthy worker; header selected medium"},
		"an unknown header": {Query{Model: "best", Header: "x", Blocked: blocking("large")}, "medium m-lora fallback:medium " +
			NoteUnknownHeader + "; large has no healthy worker; alias selected large"},
		"of a classified request": {Query{Input: long, Blocked: blocking("large")},
			"medium m fallback:medium large has no healthy worker; prompt_tokens selected large"},
		"of the tier that it is clamped to": {Query{Input: long, Allowed: only("small", "medium"),
			Blocked: blocking("medium")},
			"small s fallback:small prompt_tokens selected large; medium has no healthy worker; clamped to medium"},
		"pinned": {Query{Model: "l", Blocked: blocking("large"), Available: only("medium")}, "large l model"},
		"a pool": {Query{Model: "vectors", Blocked: blocking("embed")},
			"other o fallback:other embed has no healthy worker; alias selected embed"},
		"a pool's own model": {Query{Model: "bge", Blocked: blocking("embed")}, "embed bge model"},
		"a tier without":     {Query{Model: "small", Blocked: blocking("small"), Available: only("large")}, "large l unavailable model selected small"},
	} {
		if got := outcome(listed(t).Resolve(c.q)); got != c.want {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
	}
}

// TestFallBackGoesOnInTheList: past targets that cannot take the request, and never back.
func TestFallBackGoesOnInTheList(t *testing.T) {
	k := listed(t)
	var moves []Move
	q := Query{Model: "best", Moves: &moves}
	v, err := k.Resolve(q)
	if err != nil || !v.MayFallBack() || len(moves) > 0 {
		t.Fatalf("%+v, %v", v, err)
	}
	v, ok := k.FallBack(v, q, "has a full queue")
	if got := outcome(v, nil); !ok || got != "medium m-lora fallback:medium large has a full queue; alias selected large" {
		t.Errorf("%t, %s", ok, got)
	}
	q.Blocked = blocking("other", "large")
	v, ok = k.FallBack(v, q, "failed")
	const note = "large has a full queue; alias selected large; medium failed; other has no healthy worker"
	if ok || v.Target != "medium" || v.Note != note {
		t.Errorf("%t, %+v", ok, v)
	}
	want := []Move{{"large", "alias", "fallback", "has a full queue"}, {"medium", "fallback", "fallback", "failed"},
		{"other", "fallback", "fallback", "has no healthy worker"}}
	if !slices.Equal(moves, want) {
		t.Errorf("the moves are %+v", moves)
	}
	for _, model := range []string{"small", "l", "o"} {
		v, err := k.Resolve(Query{Model: model})
		if to, ok := k.FallBack(v, Query{Model: model}, "failed"); err != nil || ok || v.MayFallBack() || to != v {
			t.Errorf("%s has no list, but falls back to %+v", model, to)
		}
	}
	if got := k.List(v); !slices.Equal(got, []string{"large", "medium", "other"}) {
		t.Errorf("the list is %v", got)
	}
}

// TestChatIsRememberedAtTheTierThatItPrefers: not at the fallback where it went meanwhile.
func TestChatIsRememberedAtTheTierThatItPrefers(t *testing.T) {
	k, chats := listed(t), NewChats(10)
	f := func(tokens int64) *ClassifierInput {
		return &ClassifierInput{Now: time.Unix(1, 0), Session: 1, PromptTokens: tokens}
	}
	if v, err := k.Resolve(Query{Input: f(5000), Chats: chats, Blocked: blocking("large")}); err != nil ||
		v.Target != "medium" {
		t.Fatalf("%+v, %v", v, err)
	}
	if v, err := k.Resolve(Query{Input: f(1), Chats: chats}); err != nil || v.Target != "large" || v.Rule != "sticky" {
		t.Errorf("the next turn is at %+v, %v", v, err)
	}
}

// TestListNeverLeadsToAForbiddenTarget: nor to one that is blocked or too small while another is not.
func TestListNeverLeadsToAForbiddenTarget(t *testing.T) {
	k := listed(t)
	names := []string{"small", "medium", "large", "embed", "other"}
	rapid.Check(t, func(rt *rapid.T) {
		some := func(label string) []string { return rapid.SliceOf(rapid.SampledFrom(names)).Draw(rt, label) }
		allowed, fits, down := some("allowed"), some("fits"), some("down")
		q := Query{Model: rapid.SampledFrom([]string{"best", "one", "large", "glob-x", "vectors"}).Draw(rt, "model"),
			Allowed: only(allowed...), Fits: only(fits...), Blocked: blocking(down...)}
		v, err := k.Resolve(q)
		if errors.Is(err, ErrUnknownModel) {
			return
		}
		usable := func(name string) bool {
			return q.Allowed(name) && q.Fits(name) && !slices.Contains(down, name)
		}
		if !q.Allowed(v.Target) || err == nil && !q.Fits(v.Target) {
			rt.Errorf("it went to %+v", v)
		}
		list := k.List(v)
		if at := slices.IndexFunc(list, usable); at >= 0 && list[at] != v.Target {
			rt.Errorf("it went to %s, not to %s", v.Target, list[at])
		}
		for seen := map[string]bool{}; ; {
			if seen[v.Target] || !q.Allowed(v.Target) {
				rt.Fatalf("it went to %s, which is not allowed or was passed over", v.Target)
			}
			seen[v.Target] = true
			var ok bool
			if v, ok = k.FallBack(v, q, "failed"); !ok {
				break
			}
		}
	})
}

func TestMistakesInListsAreReportedUnderTheirKeys(t *testing.T) {
	tier := func(name string, fallback ...string) Target {
		return Target{Name: name, Tier: true, Model: "model-" + name, Fallback: fallback}
	}
	_, err := New(Config{
		Targets: []Target{tier("small", "large", "medum"), {Name: "medium", Tier: true, Fallback: []string{}},
			tier("large", "small", "model-large", "model-small"), {Name: "pool", Models: []string{"p"},
				Fallback: []string{"small"}}},
		Aliases: map[string]Targets{"a": {"small", "b"}, "b": {"b", "small"}, "c": {}, "d": {"small", "model-small"},
			"e": {"small", "classify"}, "f": {"large", "pool"}},
	})
	want := []string{
		`tiers[0].fallback[1]: unknown target "medum": name a tier or pool`,
		`tiers[1].fallback: the list is empty: name a target`,
		`tiers[2].fallback[1]: "model-large" leads to "large", which is in the list already: remove it`,
		`tiers[2].fallback[2]: "model-small" leads to "small", which is in the list already: remove it`,
		`models["a"][1]: unknown target "b"`,
		`models["b"][0]: "b" is the alias itself: name`,
		`models["c"]: the list is empty`,
		`models["d"][1]: "model-small" leads to "small", which is in the list already`,
		`models["e"][1]: "classify" cannot be in a list: write it as the only target, and set fallback at the tiers`,
		`pools[0].fallback: has no effect, because requests for a pool's own models never move: map an alias`,
	}
	got := strings.Split(fmt.Sprint(err), "\n")
	if len(got) != len(want) {
		t.Errorf("got %d mistakes, want %d:\n%v", len(got), len(want), err)
	}
	for i := range min(len(got), len(want)) {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%s\nwant %s", got[i], want[i])
		}
	}
}
