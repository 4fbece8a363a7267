package control

import (
	"time"

	"tierway/config"
	"tierway/decisions"
	"tierway/replay"
	"tierway/store"
	"tierway/tenants"
	"tierway/tiers"
)

// ReplaySetup returns a configuration as a replay of recorded decisions uses it. Only callers
// whose keys stand in it are known.
func ReplaySetup(f *config.File) (replay.Setup, error) {
	p, err := newIdentity(f, store.Contents{}, time.Time{})
	if err != nil {
		return replay.Setup{}, err
	}
	return replaySetup(f.Catalog(), f.ResolvedPools(), p, f.Gateways), nil
}

// ReplaySetup returns a snapshot as a replay uses it, for one of so many gateways.
func (snap *Snapshot) ReplaySetup(gateways int) replay.Setup {
	pools := make([]config.Pool, len(snap.Pools))
	for i, p := range snap.Pools {
		pools[i] = p.Pool
	}
	return replaySetup(snap.Catalog, pools, snap.Identity, gateways)
}

func replaySetup(catalog *tiers.Catalog, pools []config.Pool, p *Identity, gateways int) replay.Setup {
	s := replay.Setup{Catalog: catalog, Pools: make([]replay.Pool, len(pools)), Rights: p.rights(pools)}
	for i, c := range pools {
		s.Pools[i] = SetupPool(c, gateways)
	}
	return s
}

// SetupPool returns one tier or pool as a replay uses it, for one of so many gateways.
func SetupPool(c config.Pool, gateways int) replay.Pool {
	p := replay.Pool{Name: c.Name, Policy: c.Policy, Members: membersOf(c, gateways), Context: c.Context}
	if price := c.Price; price != (tenants.Price{}) {
		p.Cost = func(prompt, cached, output int64) float64 {
			return float64(price.Cost(prompt, cached, output)) / float64(tenants.Unit)
		}
	}
	return p
}

// rights tells what the callers of recorded requests may use, as far as their
// tenants and keys are still there.
func (p *Identity) rights(pools []config.Pool) func(d *decisions.Decision) (tier, model func(string) bool, known bool) {
	type name struct{ tenant, key string }
	nobody := tenants.Anonymous()
	callers := map[name]*tenants.Caller{{nobody.Tenant, nobody.Key}: nobody}
	ts, ks := p.Tenants()
	byName := make(map[string]tenants.Tenant, len(ts))
	for _, t := range ts {
		byName[t.Name] = t
	}
	for _, k := range ks {
		callers[name{k.Tenant, k.ID}] = tenants.NewCaller(byName[k.Tenant], k)
	}
	only := map[string]string{} // the tenant of a pool that serves no other
	for _, c := range pools {
		only[c.Name] = c.Tenant
	}
	return func(d *decisions.Decision) (tier, model func(string) bool, known bool) {
		c := callers[name{d.Tenant, d.Key}]
		if c == nil {
			return nil, nil, false
		}
		mayUse := func(pool string) bool {
			return c.MayUseTier(pool) && (only[pool] == "" || only[pool] == c.Tenant)
		}
		return mayUse, c.MayUseModel, true
	}
}
