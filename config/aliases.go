package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"tierway/routing"
)

// alias is another router's word for something of this file.
type alias struct {
	name    string      // the word of this file; empty: none
	options [][2]string // keys that come with a policy's name, unless they are written
	instead string      // what to write, if there is no such word
	unit    string      // appended to a number
}

// policyAliases are the names of strategies in vLLM Router, its fork and Continuum Router that differ from those of
// this file.
var policyAliases = map[string]alias{
	"RoundRobin":         {name: "round_robin"},
	"WeightedRoundRobin": {name: "weighted_round_robin"},
	"LeastLatency":       {name: "least_latency"},
	"Random":             {name: "random"},
	"ConsistentHash":     {name: "consistent_hash", options: [][2]string{{"key", "model"}}},
	"PrefixAwareHash":    {name: "chwbl", options: [][2]string{{"no_key", "model_hash"}}},
	"KvOverlapScorer":    {name: "kv_overlap", options: [][2]string{{"fallback", "chwbl"}}},
	"least_conn":         {name: "least_load"},
	"consistent_hashing": {name: "consistent_hash"},
	"prefix_hash":        {name: "chwbl"},
	"Custom":             {instead: "write policy_rules with the conditions and policies"},
	"Geographic":         {instead: "every policy prefers the nearest region: write region at the workers, and at the gateway or in regions.header"},
	"prefill_decode":     {instead: "write handover at the tier or pool, and role: prefill or role: decode at its workers"},
}

// policyKeyAliases are other routers' names of options.
var policyKeyAliases = map[string]alias{
	"strategy":               {name: "name"},
	"type":                   {name: "name"},
	"fallback_strategy":      {name: "fallback"},
	"load_factor_epsilon":    {name: "epsilon"},
	"eviction_interval_secs": {name: "eviction_interval", unit: "s"},
	"lookup_timeout_ms":      {name: "lookup_timeout", unit: "ms"},
	"fallback_policy":        {name: "fallback"},
	"lookup_mode":            {name: "mode"},
	"poll_interval_secs":     {name: "poll_interval", unit: "s"},
	"controller_timeout_ms":  {name: "controller_timeout", unit: "ms"},
	"controller_api_key":     {instead: "set it in an environment variable and name the variable in controller_api_key_env"},
	"block_size":             {instead: "remove it: the events of the engines state the block size"},
	"enable_speculative":     {instead: "remove it: prompts count as cached where they are sent, until the events confirm it"},
	"speculative_ttl_ms":     {instead: "remove it: an entry ends when the events confirm it, or when the attempt fails"},
	"model_path":             {instead: "write tokenizer with the path of a tokenizer.json; without it, the engines tokenize"},
	"kv_events":              {instead: "write kv_events beside policy, not in it"},
	"model_overrides":        {instead: "write policy_rules with model and policy"},
	"rules":                  {instead: "write policy_rules beside policy, not in it"},
}

