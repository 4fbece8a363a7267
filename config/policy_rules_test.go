package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"tierway/routing"
)

func TestFirstMatchingRuleSelectsThePolicy(t *testing.T) {
	f := parsed(t, keys+small+`
policy_rules:
  - { model: "gpt-4*", max_tokens: { above: 2000 }, policy: { name: consistent_hash } }
  - { tenant: research, policy: { name: round_robin } }
  - { header: x-team, header_value: search, policy: { name: random } }
  - { header: X-Team, policy: { name: power_of_two } }
  - { stream: true, prompt_tokens: { above: 100, up_to: 200 }, policy: { name: least_latency, fallback: chwbl, epsilon: 0.5 } }
`, nil)
	p := f.ResolvedPools()[0]
	team := func(value string) func(string) string {
		return func(name string) string {
			if name == "X-Team" {
				return value
			}
			return ""
		}
	}
	for name, c := range map[string]struct {
		facts RuleFacts
		want  int
	}{
		"a long answer of the model":      {RuleFacts{Requested: "gpt-4o", MaxTokens: 2001}, 1},
		"as it is sent to the worker":     {RuleFacts{Requested: "x", Model: "gpt-4", MaxTokens: 9000}, 1},
		"not so long":                     {RuleFacts{Requested: "gpt-4o", MaxTokens: 2000}, 0},
		"another model":                   {RuleFacts{Requested: "my-gpt-4", MaxTokens: 9000}, 0},
		"the first rule counts":           {RuleFacts{Requested: "gpt-4", MaxTokens: 9000, Tenant: "research"}, 1},
		"a tenant":                        {RuleFacts{Tenant: "research"}, 2},
		"a header's value":                {RuleFacts{Header: team("search")}, 3},
		"any value":                       {RuleFacts{Header: team("other")}, 4},
		"no value":                        {RuleFacts{Header: team("")}, 0},
		"a stream of the range":           {RuleFacts{Stream: true, PromptTokens: 200}, 5},
		"a stream above the range":        {RuleFacts{Stream: true, PromptTokens: 201}, 0},
		"a stream at the range's start":   {RuleFacts{Stream: true, PromptTokens: 100}, 0},
		"no stream":                       {RuleFacts{PromptTokens: 150}, 0},
		"nothing that any rule asks for ": {RuleFacts{}, 0},
	} {
		if got := p.RuleOf(&c.facts); got != c.want {
			t.Errorf("%s: rule %d, want %d", name, got, c.want)
		}
	}
	if got := p.PolicyOf(5); got.Name != "least_latency" || got.Fallback != "chwbl" || *got.Epsilon != 0.5 {
		t.Errorf("the policy of rule 5 is %+v", got)
	}
	if got := p.PolicyOf(0); got.Name != "kv_aware" {
		t.Errorf("the policy without a rule is %+v", got)
	}
}

func TestPoliciesAndRulesHaveProblems(t *testing.T) {
	rule := func(text string) string { return keys + small + "policy_rules:\n  - " + text + "\n" }
	policy := func(text string) string { return keys + small + "policy: " + text + "\n" }
	const noMode = `policy.mode: missing, so occupancy applies: it prefers the engine with the most keys, whatever the ` +
		`prompt (set mode: prefix_lookup, which looks each prompt up, or mode: occupancy to keep it)`
	for name, c := range map[string]struct{ src, want string }{
		"no policy":          {rule(`{ model: x }`), `policy_rules[0].policy: missing`},
		"no name":            {rule(`{ model: x, policy: {} }`), `policy_rules[0].policy.name: missing (write the name of a policy)`},
		"a value alone":      {rule(`{ header_value: x, policy: { name: random } }`), `header_value: has no effect without header`},
		"a secret header":    {rule(`{ header: authorization, policy: { name: random } }`), `"authorization" contains a secret`},
		"an empty range":     {rule(`{ max_tokens: { above: 9, up_to: 9 }, policy: { name: random } }`), `no number is above 9 and at most 9`},
		"unreachable":        {rule("{ model: x, policy: { name: random } }\n  - { model: x, stream: true, policy: { name: random } }"), `policy_rules[1]: can never match: policy_rules[0] meets all of its requests before`},
		"no key header":      {policy(`{ name: rendezvous_hash, key: header }`), `policy.key_header: missing`},
		"a useless header":   {policy(`{ name: rendezvous_hash, key_header: X-A }`), `policy.key_header: has no effect without key: header`},
		"a useless fallback": {policy(`{ name: consistent_hash, key: model, fallback_key: body }`), `policy.fallback_key: has no effect with key: model`},
		"itself":             {policy(`{ name: cache_aware, fallback: cache_aware }`), `policy.fallback: is the policy itself`},
		"never abstains":     {policy(`{ name: random, fallback: chwbl }`), `policy.fallback: applies only to the policies cache_aware, chwbl, consistent_hash, kv_overlap, least_latency, lmcache_aware, rendezvous_hash, but the policy is random`},
		"of no policy":       {policy(`{ name: cache_aware, fallback: chwbl, key: model }`), `policy.key: applies only to the policies consistent_hash, rendezvous_hash, but the policy is cache_aware`},
		"per request":        {keys + small + "session_keys: [X-Request-ID, user]\n", `session_keys[0]: "X-Request-ID" is different in each request of most clients and proxies`},
		"polls too often":    {policy(`{ name: lmcache_aware, poll_interval: 1ms }`), `policy.poll_interval: 1ms is too short`},
		"a secret URL":       {policy(`{ name: lmcache_aware, controller_url: "http://u:hush@c:9000" }`), `policy.controller_url:`},
		"no URL":             {policy(`{ name: lmcache_aware, controller_url: c:9000 }`), `policy.controller_url:`},
		"no such worker":     {policy(`{ name: lmcache_aware, lmcache_worker_map: { vllm-1: nobody } }`), `policy.lmcache_worker_map.vllm-1: "nobody" is neither the name nor the URL of a worker`},
		"no variable":        {policy(`{ name: lmcache_aware, controller_api_key_env: LMCACHE_KEY }`), `policy.controller_api_key_env: the environment variable LMCACHE_KEY is not set (set it to the controller's key)`},
		"no mode":            {policy(`{ name: lmcache_aware }`), noMode},
		"no mode in a rule":  {rule(`{ model: x, policy: { name: lmcache_aware } }`), `policy_rules[0].` + noMode},
		"no mode, fallback":  {policy(`{ name: kv_overlap, fallback: lmcache_aware }`), noMode},
		"no tokens":          {policy(`{ name: lmcache_aware, lookup_timeout: 9ms }`), `policy.lookup_timeout: has no effect with mode: occupancy`},
		"no weights":         {policy(`{ name: lmcache_aware, mode: prefix_lookup, cache_weight: 0.5 }`), `policy.cache_weight: has no effect with mode: prefix_lookup`},
		"two controllers":    {keys + small + "policy: { name: lmcache_aware }\npolicy_rules:\n  - { stream: true, policy: { name: lmcache_aware, mode: prefix_lookup } }\n", `its policies lmcache_aware have different modes, controllers or maps`},
		"no fallback":        {policy(`{ name: lmcache_aware, mode: prefix_lookup, fallback: random }`), `policy.fallback: has no effect with mode: prefix_lookup`},
		"no such field":      {keys + small + "session_keys: [email]\n", `session_keys[0]: want a header's name with a hyphen`},
	} {
		if got := strings.Join(problemsOf(t, c.src, nil), "\n"); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q lacks %q", name, got, c.want)
		}
	}
}

