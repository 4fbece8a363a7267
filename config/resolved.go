package config

import (
	"slices"
	"strings"

	"tierway/tenants"
)

// resolved returns a copy in which every tier, pool, worker and key has what it
// inherits.
func (f *File) resolved() *File {
	out := *f
	out.Tiers, out.Pools = slices.Clone(f.Tiers), slices.Clone(f.Pools)
	for i, s := range f.sections() {
		c := f.whole(s)
		if c.Price != nil && c.Price.CachedInput == nil {
			c.Price.CachedInput = &c.Price.Input
		}
		if s.tier {
			out.Tiers[i] = Tier(c)
		} else {
			out.Pools[i-len(f.Tiers)] = c
		}
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
