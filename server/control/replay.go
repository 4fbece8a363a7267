package control

import (
	"tierway/config"
	"tierway/decisions"
	"tierway/replay"
	"tierway/tenants"
)

// ReplaySetup returns a configuration in the form that a replay of recorded decisions uses. It has only
// the tenants and keys of the configuration itself.
func ReplaySetup(f *config.File) (replay.Setup, error) {
	identity, err := newIdentity(f, nil)
	if err != nil {
		return replay.Setup{}, err
	}
	snap, err := newSnapshot(Configuration{File: f}, identity, &Snapshot{})
	if err != nil {
		return replay.Setup{}, err
	}
	return snap.ReplaySetup(f.Gateways), nil
}

// ReplaySetup returns the snapshot in the form that a replay uses. gateways is the number of gateways
// that share the workers.
func (snap *Snapshot) ReplaySetup(gateways int) replay.Setup {
	s := replay.Setup{Catalog: snap.Catalog, Pools: make([]replay.Pool, len(snap.Pools)), Rights: snap.rights()}
	for i, p := range snap.Pools {
		s.Pools[i] = SetupPool(p.Pool, gateways)
	}
	return s
}

// SetupPool returns a tier or pool in the form that a replay uses. gateways is the number of gateways
// that share the workers.
func SetupPool(c config.Pool, gateways int) replay.Pool {
	p := replay.Pool{
		Name:   c.Name,
		Policy: c.Policy,
		Rules:  c.RulePolicies(),
		RuleOf: func(d *decisions.Decision) int {
			return c.RuleOf(&config.RuleFacts{Requested: d.RequestedModel, Model: d.Model, MaxTokens: d.MaxTokens,
				PromptTokens: d.PromptTokens, Stream: d.Stream, Tenant: d.Tenant})
		},
		Members:    membersOf(c, gateways),
		Saturation: c.Saturation,
		Context:    c.Context,
	}
	if c.Handover != "" {
		p.Handover = &replay.Handover{Policy: c.PrefillPolicy, Threshold: c.UncachedThreshold}
	}
	if price := c.Price; price != (tenants.Price{}) {
		p.Cost = func(prompt, cached, output int64) float64 {
			return float64(price.Cost(prompt, cached, output)) / float64(tenants.Unit)
		}
	}
	return p
}

// rights returns a function with the permissions of a recorded request's caller. known is false if the
// tenant or key does not exist.
func (snap *Snapshot) rights() func(d *decisions.Decision) (tier, model func(string) bool, known bool) {
	anonymous := tenants.Anonymous()
	return func(d *decisions.Decision) (tier, model func(string) bool, known bool) {
		c := snap.Identity.Directory.FormerCaller(d.Tenant, d.Key)
		if d.Tenant == anonymous.Tenant && d.Key == anonymous.Key {
			c = anonymous
		}
		if c == nil {
			return nil, nil, false
		}
		return func(pool string) bool { return snap.MayUse(c, pool) }, c.MayUseModel, true
	}
}