// TestWordsOfOtherRoutersNameTheirReplacement: config.yaml has one word for each policy, option and section.
func TestWordsOfOtherRoutersNameTheirReplacement(t *testing.T) {
	for src, want := range map[string]string{
		"policy: { name: RoundRobin }":                                "did you mean round_robin?",
		"policy: { name: WeightedRoundRobin }":                        "did you mean weighted_round_robin?",
		"policy: { name: LeastLatency }":                              "did you mean least_latency?",
		"policy: { name: Random }":                                    "did you mean random?",
		"policy: { name: ConsistentHash }":                            "write consistent_hash with key: model",
		"policy: { name: chwbl, fallback: PrefixAwareHash }":          "write chwbl with no_key: model_hash",
		"policy: { name: Geographic }":                                "write region at the workers",
		"policy: { name: Fastest }":                                   "policy.name: want one of",
		"policy: { type: cache_aware }":                               "policy.type: unknown key (write name)",
		"policy: { name: cache_aware, eviction_interval_secs: 60 }":   "unknown key (write eviction_interval with a unit",
		"policy: { name: lmcache_aware, lookup_mode: occupancy }":     "unknown key (write mode)",
		"policy: { name: lmcache_aware, controller_api_key: \"\" }":   "policy.controller_api_key: ",
		"policy: { name: kv_aware, enable_speculative: true }":        "policy.enable_speculative: unknown key (remove it",
		"policy: { name: kv_aware, model_path: x }":                   "write tokenizer",
		"selection_strategy: Random":                                  "unknown key (write policy.name)",
		"prefix_routing: { enabled: true, load_factor_epsilon: 0.5 }": "unknown key (write the keys in policy",
		"dynamic_weight_adjustment: { enabled: true }":                "unknown key (write health_weight)",
		"backends: []": "tierway import continuum converts a whole file",
	} {
		if got := strings.Join(problemsOf(t, keys+small+src+"\n", nil), "\n"); !strings.Contains(got, want) {
			t.Errorf("%s: %q lacks %q", src, got, want)
		}
	}
}

// TestAnEnvironmentVariableReplacesAllPolicies of a file, its tiers and its rules.
func TestAnEnvironmentVariableReplacesAllPolicies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := keys + `
policy: { name: chwbl, epsilon: 0.5 }
policy_rules: [ { stream: true, policy: { name: random } } ]
tiers:
  - { name: small, model: m, policy: { name: kv_aware }, workers: [ { name: a, url: "http://h:1" } ] }
  - { name: large, model: l, workers: [ { name: b, url: "http://h:2" } ] }
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for variable, want := range map[string][2]routing.Config{
		"":            {{Name: "kv_aware"}, {Name: "chwbl", Epsilon: new(0.5)}},
		"round_robin": {{Name: "round_robin"}, {Name: "round_robin"}},
		"chwbl":       {{Name: "chwbl"}, {Name: "chwbl", Epsilon: new(0.5)}},
	} {
		f, err := Load(path, environment(map[string]string{PolicyVariable: variable}))
		if err != nil {
			t.Fatal(err)
		}
		pools := f.ResolvedPools()
		for i := range pools {
			if !reflect.DeepEqual(pools[i].Policy, want[i]) || len(pools[i].Rules) != map[bool]int{true: 1}[variable == ""] {
				t.Errorf("%q: tier %d has %+v and %d rules, want %+v", variable, i, pools[i].Policy, len(pools[i].Rules), want[i])
			}
		}
	}
	if _, err := Load(path, environment(map[string]string{PolicyVariable: "rond_robin"})); err == nil ||
		!strings.Contains(err.Error(), `TIERWAY_POLICY or --policy: unknown policy "rond_robin": did you mean round_robin?`) {
		t.Errorf("a mistyped policy: %v", err)
	}
}
