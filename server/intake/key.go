package intake

import (
	"strings"

	"tierway/config"
	"tierway/openai"
	"tierway/routing"
	"tierway/server/control"
)

// rule returns the number of the pool's rule that selects the policy of the request; 0 without one.
func (p *Parsed) rule(c *Caller, res *Resolution, facts *routing.Request) int {
	if len(res.Pool.Rules) == 0 {
		return 0
	}
	f := config.RuleFacts{Requested: res.Requested, Model: res.ModelName, PromptTokens: facts.PromptTokens,
		Stream: facts.Stream, Tenant: c.Tenant, Header: p.in.HTTP.Header.Get}
	if p.Req != nil {
		f.MaxTokens = p.Req.MaxTokens
	}
	return res.Pool.RuleOf(&f)
}

// setKey sets the key by which a hashing policy places the request. Keys of different tenants differ. All
// gateways find the same key.
func (p *Parsed) setKey(c *Caller, policy *routing.Config, facts *routing.Request) {
	if !policy.UsesKeys() {
		return
	}
	var value string
	switch policy.Key {
	case routing.KeyModel:
		return
	case routing.KeyHeader:
		facts.KeyOf, value = routing.KeyHeader, p.in.HTTP.Header.Get(policy.KeyHeader)
	default:
		facts.KeyOf, value = routing.KeySession, p.sessionKey()
	}
	switch {
	case value != "":
		facts.Key = routing.Mix(control.NameHash(c.Tenant) + control.NameHash(value))
	case facts.KeyOf == routing.KeySession && policy.FallbackKey == routing.KeyBody && p.Req != nil && len(p.Req.Body) > 0:
		facts.KeyOf, facts.Key = routing.KeyBody, control.NameHash(p.Req.Body)
	}
	if facts.Key == 0 {
		facts.KeyOf = ""
	}
}

// sessionKey returns the first of the configured session keys that the request has; "" without one.
func (p *Parsed) sessionKey() string {
	for _, name := range p.in.Snap.SessionKeys {
		value := ""
		if strings.Contains(name, "-") {
			value = p.in.HTTP.Header.Get(name)
		} else if p.Req != nil {
			value = bodyKey(p.Req, name)
		}
		if value != "" {
			return value
		}
	}
	return ""
}

// bodyKey returns the value of a field of the body that can be a session key.
func bodyKey(r *openai.Request, name string) string {
	switch name {
	case "session_params.session_id":
		return r.SessionParamsID
	case "session_id":
		return r.SessionID
	case "prompt_cache_key":
		return r.PromptCacheKey
	case "user":
		return r.User
	case "user_id":
		return r.UserID
	}
	return ""
}
