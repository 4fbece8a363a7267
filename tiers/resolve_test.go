package tiers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// house returns a catalog with all kinds of names.
func house(t *testing.T) *Catalog {
	t.Helper()
	k, err := New(Config{
		Targets: []Target{
			{Name: "small", Tier: true, Model: "qwen-7b", Models: []string{"qwen-7b-lora"}},
			{Name: "medium", Tier: true, Model: "qwen-32b"},
			{Name: "large", Tier: true},
			{Name: "embed", Models: []string{"bge-m3", "bge-m3-v2"}},
			{Name: "any"},
		},
		Aliases: toOne(map[string]string{
			"gpt-4o-mini": "small", "gpt-4*": "large", "gpt-4o*": "medium", "gpt-?": "qwen-7b-lora", "mini": "qwen-7b",
			"text-embedding-*": "embed", "vectors": "bge-m3-v2", "other/*": "any", "best": "classify",
		}),
		Default: "medium",
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// toOne returns aliases that lead to one target each.
func toOne(aliases map[string]string) map[string]Targets {
	all := map[string]Targets{}
	for name, to := range aliases {
		all[name] = Targets{to}
	}
	return all
}

func only(names ...string) func(string) bool {
	return func(name string) bool { return slices.Contains(names, name) }
}

func TestNamesLeadToTheirTargets(t *testing.T) {
	k := house(t)
	for model, want := range map[string]Resolution{
		"":                     {Target: "medium", Tier: true, Model: "qwen-32b", Rule: "default"},
		"auto":                 {Target: "medium", Tier: true, Model: "qwen-32b", Rule: "default"},
		"best":                 {Target: "medium", Tier: true, Model: "qwen-32b", Rule: "default"},
		"small":                {Target: "small", Tier: true, Model: "qwen-7b", Rule: "model"},
		"large":                {Target: "large", Tier: true, Rule: "model"},
		"qwen-7b":              {Target: "small", Tier: true, Model: "qwen-7b", Rule: "model", Pinned: true},
		"qwen-7b-lora":         {Target: "small", Tier: true, Model: "qwen-7b-lora", Rule: "model", Pinned: true},
		"bge-m3-v2":            {Target: "embed", Model: "bge-m3-v2", Rule: "model", Pinned: true},
		"gpt-4o-mini":          {Target: "small", Tier: true, Model: "qwen-7b", Rule: "alias"},
		"gpt-4o-mini-2024":     {Target: "medium", Tier: true, Model: "qwen-32b", Rule: "alias"},
		"gpt-4-turbo":          {Target: "large", Tier: true, Rule: "alias"},
		"gpt-5":                {Target: "small", Tier: true, Model: "qwen-7b-lora", Rule: "alias"},
		"mini":                 {Target: "small", Tier: true, Model: "qwen-7b", Rule: "alias"},
		"text-embedding-small": {Target: "embed", Model: "bge-m3", Rule: "alias"},
		"vectors":              {Target: "embed", Model: "bge-m3-v2", Rule: "alias"},
		"other/a/b":            {Target: "any", Rule: "alias"},
	} {
		if got, err := k.Resolve(Query{Model: model}); err != nil || got != want {
			t.Errorf("%q leads to %+v, %v, want %+v", model, got, err, want)
		}
	}
	for _, model := range []string{"Small", "AUTO", "classify", "embed", "gpt-", "gpt-55", "qwen", "other", " small"} {
		if got, err := k.Resolve(Query{Model: model}); !errors.Is(err, ErrUnknownModel) {
			t.Errorf("%q leads to %+v, %v, want ErrUnknownModel", model, got, err)
		}
	}
}

func TestHeaderOverridesTheModelAmongTiers(t *testing.T) {
	k := house(t)
	header := func(target, model string) Resolution {
		return Resolution{Target: target, Tier: true, Model: model, Rule: "header"}
	}
	for name, c := range map[string]struct {
		q    Query
		want Resolution
	}{
		"over the default":      {Query{Header: "small"}, header("small", "qwen-7b")},
		"over auto":             {Query{Model: "auto", Header: "large"}, header("large", "")},
		"over an alias":         {Query{Model: "gpt-4", Header: "small"}, header("small", "qwen-7b")},
		"over a tier":           {Query{Model: "large", Header: "small"}, header("small", "qwen-7b")},
		"over an engine's name": {Query{Model: "qwen-7b", Header: "medium"}, header("medium", "qwen-32b")},
		"the same tier":         {Query{Model: "qwen-7b", Header: "small"}, header("small", "qwen-7b")},
		"in any case":           {Query{Model: "auto", Header: "SmAlL"}, header("small", "qwen-7b")},
		"unknown": {Query{Model: "small", Header: "huge"},
			Resolution{Target: "small", Tier: true, Model: "qwen-7b", Rule: "model", Note: NoteUnknownHeader}},
		"a pool's name": {Query{Model: "small", Header: "embed"},
			Resolution{Target: "small", Tier: true, Model: "qwen-7b", Rule: "model", Note: NoteUnknownHeader}},
		"a model of a pool": {Query{Model: "bge-m3", Header: "small"},
			Resolution{Target: "embed", Model: "bge-m3", Rule: "model", Note: NoteOutsideTiers, Pinned: true}},
		"an alias of a pool": {Query{Model: "vectors", Header: "huge"},
			Resolution{Target: "embed", Model: "bge-m3-v2", Rule: "alias", Note: NoteOutsideTiers}},
	} {
		if got, err := k.Resolve(c.q); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
		}
	}
	if _, err := k.Resolve(Query{Model: "nothing", Header: "small"}); !errors.Is(err, ErrUnknownModel) {
		t.Errorf("an unknown model with a good header: %v", err)
	}
}

func TestForbiddenTargetsAreClampedOrUnknown(t *testing.T) {
	k := house(t)
	for name, c := range map[string]struct {
		q    Query
		want string // target rule note, or the error
	}{
		"header, lower first": {Query{Model: "small", Header: "large", Allowed: only("small", "medium")},
			"medium clamped header selected large"},
		"header, else higher": {Query{Model: "large", Header: "small", Allowed: only("large")},
			"large clamped header selected small"},
		"default, lower first": {Query{Model: "auto", Allowed: only("small", "large")},
			"small clamped default selected medium"},
		"default, else higher": {Query{Allowed: only("large", "embed")}, "large clamped default selected medium"},
		"default and bad header": {Query{Allowed: only("small"), Header: "x"}, "small clamped default selected medium; " +
			NoteUnknownHeader},
		"default, no tier at all": {Query{Allowed: only("embed", "any")}, "unknown model"},
		"a tier's name":           {Query{Model: "large", Allowed: only("small")}, "unknown model"},
		"an engine's name":        {Query{Model: "qwen-7b", Allowed: only("large")}, "unknown model"},
		"an alias":                {Query{Model: "gpt-4", Allowed: only("small")}, "unknown model"},
		"a pool's model":          {Query{Model: "bge-m3", Allowed: only("small")}, "unknown model"},
		"no way in by the header": {Query{Model: "large", Header: "small", Allowed: only("small")}, "unknown model"},
		"a forbidden name":        {Query{Model: "small", AllowedModel: only("auto")}, "unknown model"},
		"the same by the header":  {Query{Model: "small", Header: "small", AllowedModel: only("auto")}, "unknown model"},
		"no name to be allowed":   {Query{AllowedModel: only("auto")}, "unknown model"},
		"an allowed name":         {Query{Model: "auto", AllowedModel: only("auto")}, "medium default "},
	} {
		v, err := k.Resolve(c.q)
		got := fmt.Sprint(err)
		if err == nil {
			got = v.Target + " " + v.Rule + " " + v.Note
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestClampedDefaultUsesTheModelOfItsTier(t *testing.T) {
	if v, err := house(t).Resolve(Query{Model: "auto", Allowed: only("small")}); err != nil || v.Model != "qwen-7b" {
		t.Errorf("got %+v, %v", v, err)
	}
}

func TestAutoIsAnAliasLikeAnother(t *testing.T) {
	small := Target{Name: "small", Tier: true, Model: "m"}
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"by default": {Config{Targets: []Target{small}, Default: "small"}, "small default"},
		"overridden": {Config{Targets: []Target{small, {Name: "p", Model: "x"}}, Default: "small",
			Aliases: toOne(map[string]string{"auto": "p"})}, "p alias"},
		"a tier's name": {Config{Targets: []Target{small, {Name: "auto", Tier: true}}, Default: "small"}, "auto model"},
		"without tiers": {Config{Targets: []Target{{Name: "p", Model: "x"}}}, "unknown model"},
	} {
		k, err := New(c.config)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		v, err := k.Resolve(Query{Model: "auto"})
		got := fmt.Sprint(err)
		if err == nil {
			got = v.Target + " " + v.Rule
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestTierMayHaveTheNameOfItsModel(t *testing.T) {
	k, err := New(Config{Targets: []Target{{Name: "llama", Tier: true, Model: "llama"},
		{Name: "bge", Models: []string{"bge"}}}, Default: "llama"})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := k.Resolve(Query{Model: "llama"}); err != nil || !v.Pinned || v.Target != "llama" {
		t.Errorf("got %+v, %v", v, err)
	}
}

func TestModelsListsTheNamesThatTheTenantMayUse(t *testing.T) {
	k := house(t)
	for name, c := range map[string]struct {
		q    Query
		want string
	}{
		"all": {Query{},
			"auto best bge-m3 bge-m3-v2 gpt-4o-mini large medium mini qwen-32b qwen-7b qwen-7b-lora small vectors"},
		"one tier":     {Query{Allowed: only("small")}, "auto best gpt-4o-mini mini qwen-7b qwen-7b-lora small"},
		"one pool":     {Query{Allowed: only("embed")}, "bge-m3 bge-m3-v2 vectors"},
		"by name":      {Query{AllowedModel: only("auto", "mini", "nothing")}, "auto mini"},
		"other fields": {Query{Model: "x", Header: "small", Allowed: only("large")}, "auto best large"},
		"none":         {Query{Allowed: only()}, ""},
	} {
		if got := strings.Join(k.Models(c.q), " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// drawConfig returns a valid config with random aliases and globs.
func drawConfig(rt *rapid.T) Config {
	c := Config{Aliases: map[string]Targets{}, Default: fmt.Sprint("t", rapid.IntRange(0, 2).Draw(rt, "default")),
		Rules: Rules{Preset: "none"}}
	to := []string{Classify}
	for i := range 5 {
		t := Target{Name: fmt.Sprint("t", i), Tier: i < 3}
		if rapid.Bool().Draw(rt, "has a model") {
			t.Model = fmt.Sprint("m", i)
			to = append(to, t.Model)
		}
		if rapid.Bool().Draw(rt, "has more") {
			t.Models = []string{fmt.Sprint("m", i, "+")}
			to = append(to, t.Models...)
		}
		c.Targets, to = append(c.Targets, t), append(to, t.Name)
	}
	forms := map[string]bool{}
	for range rapid.IntRange(0, 12).Draw(rt, "aliases") {
		name := rapid.StringMatching(`[ab*?]{1,6}`).Draw(rt, "alias")
		if forms[canonical(name)] {
			continue
		}
		forms[canonical(name)] = true
		c.Aliases[name] = Targets{rapid.SampledFrom(to).Draw(rt, "to")}
	}
	return c
}

func drawQuery(rt *rapid.T) Query {
	q := Query{
		Model: rapid.OneOf(rapid.StringMatching(`[ab]{0,7}`), rapid.StringMatching(`[tm][0-5]\+?|auto|classify`)).Draw(rt,
			"model"),
		Header: rapid.SampledFrom([]string{"", "t0", "T1", "t2", "t3", "x"}).Draw(rt, "header"),
	}
	if rapid.Bool().Draw(rt, "restricted") {
		q.Allowed = only(rapid.SliceOf(rapid.SampledFrom([]string{"t0", "t1", "t2", "t3", "t4"})).Draw(rt, "allowed")...)
	}
	if rapid.Bool().Draw(rt, "restricted by name") {
		bad := rapid.StringMatching(`[abtm]`).Draw(rt, "forbidden letter")
		q.AllowedModel = func(model string) bool { return !strings.Contains(model, bad) }
	}
	return q
}

func TestResolveNeverReturnsAForbiddenTarget(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := drawConfig(rt)
		k, err := New(c)
		if err != nil {
			rt.Fatal(err)
		}
		q := drawQuery(rt)
		v, err := k.Resolve(q)
		if err != nil {
			return
		}
		if q.Allowed != nil && !q.Allowed(v.Target) || q.AllowedModel != nil && !q.AllowedModel(q.Model) {
			rt.Errorf("%+v was returned", v)
		}
		at := slices.IndexFunc(c.Targets, func(t Target) bool { return t.Name == v.Target })
		if at < 0 || c.Targets[at].Tier != v.Tier {
			rt.Fatalf("%+v is no target", v)
		}
		if v.Pinned && v.Model != q.Model {
			rt.Errorf("%q is pinned to another model: %+v", q.Model, v)
		}
		if served := c.Targets[at].served(); v.Model != "" && !slices.Contains(served, v.Model) ||
			v.Model == "" && len(served) > 0 {
			rt.Errorf("%s does not serve the requested model: %+v", v.Target, v)
		}
	})
}

func TestHeaderCannotBypassAModelRestriction(t *testing.T) {
	k, err := New(Config{
		Targets: []Target{{Name: "small", Tier: true, Model: "s"}, {Name: "medium", Tier: true, Model: "m"},
			{Name: "large", Tier: true, Model: "l"}},
		Aliases: toOne(map[string]string{"mini": "small", "gpt-4*": "medium"}), Default: "small",
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		model  string
		header string
		names  []string
		want   string
	}{
		"not named":              {"small", "large", []string{"small"}, "small s clamped header selected large"},
		"not named, downwards":   {"large", "small", []string{"large"}, "large l clamped header selected small"},
		"by the tier's name":     {"small", "large", []string{"small", "large"}, "large l header "},
		"by its model":           {"small", "large", []string{"small", "l"}, "large l header "},
		"by an alias":            {"large", "small", []string{"large", "mini"}, "small s header "},
		"by a glob":              {"small", "medium", []string{"small", "gpt-4*"}, "medium m header "},
		"the nearest that it is": {"small", "large", []string{"small", "m"}, "medium m clamped header selected large"},
		"auto alone":             {"auto", "large", []string{"auto"}, "small s clamped header selected large"},
	} {
		v, err := k.Resolve(Query{Model: tt.model, Header: tt.header, AllowedModel: only(tt.names...)})
		if got := v.Target + " " + v.Model + " " + v.Rule + " " + v.Note; err != nil || got != tt.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tt.want)
		}
	}
}

func TestListedModelsResolveAndAreUnique(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := drawConfig(rt)
		k, err := New(c)
		if err != nil {
			rt.Fatal(err)
		}
		q := drawQuery(rt)
		models := k.Models(q)
		for i, model := range models {
			if i > 0 && models[i-1] >= model {
				rt.Errorf("not sorted or not unique: %q", models)
			}
			if _, err := k.Resolve(Query{Model: model, Allowed: q.Allowed, AllowedModel: q.AllowedModel}); err != nil {
				rt.Errorf("%q is listed and cannot be used: %v", model, err)
			}
		}
	})
}

func TestLongestGlobWinsInAnyMapOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := drawConfig(rt)
		model := rapid.StringMatching(`[ab]{1,7}`).Draw(rt, "model")
		want, longest := "", 0
		for pattern := range c.Aliases {
			if pattern == model {
				want, longest = "", 0
				break
			}
			if isGlob(pattern) && matchSlowly(pattern, model) && len(pattern) > longest {
				longest = len(pattern)
			}
		}
		if longest == 0 {
			return
		}
		var first Resolution
		for range 5 {
			k, err := New(c)
			if err != nil {
				rt.Fatal(err)
			}
			for _, g := range k.globs {
				if MatchGlob(g.pattern, model) {
					want = g.pattern
					break
				}
			}
			if len(want) != longest {
				rt.Fatalf("%q was matched by %q, not by one of %d characters in %v", model, want, longest, c.Aliases)
			}
			v, err := k.Resolve(Query{Model: model})
			if err != nil {
				rt.Fatal(err)
			}
			if first == (Resolution{}) {
				first = v
			}
			if v != first {
				rt.Fatalf("the same config gave %+v and %+v", first, v)
			}
		}
	})
}

func TestEquallyLongGlobsHaveOneOrder(t *testing.T) {
	c := Config{Targets: []Target{{Name: "t", Tier: true}}, Default: "t",
		Aliases: toOne(map[string]string{"?zz": "t", "*zz": "t", "a?*": "t"})}
	want := []string{"?zz", "*zz"}
	for letter := 'a'; letter < 'z'; letter++ { // more than a sort keeps in order by itself
		pattern := string(letter) + "z*"
		c.Aliases[pattern] = Targets{"t"}
		want = append(want, pattern)
	}
	slices.Sort(want[1:])
	want = append(want, "a?*")
	k, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range k.globs {
		got = append(got, g.pattern)
	}
	if !slices.Equal(got, want) {
		t.Errorf("they are tried as %q, want %q", got, want)
	}
}

// matchSlowly is the definition of globs in its plainest form.
func matchSlowly(pattern, name string) bool {
	p, n := []rune(pattern), []rune(name)
	if len(p) == 0 {
		return len(n) == 0
	}
	switch p[0] {
	case '*':
		for i := range len(n) + 1 {
			if matchSlowly(string(p[1:]), string(n[i:])) {
				return true
			}
		}
		return false
	case '?':
		return len(n) > 0 && matchSlowly(string(p[1:]), string(n[1:]))
	}
	return len(n) > 0 && n[0] == p[0] && matchSlowly(string(p[1:]), string(n[1:]))
}

func FuzzGlob(f *testing.F) {
	for _, seed := range [][2]string{{"gpt-4*", "gpt-4o"}, {"*", ""}, {"?", "é"}, {"a*?b", "axxb"}, {".+", ".+"},
		{"[a]", "a"}, {"**a**", "bab"}, {"a\n*", "a\nb"}, {`\d`, "1"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 12 || len(name) > 24 || strings.ToValidUTF8(pattern+name, "") != pattern+name {
			return
		}
		want := matchSlowly(pattern, name)
		if got := MatchGlob(pattern, name); got != want {
			t.Errorf("%q matches %q: %v, want %v", pattern, name, got, want)
		}
		if got := MatchGlob(canonical(pattern), name); got != want {
			t.Errorf("the canonical form %q of %q matches %q: %v", canonical(pattern), pattern, name, got)
		}
	})
}

func TestUnknownAndForbiddenNamesGetTheSameError(t *testing.T) {
	k := house(t)
	_, unknown := k.Resolve(Query{Model: "nothing"})
	_, forbidden := k.Resolve(Query{Model: "large", Allowed: only("small")})
	if unknown.Error() != forbidden.Error() {
		t.Errorf("%q and %q have different errors", unknown, forbidden)
	}
}
