package tiers

import (
	"errors"
	"slices"
	"strings"
)

// ErrUnknownModel means that the name leads nowhere, or nowhere that the tenant
// may go: the two are not told apart, so that nobody learns what others use.
var ErrUnknownModel = errors.New("unknown model")

// Notes of a Verdict. They repeat nothing that the client sent.
const (
	NoteUnknownHeader = "unknown X-Model-Tier ignored"
	NoteOutsideTiers  = "X-Model-Tier ignored: the model is outside the tiers"
	NoteClamped       = "clamped to the allowed tiers"
)

// Query is what decides where a request goes.
type Query struct {
	Model        string                   // as the client wrote it; may be empty
	Header       string                   // X-Model-Tier; may be empty
	Allowed      func(target string) bool // may the tenant use that tier or pool? nil: all
	AllowedModel func(model string) bool  // may the tenant ask by that name, also the empty one? nil: all
}

func (q *Query) allows(target string) bool { return q.Allowed == nil || q.Allowed(target) }

// Verdict is where a request goes and why.
type Verdict struct {
	Target string
	Tier   bool   // Target is a tier, not a pool
	Model  string // what to ask the worker for; empty keeps the client's name
	Rule   string // header, model, alias or default
	Note   string // what the rule passed over; empty mostly
	Pinned bool   // asked by the engine's own model name: the request must not be moved
}

// Resolve says where a request goes. The model's name decides, exact names
// before globs and the longest glob first; among tiers X-Model-Tier overrules
// it. Nothing that q does not allow is ever returned: the header and the default
// are clamped to the nearest lower allowed tier, else to the nearest higher,
// the header also to tiers that an allowed name leads to;
// any other name that leads to what is not allowed fails with ErrUnknownModel,
// with a header or without.
func (k *Catalog) Resolve(q Query) (Verdict, error) {
	if q.AllowedModel != nil && !q.AllowedModel(q.Model) {
		return Verdict{}, ErrUnknownModel
	}
	r, ok := k.lookup(q.Model)
	if !ok {
		return Verdict{}, ErrUnknownModel
	}
	v := Verdict{Model: r.model, Rule: r.rule, Pinned: r.pinned}
	at := r.target
	if r.fallback {
		if at, ok = k.clamp(at, func(i int) bool { return q.allows(k.targets[i].Name) }); !ok {
			return Verdict{}, ErrUnknownModel
		}
		if at != r.target {
			v.Model, v.Note = k.targets[at].asked(), NoteClamped
		}
	} else if !q.allows(k.targets[at].Name) {
		return Verdict{}, ErrUnknownModel
	}
	if q.Header != "" {
		at = k.overrule(&v, at, &q)
	}
	v.Target, v.Tier = k.targets[at].Name, k.targets[at].Tier
	return v, nil
}

// lookup finds where a name leads.
func (k *Catalog) lookup(model string) (route, bool) {
	if model == "" {
		return k.normal, k.normal.target >= 0
	}
	if r, ok := k.names[model]; ok {
		return r, true
	}
	for i := range k.globs {
		if k.globs[i].match.MatchString(model) {
			return k.globs[i].to, true
		}
	}
	return route{}, false
}

// overrule applies X-Model-Tier to a verdict for the target at, and returns the
// target that it leads to.
func (k *Catalog) overrule(v *Verdict, at int, q *Query) int {
	if !k.targets[at].Tier {
		v.Note = NoteOutsideTiers
		return at
	}
	asked := slices.IndexFunc(k.tiers, func(i int) bool { return strings.EqualFold(k.targets[i].Name, q.Header) })
	if asked < 0 {
		if v.Note != "" {
			v.Note += "; "
		}
		v.Note += NoteUnknownHeader
		return at
	}
	// Where the model's name leads is always allowed, so that a clamp ends.
	to, _ := k.clamp(k.tiers[asked], func(i int) bool {
		return i == at || q.allows(k.targets[i].Name) && k.named(i, q)
	})
	if to != at {
		v.Model = k.targets[to].asked()
	}
	*v = Verdict{Model: v.Model, Rule: "header"}
	if to != k.tiers[asked] {
		v.Note = NoteClamped
	}
	return to
}

// named tells whether a tier may be asked for by one of the names that lead to
// it: a header is no way around the names that a tenant is kept to. A glob counts
// as its own pattern.
func (k *Catalog) named(tier int, q *Query) bool {
	return q.AllowedModel == nil || slices.ContainsFunc(k.leads[tier], q.AllowedModel)
}

// clamp returns the tier itself when it is allowed, else the nearest lower
// allowed one, else the nearest higher.
func (k *Catalog) clamp(tier int, allowed func(target int) bool) (int, bool) {
	at := slices.Index(k.tiers, tier)
	for i := at; i >= 0; i-- {
		if allowed(k.tiers[i]) {
			return k.tiers[i], true
		}
	}
	for _, i := range k.tiers[at+1:] {
		if allowed(i) {
			return i, true
		}
	}
	return 0, false
}

// Models returns the names that q may ask by, as /v1/models lists them: tiers,
// models, aliases that are no globs, and Auto; sorted, without duplicates. q's
// Model and Header play no part.
func (k *Catalog) Models(q Query) []string {
	names := make([]string, 0, len(k.names))
	for name := range k.names {
		if _, err := k.Resolve(Query{Model: name, Allowed: q.Allowed, AllowedModel: q.AllowedModel}); err == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
