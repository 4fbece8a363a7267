package config

import (
	"cmp"
	"fmt"
	"slices"

	"tierway/routing"
	"tierway/tiers"
)

// PolicyRule selects a policy for the requests that meet all of its conditions.
type PolicyRule struct {
	Model        string         `yaml:"model" absent:"any" doc:"Model, as the client wrote it or as it is sent to the worker. '*' matches any run of characters, '?' matches one."`
	MaxTokens    TokenRange     `yaml:"max_tokens" absent:"any" doc:"Range of the requested output tokens. A request without a limit counts as 0."`
	PromptTokens TokenRange     `yaml:"prompt_tokens" absent:"any" doc:"Range of the estimated prompt tokens."`
	Stream       *bool          `yaml:"stream" absent:"any" doc:"Whether the answer is streamed."`
	Tenant       string         `yaml:"tenant" form:"owner" absent:"any" doc:"Tenant of the request."`
	Header       string         `yaml:"header" form:"keyheader" absent:"none" doc:"Header that the request must have."`
	HeaderValue  string         `yaml:"header_value" absent:"any" doc:"Value of 'header'."`
	Policy       routing.Config `yaml:"policy" required:"true" doc:"Policy of these requests."`
}

// TokenRange is a range of token numbers. UpTo 0 is no upper bound.
type TokenRange struct {
	Above int64 `yaml:"above" absent:"no lower bound" doc:"Lower bound; the number must be larger."`
	UpTo  int64 `yaml:"up_to" absent:"no upper bound" doc:"Upper bound; the number may be equal."`
}

// has reports whether the range contains n.
func (r TokenRange) has(n int64) bool {
	return (r.Above == 0 || n > r.Above) && (r.UpTo == 0 || n <= r.UpTo)
}

func (r TokenRange) includes(other TokenRange) bool {
	return r.Above <= other.Above && (r.UpTo == 0 || other.UpTo > 0 && other.UpTo <= r.UpTo)
}

// RuleFacts are the facts of a request that the conditions of a PolicyRule use.
type RuleFacts struct {
	Requested, Model        string // the model that the client named, and the one that the worker receives
	MaxTokens, PromptTokens int64
	Stream                  bool
	Tenant                  string
	Header                  func(name string) string
}

// Matches reports whether a request meets all conditions of the rule.
func (r *PolicyRule) Matches(f *RuleFacts) bool {
	switch {
	case r.Model != "" && !tiers.MatchGlob(r.Model, f.Requested) && !tiers.MatchGlob(r.Model, f.Model):
	case !r.MaxTokens.has(f.MaxTokens) || !r.PromptTokens.has(f.PromptTokens):
	case r.Stream != nil && *r.Stream != f.Stream:
	case r.Tenant != "" && r.Tenant != f.Tenant:
	case r.Header != "" && !r.hasHeader(f):
	default:
		return true
	}
	return false
}

func (r *PolicyRule) hasHeader(f *RuleFacts) bool {
	if f.Header == nil {
		return false
	}
	value := f.Header(r.Header)
	return value != "" && (r.HeaderValue == "" || value == r.HeaderValue)
}

// RuleOf returns the number of the first rule that the request meets, from 1; 0 without one.
func (p *Pool) RuleOf(f *RuleFacts) int {
	for i := range p.Rules {
		if p.Rules[i].Matches(f) {
			return i + 1
		}
	}
	return 0
}

// PolicyOf returns the policy for the requests of a rule; 0 is no rule.
func (p *Pool) PolicyOf(rule int) *routing.Config {
	if rule > 0 && rule <= len(p.Rules) {
		return &p.Rules[rule-1].Policy
	}
	return &p.Policy
}

// RulePolicies returns the policies of the rules, in order.
func (p *Pool) RulePolicies() []routing.Config {
	var all []routing.Config
	for i := range p.Rules {
		all = append(all, p.Rules[i].Policy)
	}
	return all
}

// Policies returns the policy of the pool, then those of its rules.
func (p *Pool) Policies() []routing.Config {
	return append([]routing.Config{p.Policy}, p.RulePolicies()...)
}

// checkRules checks the rules of a file, tier or pool.
func (d *decoder) checkRules(path string, rules []PolicyRule) {
	for i := range rules {
		r, at := &rules[i], fmt.Sprintf("%s[%d]", path, i)
		d.checkPolicy(at+".policy", r.Policy)
		if r.Policy.Name == "" && !d.reported[at+".policy"] {
			d.report(at+".policy.name", "missing", "write the name of a policy")
		}
		if r.HeaderValue != "" && r.Header == "" {
			d.report(at+".header_value", "has no effect without header", "set header, or remove the key")
		}
		d.checkRange(at+".max_tokens", r.MaxTokens)
		d.checkRange(at+".prompt_tokens", r.PromptTokens)
		for j := range i {
			if rules[j].covers(r) {
				d.report(at, fmt.Sprintf("can never match: %s[%d] meets all of its requests before", path, j),
					"move it up, or remove it")
				break
			}
		}
	}
}

// checkRange reports a range without any number.
func (d *decoder) checkRange(path string, r TokenRange) {
	if r.UpTo > 0 && r.UpTo <= r.Above {
		d.report(path, fmt.Sprintf("no number is above %d and at most %d", r.Above, r.UpTo), "raise up_to, or lower above")
	}
}

// covers reports whether the rule has no condition that other lacks or has otherwise.
func (r *PolicyRule) covers(other *PolicyRule) bool {
	switch {
	case r.Model != "" && r.Model != other.Model:
	case !r.MaxTokens.includes(other.MaxTokens) || !r.PromptTokens.includes(other.PromptTokens):
	case r.Stream != nil && (other.Stream == nil || *r.Stream != *other.Stream):
	case r.Tenant != "" && r.Tenant != other.Tenant:
	case r.Header != "" && r.Header != other.Header:
	case r.HeaderValue != "" && r.HeaderValue != other.HeaderValue:
	default:
		return true
	}
	return false
}

// ReplacedPolicy returns the name for which WithPolicy has replaced the policies; empty if it has not.
func (f *File) ReplacedPolicy() string { return f.replacedPolicy }

// WithPolicy returns the configuration with that policy in place of the file's, of every tier and pool, and
// of all rules. Sections that name the same policy keep their options. An empty name changes nothing.
func (f *File) WithPolicy(name string) (*File, error) {
	if name == "" {
		return f, nil
	}
	policy := routing.Config{Name: name}
	if !slices.Contains(routing.Names(), name) {
		return nil, fmt.Errorf("unknown policy %s: %s", quote(name),
			cmp.Or(policyHints[name], DidYouMean(name, routing.Names())))
	}
	from := map[string]Origin{}
	replaced := func(path string, c routing.Config) routing.Config {
		if c.Name == policy.Name {
			return c
		}
		from[path] = Origin{Source: originEnvironment, Variables: []string{PolicyVariable},
			Detail: "set by " + PolicyVariable + " or --policy"}
		return policy
	}
	out := f.withLists()
	out.replacedPolicy = name
	out.Policy, out.PolicyRules = replaced("policy", f.Policy), nil
	for path, c := range out.lists() {
		if c.PolicyRules = nil; c.Policy.Name != "" {
			c.Policy = replaced(path+".policy", c.Policy)
		}
		if c.PrefillPolicy.Name != "" {
			c.PrefillPolicy = replaced(path+".prefill_policy", c.PrefillPolicy)
		}
	}
	out.origins = f.origins.replace(from)
	return out, nil
}
