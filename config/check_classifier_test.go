package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestClassifierRulesAreChecked(t *testing.T) {
	keyword := func(more string) string {
		return "classifier: {keywords: [{tier: large, name: a, match: [abc]}" + more + "]}"
	}
	cases := map[string]struct {
		section string
		want    []string
	}{
		"unknown tiers": {`classifier: {prompt_tokens: {lrage: 5, medium: 9, "a: b": 3}, max_tokens: {huge: 1}, keyword_score: {m: 1}, default: midium}`, []string{
			`6:30: classifier.prompt_tokens.lrage: no tier has this name (did you mean large?)`,
			`6:51: classifier.prompt_tokens["a: b"]: no tier has this name (known: small, medium, large)`,
			`6:76: classifier.max_tokens.huge: no tier has this name (known: small, medium, large)`,
			`6:102: classifier.keyword_score.m: no tier has this name (known: small, medium, large)`,
			`6:118: classifier.default: unknown tier "midium" (did you mean medium?)`,
		}},
		"a default that is like no tier": {"classifier: {default: gpt-4o}", []string{
			`6:23: classifier.default: unknown tier "gpt-4o" (name one of the tiers (small, medium, large))`,
		}},
		"keywords for unknown tiers": {"classifier: {keywords: [{tier: lrage, name: a, match: [abc]}, {tier: huge, name: " +
			"b, match: [abc]}]}", []string{
			`6:32: classifier.keywords[0].tier: unknown tier "lrage" (did you mean large?)`,
			`6:70: classifier.keywords[1].tier: unknown tier "huge" (name one of the tiers (small, medium, large))`,
		}},
		"thresholds that do not rise": {
			"classifier: {prompt_tokens: {medium: 900, large: 900}, max_tokens: {medium: 2, large: 1}}", []string{
				`6:38: classifier.prompt_tokens.medium: has no effect: a higher tier is already selected above 900 (set a lower value, or remove it)`,
				`6:77: classifier.max_tokens.medium: has no effect: a higher tier is already selected above 1 (set a lower value, or remove it)`,
			}},
		"thresholds of the default tier": {"classifier: {default: medium, prompt_tokens: {small: 10, medium: 20, large: 30}}",
			[]string{
				`6:54: classifier.prompt_tokens.small: has no effect: the default tier "medium" is not lower (remove it, or lower classifier.default)`,
				`6:66: classifier.prompt_tokens.medium: has no effect: the default tier "medium" is not lower (remove it, or lower classifier.default)`,
			}},
		"a score that no keywords reach": {"classifier: {preset: none, keyword_score: {large: 1.5}, keywords: [{tier: " +
			"large, name: a, match: [abc]}]}", []string{
			`6:51: classifier.keyword_score.large: cannot be reached: the weights of the groups for that tier and higher ones sum to 1 (lower the score, or add keywords)`,
		}},
		"shares and scores": {`classifier: {share: {large: 1.2, medium: 0, mediun: 0.1}, score: {large: -1}, length_weight: -1}`, []string{
			`6:29: classifier.share.large: want a number above 0, up to 1, got "1.2"`,
			`6:42: classifier.share.medium: want a number above 0, up to 1, got "0"`,
			`6:45: classifier.share.mediun: no tier has this name (did you mean medium?)`,
			`6:74: classifier.score.large: want a number of 0 or more, got "-1"`,
			`6:94: classifier.length_weight: want a number of 0 or more, got "-1"`,
		}},
		"shares that sum to more than 1": {"classifier: {preset: graded, share: {medium: 0.9, large: 0.2}}", []string{
			`6:37: classifier.share: the shares sum to 1.1 (lower them until they sum to at most 1)`,
		}},
		"a share of the first tier": {"classifier: {share: {small: 0.5, large: 0.2}}", []string{
			`6:29: classifier.share.small: "small" is the default tier, which gets all other prompts (remove it)`,
		}},
		"both score and share": {"classifier: {score: {large: 9}, share: {large: 0.2}}", []string{
			`6:21: classifier.score: both score and share are given, and only one can select the tier (remove one of them)`,
		}},
		"scores without effect": {"classifier: {score: {medium: 40, large: 9}, keyword_score: {large: 1}}", []string{
			`6:30: classifier.score.medium: cannot be exceeded: the highest possible score is 19.5 (lower the score, or add keywords)`,
			`6:60: classifier.keyword_score: has no effect beside classifier.score, which selects the tier (remove one of them)`,
		}},
		"a weight without scores": {"classifier: {preset: groups, length_weight: 2}", []string{
			`6:45: classifier.length_weight: has no effect without scores (add score or share, or remove it)`,
		}},
		"keywords without a score": {
			"classifier: {keyword_score: {}, keywords: [{tier: large, name: a, match: [abc]}]}", []string{
				`6:51: classifier.keywords[0].tier: has no effect: keyword_score has no entry for "large" or a lower tier above the default (name a tier above classifier.default here, and give it a keyword_score)`,
			}},
		"a name twice": {keyword(", {tier: large, name: a, match: [abd]}"), []string{
			`6:83: classifier.keywords[1].name: duplicate name "a", used by classifier.keywords[0] (use another name)`,
		}},
		"a name of the preset": {keyword(", {tier: large, name: code, match: [abd]}"), []string{
			`6:83: classifier.keywords[1].name: duplicate name "code", used by the preset "groups" (use another name, or set preset to none)`,
		}},
		"expressions": {keyword(", {tier: large, name: b, match: [abd, '(x', 'a*', '[z-a]', abd, '(?<n>a: b)(', 'a(?=b)']}"),
			[]string{
				`6:99: classifier.keywords[1].match[1]: missing closing ) "(x" (write it in the syntax of RE2)`,
				`6:105: classifier.keywords[1].match[2]: matches every text (remove its optional parts)`,
				`6:111: classifier.keywords[1].match[3]: invalid character class range "z-a" (write it in the syntax of RE2)`,
				`6:120: classifier.keywords[1].match[4]: "abd" is listed twice (remove one of them)`,
				`6:125: classifier.keywords[1].match[5]: missing closing ) "(?<n>a: b)(" (write it in the syntax of RE2)`,
				`6:140: classifier.keywords[1].match[6]: invalid or unsupported Perl syntax "(?=" (write it in the syntax of RE2)`,
			}},
		"too many expressions": {"classifier: {keywords: [{tier: large, name: a, match: [" + expressions(1001) + "]}]}",
			[]string{
				`6:24: classifier.keywords: 1001 expressions are too many (use at most 1000)`,
			}},
		"many expressions": {"classifier: {keywords: [{tier: large, name: a, match: [" + expressions(201) + "]}]}", []string{
			`6:24: warning: classifier.keywords: 201 expressions: a crafted prompt can take several milliseconds to classify (use at most 200)`,
		}},
		"a large expression": {keyword(`, {tier: large, name: b, match: ["law.{1,1000}` + strings.Repeat("x.{1,1000}", 300) +
			`"]}`), []string{
			`6:94: classifier.keywords[1].match[0]: too large: all expressions together have size 602313, and the limit is 300000 (shorten repetitions such as {1,500}, or remove expressions)`,
		}},
		"an expression without a literal": {keyword(", {tier: large, name: b, match: ['x|abc', abd]}"), []string{
			`6:94: warning: classifier.keywords[1].match[0]: has an alternative without a literal of three bytes, which makes it slow on long prompts (give each alternative such a literal)`,
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, problemsOf(t, keys+three+c.section+"\n", nil)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestClassifierRulesApplyToTierNamesWithDots(t *testing.T) {
	src := keys + `tiers: [{name: qwen2.5, model: m, workers: [{name: w, url: "http://h:1"}]}]
classifier: {max_tokens: {qwen2.5: 1}}
`
	want :=
		[]string{`3:36: classifier.max_tokens["qwen2.5"]: has no effect: the default tier "qwen2.5" is not lower (remove it, or lower classifier.default)`}
	if diff := cmp.Diff(want, problemsOf(t, src, nil)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestClassifierRulesNeedTiers(t *testing.T) {
	src := keys + `pools: [{name: a, models: [m], serves: [chat], workers: [{name: w, url: "http://h:1"}]}]
classifier: {max_tokens: {a: 1}}
`
	want := []string{`3:27: classifier.max_tokens.a: no tier has this name (none is defined)`}
	if diff := cmp.Diff(want, problemsOf(t, src, nil)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestEveryFileHasACatalog: each function that makes or copies a file compiles its
// catalog or keeps the compiled one.
func TestEveryFileHasACatalog(t *testing.T) {
	f, err := Parse("f", []byte(keys+three+"classifier: {default: medium}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	must := func(f *File, err error) *File {
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for name, c := range map[string]struct {
		file *File
		want string // the default tier
	}{
		"parsed":         {f, "medium"},
		"of flags":       {must(FromFlags([]string{"m"}, []string{"http://127.0.0.1:1"}, nil, "", "")), "default"},
		"a draft":        {must(f.Draft(t.Context(), []byte(keys+three+"classifier: {default: large}\n"))), "large"},
		"other listen":   {must(f.WithListen("127.0.0.1:1", "")), "medium"},
		"overridden":     {f.WithOverrides(map[string]int{"w": 0}), "medium"},
		"after a reload": {f.KeepRestartOnly(f), "medium"},
	} {
		if got := c.file.Catalog().Default(); got != c.want {
			t.Errorf("%s: the default tier is %q, want %q", name, got, c.want)
		}
	}
}

func TestCatalogHasTheRulesOfItsFile(t *testing.T) {
	f, err := Parse("f", []byte(keys+three+"classifier: {default: medium, preset: lesson, max_tokens: {large: 9}}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if c := f.catalogConfig(); c.Default != "medium" || c.Rules.Preset != "lesson" || c.Rules.MaxTokens["large"] != 9 ||
		c.Rules.PromptTokens != nil {
		t.Errorf("the catalog is made of %+v", c)
	}
}

// expressions returns a YAML list of n words.
func expressions(n int) string {
	words := make([]string, n)
	for i := range words {
		words[i] = fmt.Sprint("word", i)
	}
	return strings.Join(words, ", ")
}
