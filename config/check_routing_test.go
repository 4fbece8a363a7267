package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/breaker"
	"tierway/routing"
	"tierway/tiers"
)

// three is a configuration of three valid tiers.
const three = `tiers:
  - {name: small, model: s, workers: [{name: ws, url: "http://h:1"}]}
  - {name: medium, model: m, workers: [{name: wm, url: "http://h:2"}]}
  - {name: large, model: l, workers: [{name: wl, url: "http://h:3"}]}
`

func TestRoutingKeysAreAccepted(t *testing.T) {
	src := keys +
		`policy: { name: chwbl, epsilon: 0.25, slack: 2, virtual_nodes: 150, max_prefix_length: 0, no_key: least_load, depth: adaptive }
tiers:
  - name: small
    model: qwen2.5-7b-instruct
    context: 32768
    policy: { name: chwbl, epsilon: 0, slack: 0, virtual_nodes: 1, max_prefix_length: 4096, no_key: model_hash, depth: fixed }
    workers:
      - { name: small-0, url: "http://vllm-small-0:8000", weight: 1, max_inflight: 64, api_key_env: "", priority: 0 }
      - { name: small-1, url: "unix:///run/vllm-1.sock", priority: 7, models: [qwen2.5-7b-instruct] }
  - { name: medium, model: m, policy: { name: power_of_two }, workers: [{ name: medium-0, url: "http://m:1" }] }
  - { name: large, model: l, context: 131072, policy: { name: weighted_round_robin }, workers: [{ name: large-0, url: "http://l:1" }] }
pools:
  - { name: embed, serves: [embeddings], models: [bge-m3, bge-l], context: 8192, policy: { name: random },
      workers: [{ name: e0, url: "http://e:1", models: [bge-m3] }, { name: e1, url: "http://e:2", models: [bge-m3, bge-l] }] }
models: { auto: classify, "gpt-4o-mini": small, "gpt-4*": large }
classifier:
  mode: max
  prompt_tokens: { medium: 4000, large: 16000 }
  max_tokens:    { medium: 500,  large: 2000 }
  preset: groups
  keywords:
    - { tier: large, name: reasoning, weight: 1, in: [user], match: ['step.by.step', '\bprove\b'] }
    - { tier: large, name: prompts, weight: 0.5, in: [user, system], match: ['careful reasoning'] }
  keyword_score: { large: 1 }
  default: small
  sticky: { enabled: true, idle: 30m }
  unavailable: up
breaker: { consecutive_failures: 5, failure_ratio: 0.5, min_requests: 20, window: 30s, open_for: 60s, probes: 1, probe_timeout: 10s,
           slow: { factor: 3, min_samples: 20, p95_above: 0s } }
`
	f, err := Parse("f", []byte(src), nil)
	if err != nil {
		t.Fatal(err)
	}
	if faults := schemaFaults(t, []byte(src)); len(faults) > 0 {
		t.Errorf("the schema refuses it: %v", faults)
	}
	pools := f.ResolvedPools()
	if p := pools[0]; p.Context != 32768 || *p.Policy.Epsilon != 0 || p.Policy.VirtualNodes != 1 ||
		p.Workers[1].Priority != 7 {
		t.Errorf("small is %+v", p)
	}
	if p := pools[3]; p.Context != 8192 || p.Policy.Name != "random" || len(p.Workers[1].Models) != 2 {
		t.Errorf("embed is %+v", p)
	}
	pools[3].Workers[1].Models[0] = "changed"
	if f.Pools[0].Workers[1].Models[0] != "bge-m3" {
		t.Error("the resolved models are not the caller's own")
	}
	if c := f.Classifier; c.PromptTokens["large"] != 16000 || c.MaxTokens["medium"] != 500 ||
		c.KeywordScore["large"] != 1 ||
		c.Keywords[1].Weight != 0.5 || c.Keywords[0].Match[1] != `\bprove\b` || !*c.Sticky.Enabled {
		t.Errorf("the classifier is %+v", c)
	}
}

func TestRoutingEnumValuesAreAccepted(t *testing.T) {
	for _, section := range []string{
		"classifier: {mode: first_match, preset: lesson, unavailable: down}",
		"classifier: {preset: none, unavailable: refuse, sticky: {enabled: false}}",
		"classifier: {prompt_tokens: {}, max_tokens: {}, keyword_score: {}}",
		"classifier: {prompt_tokens: {large: 0}, max_tokens: ~}",
		"breaker: {slow: {factor: 0}}",
		"breaker: {failure_ratio: 1, probes: 10, slow: {factor: 1.5, min_samples: 5, p95_above: 2s}}",
		"policy: {name: chwbl, epsilon: 1, depth: fixed}", "policy: {name: random}", "policy: {}",
	} {
		if got := problemsOf(t, keys+three+section+"\n", nil); len(got) > 0 {
			t.Errorf("%s: %s", section, got)
		}
	}
}

