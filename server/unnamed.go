package server

import (
	"cmp"
	"slices"
	"strings"

	"tierway/openai"
	"tierway/tiers"
)

// resolveUnnamed resolves a request without a model that the default tier cannot
// answer: to the lowest tier that serves its endpoint, else to the only pool that does.
// Several pools have no order, so that the client must choose. v is what the catalogue
// said.
func (x *exchange) resolveUnnamed(v tiers.Verdict) (tiers.Verdict, error) {
	p := x.snap.serving(x.dialect, x.caller)
	if p != nil && x.caller.MayUseModel("") && (p.Tier || !x.servedTwice(p)) {
		return tiers.Verdict{Target: p.Name, Tier: p.Tier, Model: cmp.Or(p.Model, p.Models[0]), Rule: cmp.Or(v.Rule, "default")}, nil
	}
	names := x.servedNames()
	if len(names) == 0 {
		return tiers.Verdict{}, &openai.Error{Code: openai.CodeEndpointNotSupported,
			Message: "No model that you may use is served on " + x.r.URL.Path + "."}
	}
	return tiers.Verdict{}, &openai.Error{Code: openai.CodeMissingField, Param: "model",
		Message: "The field model is missing: send one of " + strings.Join(names, ", ") + "."}
}

// servedTwice reports whether another pool than p serves the request's endpoint too.
func (x *exchange) servedTwice(p *pool) bool {
	return slices.ContainsFunc(x.snap.pools, func(other *pool) bool {
		return other != p && other.served[x.dialect] && x.mayUse(other.Name)
	})
}

// namesShown bounds the names of an error's message.
const namesShown = 10

// servedNames returns the first model names that the caller may ask by and whose tier
// or pool serves the request's endpoint, quoted for a message.
func (x *exchange) servedNames() (names []string) {
	q := tiers.Query{Allowed: x.mayUse, AllowedModel: x.caller.MayUseModel}
	for _, name := range x.snap.catalog.Models(q) {
		q.Model = name
		v, err := x.snap.catalog.Resolve(q)
		if err != nil || !x.snap.byName[v.Target].served[x.dialect] {
			continue
		}
		if names = append(names, quoted(name)); len(names) == namesShown {
			return append(names, "… (GET /v1/models lists all)")
		}
	}
	return names
}