// sectionAliases are sections of other routers, and keys that the file has elsewhere.
var sectionAliases = map[string]string{
	"routing":                     "write policy and policy_rules",
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

// policy returns the policy that another router's name stands for, with the options that belong to it.
func (a alias) policy() routing.Config {
	c := routing.Config{Name: a.name}
	for _, o := range a.options {
		k := sections[reflect.TypeFor[routing.Config]()].keys[o[0]]
		reflect.ValueOf(&c).Elem().Field(k.field).SetString(o[1])
	}
	return c
}

// readAliases replaces the words of other routers in the document's root.
func (d *decoder) readAliases(root *yaml.Node) {
	if root.Kind != yaml.MappingNode {
		return
	}
	policy := valueIn(root, "policy")
	var added []*yaml.Node
	root.Content = slices.Clone(root.Content)
	for i := 0; i+1 < len(root.Content); {
		kn, vn := root.Content[i], root.Content[i+1]
		switch {
		case kn.Value == "selection_strategy" && vn.Kind == yaml.ScalarNode:
			added = append(added, named(kn, "name"), vn)
		case kn.Value == "prefix_routing" && vn.Kind == yaml.MappingNode:
			added = append(added, d.prefixRouting(vn)...)
		default:
			i += 2
			continue
		}
		if policy != nil {
			d.reportNode(kn, kn.Value, "policy is set too", "write all of it in policy")
		}
		root.Content = slices.Delete(root.Content, i, i+2)
	}
	if len(added) > 0 && policy == nil {
		key := *added[0]
		key.Value = "policy"
		root.Content = append(root.Content, &key, &yaml.Node{Kind: yaml.MappingNode, Line: key.Line, Column: key.Column,
			Content: added})
	}
}

// prefixRouting returns the keys of Continuum's section as keys of the policy.
func (d *decoder) prefixRouting(section *yaml.Node) (added []*yaml.Node) {
	for i := 0; i+1 < len(section.Content); i += 2 {
		kn, vn := section.Content[i], section.Content[i+1]
		switch kn.Value {
		case "enabled":
			if vn.Value != "true" {
				d.reportNode(vn, "prefix_routing.enabled", "want true, got "+quote(vn.Value), "remove the section")
			}
		case "anthropic_cache_control_injection":
			d.reportNode(kn, "prefix_routing."+kn.Value, "is a key of tiers and pools", "write inject_cache_control there")
		default:
			added = append(added, kn, vn)
		}
	}
	return added
}

// readPolicyAliases replaces other routers' words in a policy section. It does not change n.
func (d *decoder) readPolicyAliases(n *yaml.Node, path string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return n
	}
	out := *n
	out.Content = slices.Clone(n.Content)
	for i := 0; i+1 < len(out.Content); i += 2 {
		kn, vn := out.Content[i], out.Content[i+1]
		a, known := policyKeyAliases[kn.Value]
		switch {
		case known && a.instead != "":
			d.reportNode(kn, join(path, kn.Value), "is not a key of a policy", a.instead)
			out.Content[i], out.Content[i+1] = nil, nil
			continue
		case known:
			out.Content[i] = named(kn, a.name)
			if a.unit != "" && vn.Kind == yaml.ScalarNode {
				with := *vn
				with.Value += a.unit
				out.Content[i+1] = &with
			}
		}
		if key := out.Content[i].Value; key == "name" || key == "fallback" {
			d.readPolicyName(&out, i+1, join(path, key))
		}
	}
	out.Content = slices.DeleteFunc(out.Content, func(n *yaml.Node) bool { return n == nil })
	return &out
}

// readPolicyName replaces another router's name of a strategy, the value at that index.
func (d *decoder) readPolicyName(section *yaml.Node, at int, path string) {
	vn := section.Content[at]
	a, known := policyAliases[vn.Value]
	switch {
	case !known:
	case a.name == "":
		d.reportNode(vn, path, fmt.Sprintf("there is no policy %s", quote(vn.Value)), a.instead)
		section.Content[at-1], section.Content[at] = nil, nil
	default:
		section.Content[at] = named(vn, a.name)
		for _, o := range a.options {
			if valueIn(section, o[0]) == nil && !(strings.HasSuffix(path, ".fallback") && hasOption(valueIn(section, "name"),
				o[0])) {
				section.Content = append(section.Content, named(vn, o[0]), named(vn, o[1]))
			}
		}
	}
}

// hasOption reports whether the policy of that name has the option.
func hasOption(name *yaml.Node, option string) bool {
	k := sections[reflect.TypeFor[routing.Config]()].keys[option]
	return name != nil && slices.Contains(strings.Split(k.policy, ","), name.Value)
}

// named returns a copy of a scalar with another text.
func named(n *yaml.Node, text string) *yaml.Node {
	c := *n
	c.Value = text
	return &c
}

// valueIn returns the value of a key; nil without one.
func valueIn(section *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(section.Content); i += 2 {
		if kn := section.Content[i]; kn != nil && kn.Value == key {
			return section.Content[i+1]
		}
	}
	return nil
}

// PolicyWord returns the policy that another router calls word, or one of this file by its own name, with
// the options that come with it. Without such a policy, name is empty and instead states what to write,
// if that is known.
func PolicyWord(word string) (name string, options [][2]string, instead string) {
	if a, known := policyAliases[word]; known {
		return a.name, a.options, a.instead
	}
	if slices.Contains(routing.Names(), word) {
		return word, nil, ""
	}
	return "", nil, ""
}

// PolicyHasOption reports whether the policy of that name in this file has an option.
func PolicyHasOption(name, option string) bool { return hasOption(&yaml.Node{Value: name}, option) }

// PolicyKeyInstead returns what to write in place of another router's option; empty if it is not known.
func PolicyKeyInstead(key string) string { return policyKeyAliases[key].instead }
