package imports

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tierway/config"
	"tierway/routing"
)

type rule func(d *builder, s setting)

func keysOf(table map[string]rule) (keys []string) {
	for key := range table {
		keys = append(keys, key)
	}
	return keys
}

// to returns the rule that copies a single value. unit is appended to a number.
func to(path, unit, comment string) rule {
	return func(d *builder, s setting) {
		text, ok := s.text()
		switch {
		case !ok:
			d.leave(s, "it is a list or section; write "+d.base+path+" with one value")
		case unit != "":
			d.set(path, text+unit, s, comment)
		default:
			d.set(path, s.node, s, comment)
		}
	}
}

// toAll returns the rule that copies a single value to several keys.
func toAll(unit string, paths ...string) rule {
	return func(d *builder, s setting) {
		for _, path := range paths {
			to(path, unit, "")(d, s)
		}
	}
}

// toList returns the rule that copies a list.
func toList(path string) rule {
	return func(d *builder, s setting) { d.set(path, s.texts(), s, "") }
}

// keep returns the rule that keeps a setting for a later step.
func keep(name string) rule {
	return func(d *builder, s setting) { d.kept[name] = s }
}

func out(reason string) rule {
	return func(d *builder, s setting) {
		if text, _ := s.text(); text != "false" {
			d.leave(s, reason)
		}
	}
}

func outIfOff(reason string) rule {
	return func(d *builder, s setting) {
		if text, _ := s.text(); text == "false" {
			d.leave(s, reason)
		}
	}
}

// setIf returns the rule that writes a value if a switch has that state.
func setIf(state, path string, value any, comment string) rule {
	return func(d *builder, s setting) {
		if text, _ := s.text(); text == state {
			d.set(path, value, s, comment)
		}
	}
}

// attempts returns the rule for retries; first is 1 if the number leaves the first attempt out.
func attempts(first int) rule {
	const maxAttempts = 5 // retry.attempts
	return func(d *builder, s setting) {
		text, _ := s.text()
		n, err := strconv.Atoi(text)
		if err != nil {
			d.leave(s, "want a number; write retry.attempts")
			return
		}
		comment := "with the first attempt; a retry goes to another worker, and retry.budget limits all retries"
		if n+first > maxAttempts {
			comment = fmt.Sprintf("at most %d; ", maxAttempts) + comment
		}
		d.set("retry.attempts", min(max(n+first, 1), maxAttempts), s, comment)
	}
}

// strategies are the names of strategies in vLLM Router, its fork and Continuum Router that differ from those of
// config.yaml, with the options that belong to them.
var strategies = map[string]struct {
	policy  string
	options [][2]string
}{
	"RoundRobin":         {policy: "round_robin"},
	"WeightedRoundRobin": {policy: "weighted_round_robin"},
	"LeastLatency":       {policy: "least_latency"},
	"Random":             {policy: "random"},
	"ConsistentHash":     {policy: "consistent_hash", options: [][2]string{{"key", "model"}}},
	"PrefixAwareHash":    {policy: "chwbl", options: [][2]string{{"no_key", "model_hash"}}},
	"KvOverlapScorer":    {policy: "kv_overlap", options: [][2]string{{"fallback", "chwbl"}}},
	"least_conn":         {policy: "least_load"},
	"consistent_hashing": {policy: "consistent_hash"},
	"prefix_hash":        {policy: "chwbl"},
}

// policyOf returns the policy that another router calls name, with the options that come with it. Without
// such a policy, it is empty.
func policyOf(name string) (policy string, options [][2]string) {
	if s, differs := strategies[name]; differs {
		return s.policy, s.options
	}
	if slices.Contains(routing.Names(), name) {
		return name, nil
	}
	return "", nil
}

// policyName returns the rule for the name of a policy or a fallback.
func policyName(path string) rule {
	return func(d *builder, s setting) {
		text, _ := s.text()
		name, options := policyOf(text)
		if name == "" {
			d.leave(s, cmp.Or(config.PolicyHint(text), "there is no such policy; docs/policies.md lists the policies"))
			return
		}
		d.set(path, name, s, d.comment[name])
		section := path[:strings.LastIndex(path, ".")+1]
		for _, o := range options {
			if _, written := d.origin[d.base+section+o[0]]; !written {
				d.set(section+o[0], o[1], s, "")
			}
		}
	}
}
