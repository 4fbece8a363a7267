package tiers

import (
	"strings"
	"testing"
)

func TestEachMistakeIsReportedUnderItsConfigKey(t *testing.T) {
	tier := func(name, model string) Target { return Target{Name: name, Tier: true, Model: model} }
	for name, c := range map[string]struct {
		config Config
		want   []string // one for each line of the error
	}{
		"alias to nowhere": {
			Config{Targets: []Target{tier("small", "m")}, Default: "small",
				Aliases: toOne(map[string]string{"gpt-4": "smal", "x*": "y*"})},
			[]string{`models["gpt-4"]: unknown target "smal": name a tier or pool (small)`, `models["x*"]: unknown target "y*"`},
		},
		"alias to an alias": {
			Config{Targets: []Target{tier("small", "m")}, Default: "small", Aliases: toOne(map[string]string{"a": "small",
				"b": "a"})},
			[]string{`models["b"]: unknown target "a"`},
		},
		"two of one name": {
			Config{Targets: []Target{tier("small", "m"), tier("small", "n")}, Default: "small"},
			[]string{`tiers[1].name: duplicate name "small", used by tiers[0].name`},
		},
		"a pool of a tier's name": {
			Config{Targets: []Target{tier("small", "m"), {Name: "small"}}, Default: "small"},
			[]string{`pools[0].name: duplicate name "small", used by tiers[0].name`},
		},
		"two of one model": {
			Config{Targets: []Target{tier("small", "m"), tier("large", "m"), {Name: "p", Models: []string{"x", "m"}}},
				Default: "small"},
			[]string{`tiers[1].model: duplicate name "m", used by tiers[0].model`,
				`pools[0].models[1]: duplicate name "m", used by tiers[0].model`},
		},
		"a model of another's name": {
			Config{Targets: []Target{tier("small", "large"), tier("large", "m")}, Default: "small"},
			[]string{`tiers[0].model: duplicate name "large", used by tiers[1].name`},
		},
		"an alias without a name": {
			Config{Targets: []Target{tier("small", "n")}, Default: "small", Aliases: toOne(map[string]string{"": "small"})},
			[]string{`models[""]: empty model name`},
		},
		"a reserved name": {
			Config{Targets: []Target{tier("classify", "m")}, Default: "classify"},
			[]string{`tiers[0].name: "classify" is reserved`},
		},
		"an unknown default": {Config{Targets: []Target{tier("small", "m")}, Default: "big"},
			[]string{`classifier.default: unknown tier "big": name one of the tiers (small)`}},
		"a pool as the default": {Config{Targets: []Target{tier("small", "m"), {Name: "p"}}, Default: "p"},
			[]string{`classifier.default: unknown tier "p"`}},
		"classify without tiers": {
			Config{Targets: []Target{{Name: "p"}}, Aliases: toOne(map[string]string{"x": "classify"})},
			[]string{`models["x"]: "classify" needs tiers`},
		},
		"globs that match the same": {
			Config{Targets: []Target{tier("small", "m")}, Default: "small",
				Aliases: toOne(map[string]string{"a*": "small", "a**": "small", "b?*": "small", "b*?": "small"})},
			[]string{`models["a**"]: never matches: models["a*"] matches the same`,
				`models["b?*"]: never matches: models["b*?"]`},
		},
		"an alias behind a name": {
			Config{Targets: []Target{tier("small", "m")}, Default: "small",
				Aliases: toOne(map[string]string{"m": "small", "small": "m"})},
			[]string{`models["m"]: never matches: "m" is already a name of "small"`, `models["small"]: never matches`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.config)
			if err == nil {
				t.Fatal("New found no mistake")
			}
			got := strings.Split(err.Error(), "\n")
			if len(got) != len(c.want) {
				t.Errorf("got %d mistakes, want %d:\n%v", len(got), len(c.want), err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no mistake is %s:\n%v", want, err)
				}
			}
		})
	}
}

func TestCatalogDoesNotAliasItsConfig(t *testing.T) {
	models, aliases := []string{"x"}, toOne(map[string]string{"y": "t"})
	k, err := New(Config{Targets: []Target{{Name: "t", Tier: true, Models: models}}, Aliases: aliases, Default: "t"})
	if err != nil {
		t.Fatal(err)
	}
	models[0], aliases["y"][0] = "changed", "changed"
	for _, header := range []string{"", "t"} {
		if v, err := k.Resolve(Query{Model: "y", Header: header}); err != nil || v.Model != "x" {
			t.Errorf("after its config changed the catalog returns %+v, %v", v, err)
		}
	}
}
