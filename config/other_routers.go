package config

import (
	"reflect"
	"slices"
	"strings"

	"tierway/routing"
)

// policyHints has what to write in place of other routers' names of policies and of options of a policy. Names within
// two edits of a name of this file need no entry.
var policyHints = map[string]string{
	"ConsistentHash":     "write consistent_hash with key: model",
	"PrefixAwareHash":    "write chwbl with no_key: model_hash",
	"KvOverlapScorer":    "write kv_overlap with fallback: chwbl",
	"least_conn":         "write least_load",
	"consistent_hashing": "write consistent_hash",
	"prefix_hash":        "write chwbl",
	"Custom":             "write policy_rules with the conditions and policies",
	"Geographic":         "every policy prefers the nearest region: write region at the workers, and at the gateway or in regions.header",
	"prefill_decode":     "write handover at the tier or pool, and role: prefill or role: decode at its workers",

	"strategy":               "write name",
	"type":                   "write name",
	"fallback_strategy":      "write fallback",
	"fallback_policy":        "write fallback",
	"load_factor_epsilon":    "write epsilon",
	"eviction_interval_secs": "write eviction_interval with a unit, such as 30s",
	"lookup_timeout_ms":      "write lookup_timeout with a unit, such as 200ms",
	"lookup_mode":            "write mode",
	"poll_interval_secs":     "write poll_interval with a unit, such as 10s",
	"controller_timeout_ms":  "write controller_timeout with a unit, such as 2s",
	"controller_api_key":     "set it in an environment variable and name the variable in controller_api_key_env",
	"block_size":             "remove it: the events of the engines state the block size",
	"enable_speculative":     "remove it: prompts count as cached where they are sent, until the events confirm it",
	"speculative_ttl_ms":     "remove it: an entry ends when the events confirm it, or when the attempt fails",
	"model_path":             "write tokenizer with the path of a tokenizer.json; without it, the engines tokenize",
	"kv_events":              "write kv_events beside policy, not in it",
	"model_overrides":        "write policy_rules with model and policy",
	"rules":                  "write policy_rules beside policy, not in it",
}

// sectionHints has what to write in place of other routers' sections, and of keys that the file has elsewhere.
var sectionHints = map[string]string{
	"routing":                     "write policy and policy_rules",
	"selection_strategy":          "write policy.name",
	"prefix_routing":              "write the keys in policy: load_factor_epsilon is epsilon",
	"model_overrides":             "write policy_rules with model and policy",
	"fallback_strategy":           "write policy.fallback",
	"dynamic_weight_adjustment":   "write health_weight",
	"geographic_routing":          "write region at the workers and the gateway, and regions",
	"health_checks":               "write health",
	"handover":                    "write it at a tier or pool",
	"prefill_policy":              "write it at a tier or pool with handover",
	"decode_policy":               "write policy at the tier or pool: it is the decode stage's",
	"pd_uncached_token_threshold": "write uncached_threshold at a tier or pool with handover",
	"backends":                    "write tiers or pools with workers; tierway import continuum converts a whole file",
	"mode":                        "write tiers or pools with workers; tierway import vllm-router converts a whole file",
}

// PolicyHint returns what to write in place of another router's name of a policy or of an option of a policy; empty if
// it is not known.
func PolicyHint(word string) string { return policyHints[word] }

// PolicyHasOption reports whether the policy of that name has an option.
func PolicyHasOption(name, option string) bool {
	k := sections[reflect.TypeFor[routing.Config]()].keys[option]
	return slices.Contains(strings.Split(k.policy, ","), name)
}
