package config

import (
	"slices"
	"strings"

	"tierway/tenants"
	"tierway/workers"
)

// resolved returns a copy in which every tier, pool, worker and key has what it
// inherits.
func (f *File) resolved() *File {
	out := *f
	out.Tiers, out.Pools = slices.Clone(f.Tiers), slices.Clone(f.Pools)
	sections := f.sections()
	for i, p := range f.ResolvedPools() {
		c := f.resolvedSection(sections[i].PoolConfig, p)
		if !p.Tier {
			out.Pools[i-len(f.Tiers)] = c
			continue
		}
		out.Tiers[i] = Tier{Name: c.Name, Model: c.Model, Engine: c.Engine, Serves: c.Serves, Context: c.Context,
			Price: c.Price, Policy: c.Policy, Queue: c.Queue, Saturation: c.Saturation, Health: c.Health, Workers: c.Workers,
			AllowFields: c.AllowFields, ResponseHeaders: c.ResponseHeaders}
	}
	out.Classifier.Default = f.catalogConfig().Default
	out.Classifier.Keywords = slices.Clone(f.Classifier.Keywords)
	for i := range out.Classifier.Keywords {
		k := &out.Classifier.Keywords[i]
		if k.Weight == 0 {
			k.Weight = 1
		}
		if k.In == nil {
			k.In = []string{"user"}
		}
	}
	out.Auth.Keys = slices.Clone(f.Auth.Keys)
	for i := range out.Auth.Keys {
		k := &out.Auth.Keys[i]
		if k.Priority == "" {
			k.Priority = tenants.Interactive.String()
		}
		k.Weight = max(1, k.Weight)
		if k.DefaultPriority == "" {
			k.DefaultPriority = k.Priority
		}
		k.SHA256 = strings.ToLower(k.SHA256)
	}
	return &out
}

// resolvedSection writes a resolved tier or pool as the file could.
func (f *File) resolvedSection(c PoolConfig, p Pool) PoolConfig {
	health := overlay(f.Health, c.Health)
	c.Engine, c.Policy, c.Health = string(p.Engine), p.Policy, &health
	c.Queue, c.Saturation = c.Queue.over(f.Queue), c.Saturation.over(f.Saturation)
	if len(c.Serves) == 0 {
		for _, d := range p.Serves {
			c.Serves = append(c.Serves, d.String())
		}
	}
	if c.Price != nil {
		price := p.Price
		if price.CachedInput == nil {
			price.CachedInput = &price.Input
		}
		c.Price = &price
	}
	c.Workers = make([]workers.Config, len(p.Workers))
	for i := range p.Workers {
		c.Workers[i] = p.Workers[i].Config
	}
	return c
}