func TestAbsentRoutingKeysHaveDefaults(t *testing.T) {
	f, err := Parse("f", []byte(keys+three), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantBreaker := breaker.Config{ConsecutiveFailures: 5, FailureRatio: 0.5, MinRequests: 20, Window: 30 * time.Second,
		OpenFor: time.Minute,
		Probes:  1, ProbeTimeout: 10 * time.Second, Slow: breaker.Slow{Factor: 3, MinSamples: 20}}
	if diff := cmp.Diff(wantBreaker, f.Breaker); diff != "" {
		t.Errorf("breaker: -want +got:\n%s", diff)
	}
	wantRules := tiers.Rules{Mode: "max", Unavailable: "up",
		Sticky: tiers.Sticky{Enabled: new(true), Idle: 30 * time.Minute}}
	if diff := cmp.Diff(wantRules, f.Classifier); diff != "" {
		t.Errorf("classifier: -want +got:\n%s", diff)
	}
	for _, p := range f.ResolvedPools() {
		if diff := cmp.Diff(routing.Config{Name: "kv_aware"}, p.Policy); diff != "" || p.Context != 0 {
			t.Errorf("%s: context %d, policy -want +got:\n%s", p.Name, p.Context, diff)
		}
	}
}

func TestTierPolicyReplacesTheFilesPolicyAsAWhole(t *testing.T) {
	f, err := Parse("f", []byte(keys+`policy: {name: chwbl, epsilon: 0.5}
tiers:
  - {name: a, model: m, workers: [{name: w0, url: "http://h:1"}]}
  - {name: b, model: n, policy: {name: chwbl, slack: 3}, workers: [{name: w1, url: "http://h:2"}]}
  - {name: c, model: o, policy: {}, workers: [{name: w2, url: "http://h:3"}]}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := f.ResolvedPools()
	file := routing.Config{Name: "chwbl", Epsilon: new(0.5)}
	if diff := cmp.Diff([]routing.Config{file, {Name: "chwbl", Slack: new(3.0)}, file},
		[]routing.Config{p[0].Policy, p[1].Policy, p[2].Policy}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	*p[0].Policy.Epsilon = 9
	if *p[2].Policy.Epsilon != 0.5 || *f.Policy.Epsilon != 0.5 {
		t.Error("the resolved policy is not the caller's own")
	}
}

func TestRoutingKeysAreChecked(t *testing.T) {
	cases := map[string]struct{ section, want string }{
		"a policy's option beside another policy": {"policy: {name: round_robin, epsilon: 0.5}",
			`6:38: policy.epsilon: applies only to the policy chwbl, but the policy is round_robin (remove the key, or write name: chwbl)`},
		"an option of a mistyped policy": {"policy: {name: chwlb, epsilon: 0.5}", `6:16: policy.name: want one of ` +
			policies + `, got "chwlb" (did you mean chwbl?)`},
		"a mistyped option": {"policy: {epsilom: 0.5}",
			`6:10: policy.epsilom: unknown key (did you mean epsilon?)`},
		"an option below 0": {"policy: {epsilon: -0.1}",
			`6:19: policy.epsilon: want a number of 0 or more, got "-0.1"`},
		"an option that is no number": {"policy: {slack: NaN}",
			`6:17: policy.slack: want a number of 0 or more, got "NaN"`},
		"an option without a value": {"policy: {slack: }",
			`6:17: policy.slack: the key has no value (remove the key to use the default)`},
		"no points on the ring": {"policy: {virtual_nodes: 0}",
			`6:25: policy.virtual_nodes: want an integer from 1 to 1000, got "0"`},
		"a prefix below 0": {"policy: {max_prefix_length: -1}",
			`6:29: policy.max_prefix_length: want an integer of 0 or more, got "-1"`},
		"a prefix beyond all bounds": {"policy: {max_prefix_length: 3000000000}",
			`6:29: policy.max_prefix_length: want an integer of 0 or more, got "3000000000" (the maximum is 2147483647)`},
		"another policy as no_key": {"policy: {no_key: random}",
			`6:18: policy.no_key: want one of least_load, model_hash, got "random"`},
		"no time for tokens": {"policy: {name: kv_aware, lookup_timeout: 0s}",
			`6:42: policy.lookup_timeout: want a duration above 0, got "0s"`},
		"a tokenizer beside another policy": {"policy: {name: chwbl, lookup_timeout: 5ms}",
			`6:39: policy.lookup_timeout: applies only to the policies kv_aware, kv_overlap, lmcache_aware, but the policy is chwbl (remove the key, or write name: kv_aware)`},
		"a tokenizer that is missing": {"policy: {name: kv_aware, tokenizer: none.json}",
			`6:37: policy.tokenizer: cannot use "none.json": no such file or directory (name the tokenizer.json of the model, relative to the working directory of the process; without the key, the engines tokenize)`},
		"a tokenizer that is none": {"policy: {name: kv_aware, tokenizer: check_routing_test.go}",
			`6:37: policy.tokenizer: cannot use "check_routing_test.go": no tokenizer.json: invalid character 'p' looking for beginning of value (name the tokenizer.json of the model, relative to the working directory of the process; without the key, the engines tokenize)`},
		"a mistyped depth": {"policy: {depth: fixd}",
			`6:17: policy.depth: want one of adaptive, fixed, got "fixd" (did you mean fixed?)`},

		"no failures": {"breaker: {consecutive_failures: 0}",
			`6:33: breaker.consecutive_failures: want an integer from 1 to 1000, got "0"`},
		"a ratio of 0": {"breaker: {failure_ratio: 0}",
			`6:26: breaker.failure_ratio: want a number above 0, up to 1, got "0"`},
		"a ratio above 1": {"breaker: {failure_ratio: 50}",
			`6:26: breaker.failure_ratio: want a number above 0, up to 1, got "50"`},
		"no requests": {"breaker: {min_requests: 0}",
			`6:25: breaker.min_requests: want an integer of 1 or more, got "0"`},
		"no window": {"breaker: {window: 0s}", `6:19: breaker.window: want a duration above 0, got "0s"`},
		"open for no time": {"breaker: {open_for: 60}",
			`6:21: breaker.open_for: want a duration above 0, got "60" (add a unit, such as 5s)`},
		"too many probes": {"breaker: {probes: 11}", `6:19: breaker.probes: want an integer from 1 to 10, got "11"`},
		"no time for a probe": {"breaker: {probe_timeout: -1s}",
			`6:26: breaker.probe_timeout: want a duration above 0, got "-1s"`},
		"slow as the peers": {"breaker: {slow: {factor: 1}}",
			`6:26: breaker.slow.factor: 1 would eject workers that are as fast as their peers (set 0 to turn the check off, or a factor above 1, such as 3)`},
		"faster than the peers": {"breaker: {slow: {factor: -2}}",
			`6:26: breaker.slow.factor: want a number from 0 to 1000, got "-2"`},
		"too few samples": {"breaker: {slow: {min_samples: 4}}",
			`6:31: breaker.slow.min_samples: want an integer from 5 to 64, got "4"`},
		"a mistyped key": {"breaker: {prob_timeout: 1s}",
			`6:11: breaker.prob_timeout: unknown key (did you mean probe_timeout?)`},

		"another mode": {"classifier: {mode: first}",
			`6:20: classifier.mode: want one of max, first_match, got "first"`},
		"a mistyped preset": {"classifier: {preset: group}",
			`6:22: classifier.preset: want one of graded, groups, lesson, none, got "group" (did you mean groups?)`},
		"another way out": {"classifier: {unavailable: sideways}",
			`6:27: classifier.unavailable: want one of up, down, refuse, got "sideways"`},
		"no memory of chats": {"classifier: {sticky: {idle: 0s}}",
			`6:29: classifier.sticky.idle: want a duration above 0, got "0s"`},
		"no truth": {"classifier: {sticky: {enabled: 1}}",
			`6:32: classifier.sticky.enabled: want true or false, got "1" (write true or false)`},
		"a threshold below 0": {"classifier: {prompt_tokens: {large: -1}}",
			`6:37: classifier.prompt_tokens.large: want an integer of 0 or more, got "-1"`},
		"a threshold with a unit": {"classifier: {max_tokens: {large: 2k}}",
			`6:34: classifier.max_tokens.large: want an integer of 0 or more, got "2k"`},
		"a threshold in quotes": {"classifier: {max_tokens: {large: '2'}}",
			`6:34: classifier.max_tokens.large: want an integer of 0 or more, got "2" (remove the quotes)`},
		"a threshold without number": {"classifier: {max_tokens: {large: }}",
			`6:34: classifier.max_tokens.large: the key has no value (remove the key to use the default)`},
		"one threshold for all": {"classifier: {max_tokens: 500}",
			`6:26: classifier.max_tokens: want a section of keys, got a single value`},
		"a tier twice": {"classifier: {max_tokens: {large: 1, large: 2}}",
			`6:37: classifier.max_tokens.large: the key appears twice, first in line 6 (remove one of them)`},
		"a score of 0": {"classifier: {keyword_score: {large: 0}}",
			`6:37: classifier.keyword_score.large: want a number above 0, got "0"`},
		"keywords that are no list": {"classifier: {keywords: {tier: large}}",
			`6:24: classifier.keywords: want a list, got a section of keys (write [ … ], or one item per line after a hyphen)`},
		"a keyword without tier": {"classifier: {keywords: [{name: a, match: [abc]}]}",
			`6:25: classifier.keywords[0].tier: missing (add tier: tier that the group selects)`},
		"a keyword without name": {"classifier: {keywords: [{tier: large, match: [abc]}]}",
			`6:25: classifier.keywords[0].name: missing (add name: name of the group)`},
		"a name for no header": {"classifier: {keywords: [{tier: large, name: Ä, match: [abc]}]}",
			`6:45: classifier.keywords[0].name: want a name of up to 63 lower-case letters, digits, dots, underscores and hyphens that starts with a letter or digit, got "Ä"`},
		"a weight of 0": {"classifier: {keywords: [{tier: large, name: a, weight: 0, match: [abc]}]}",
			`6:56: classifier.keywords[0].weight: want a number above 0, got "0"`},
		"another place": {"classifier: {keywords: [{tier: large, name: a, in: [users], match: [abc]}]}",
			`6:53: classifier.keywords[0].in[0]: want one of user, system, got "users" (did you mean user?)`},
		"no place": {"classifier: {keywords: [{tier: large, name: a, in: [], match: [abc]}]}",
			`6:52: classifier.keywords[0].in: the list is empty (list user, system or both, or remove the key for the default, user)`},
		"a place twice": {"classifier: {keywords: [{tier: large, name: a, in: [user, user], match: [abc]}]}",
			`6:59: classifier.keywords[0].in[1]: "user" is listed twice (remove one of them)`},
		"nothing to match": {"classifier: {keywords: [{tier: large, name: a, match: []}]}",
			`6:55: classifier.keywords[0].match: the list is empty (regular expressions in RE2 syntax; case is ignored)`},
		"an empty expression": {"classifier: {keywords: [{tier: large, name: a, match: ['']}]}",
			`6:56: classifier.keywords[0].match[0]: want a string, got "" (regular expressions in RE2 syntax; case is ignored)`},
		"a text instead of a list": {"classifier: {keywords: [{tier: large, name: a, match: abc}]}",
			`6:55: classifier.keywords[0].match: want a list, got a single value (write [ … ], or one item per line after a hyphen)`},
		"a variable that is not set": {"classifier: {prompt_tokens: {large: '${N}'}}",
			`6:37: classifier.prompt_tokens.large: the environment variable N is not set (set it, or write ${N:-default})`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff([]string{c.want}, problemsOf(t, keys+three+c.section+"\n", nil)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestRoutingKeysOfTiersAndPoolsAreChecked(t *testing.T) {
	worker := func(n int, more string) string { return fmt.Sprintf(`{name: w%d, url: "http://h:%d"%s}`, n, n, more) }
	cases := map[string]struct {
		src  string
		want []string
	}{
		"options without a policy": {`tiers: [{name: a, model: m, policy: {epsilon: 1, depth: fixed}, workers: [` +
			worker(1, "") + `]}]`, []string{
			`2:29: tiers[0].policy.name: missing, but epsilon is set (write name: chwbl; this section replaces the file's policy as a whole)`,
		}},
		"options beside another policy": {`pools: [{name: a, models: [m], serves: [chat], policy: {name: random, slack: 1}, workers: [` + worker(1, "") + `]}]`, []string{
			`2:78: pools[0].policy.slack: applies only to the policy chwbl, but the policy is random (remove the key, or write name: chwbl)`,
		}},
		"a long look-up": {`tiers: [{name: a, model: m, policy: {name: kv_aware, lookup_timeout: 2s}, workers: [` +
			worker(1, "") + `]}]`, []string{
			`2:70: warning: tiers[0].policy.lookup_timeout: 2s: a request with a new prompt can wait that long before a worker is selected (use at most 250ms; the default is 20ms, or 100ms while all workers are busy)`,
		}},
		"contexts": {`tiers:
  - {name: a, model: m, context: -1, workers: [` + worker(1, "") + `]}
  - {name: b, model: n, context: 32k, workers: [` + worker(2, "") + `]}
`, []string{
			`3:34: tiers[0].context: want an integer of 0 or more, got "-1"`,
			`4:34: tiers[1].context: want an integer of 0 or more, got "32k"`,
		}},
		"a context that falls": {`tiers:
  - {name: a, model: m, context: 32768, workers: [` + worker(1, "") + `]}
  - {name: b, model: n, workers: [` + worker(2, "") + `]}
  - {name: c, model: o, context: 16384, workers: [` + worker(3, "") + `]}
  - {name: d, model: p, context: 32768, workers: [` + worker(4, "") + `]}
`, []string{
			`5:34: warning: tiers[2].context: 16384 is less than the 32768 of tiers[0], so a prompt that is too long for "a" cannot move up to this tier (raise it to at least 32768, or move this tier before tiers[0])`,
		}},
		"priorities": {`tiers: [{name: a, model: m, workers: [` + worker(1, ", priority: -1") + `, ` +
			worker(2, ", priority: high") + `]}]`, []string{
			`2:79: tiers[0].workers[0].priority: want an integer of 0 or more, got "-1"`,
			`2:124: tiers[0].workers[1].priority: want an integer of 0 or more, got "high"`,
		}},
		"models that are not the pool's": {`pools:
  - {name: a, model: base, models: [sql, chat-de], serves: [chat], workers: [` + worker(1, ", models: [base, sqll, sql, sql]") + `, ` + worker(2, ", models: []") + `]}
`, []string{
			`3:123: pools[0].workers[0].models[1]: "sqll" is not a model of its pool (did you mean sql?)`,
			`3:134: pools[0].workers[0].models[3]: "sql" is listed twice (remove one of them)`,
			`3:179: pools[0].workers[1].models: the list is empty (list models of its pool, or remove the key to serve all of them)`,
		}},
		"a model that is not the tier's": {`tiers: [{name: a, model: m, workers: [` + worker(1, ", models: [a, m]") + `]}]`,
			[]string{
				`2:78: tiers[0].workers[0].models[0]: "a" is not a model of its tier (add it to tiers[0].models, by which clients request it, or remove it here)`,
			}},
		"models that no worker serves": {`pools:
  - {name: a, model: base, models: [sql, de], serves: [chat], workers: [` + worker(1, ", models: [sql]") + `, ` + worker(2, ", models: [sql]") + `]}
`, []string{
			`3:22: pools[0].model: no worker serves "base" (add it to the models of a worker, or remove it here)`,
			`3:42: pools[0].models[1]: no worker serves "de" (add it to the models of a worker, or remove it here)`,
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, problemsOf(t, keys+strings.TrimSuffix(c.src, "\n")+"\n", nil)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAbsentAndEmptyMapsArePrintedDifferently(t *testing.T) {
	for section, want := range map[string]map[string]int64{
		"": nil, "classifier: {max_tokens: ~}": nil, "classifier: {max_tokens: {}}": {},
		"classifier: {max_tokens: {large: 0, medium: 7}}": {"large": 0, "medium": 7},
	} {
		f, d := decode("f", []byte(section), nil)
		again, e := decode("f", printed(f), nil)
		if len(d.problems)+len(e.problems) > 0 {
			t.Errorf("%s: %v %v", section, d.problems, e.problems)
		}
		if diff := cmp.Diff([]map[string]int64{want, want},
			[]map[string]int64{f.Classifier.MaxTokens, again.Classifier.MaxTokens}); diff != "" {
			t.Errorf("%s: -want +got:\n%s", section, diff)
		}
	}
}

// TestAdaptersAreModelsOfATier: a tier lists the LoRA adapters of its workers, and a worker those that it has loaded.
func TestAdaptersAreModelsOfATier(t *testing.T) {
	const tier = "auth: { required: false }\ntiers:\n  - { name: small, model: base, %sworkers: [" +
		`{ name: w0, url: "http://h:1", models: [base, sql-lora] }, { name: w1, url: "http://h:2" }] }` + "\n"
	f, err := Parse("f", []byte(fmt.Sprintf(tier, "models: [sql-lora], ")), nil)
	if err != nil {
		t.Fatal(err)
	}
	if p := f.ResolvedPools()[0]; !slices.Equal(p.Models, []string{"base", "sql-lora"}) {
		t.Errorf("the tier serves %q", p.Models)
	}
	_, err = Parse("f", []byte(fmt.Sprintf(tier, "")), nil)
	if want := `tiers[0].workers[0].models[1]: "sql-lora" is not a model of its tier (add it to tiers[0].models, by ` +
		`which clients request it, or remove it here)`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, not %s", err, want)
	}
}
