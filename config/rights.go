package config

import (
	"maps"
	"slices"

	"tierway/tenants"
	"tierway/tiers"
)

// RightNames are the names that the rights of a tenant or key may use.
type RightNames struct {
	Targets []string // tiers and pools
	Models  []string // the models, tiers and aliases that clients may request
}

// RightNames returns the names that rights may use under the file.
func (f *File) RightNames() RightNames {
	targets, models := []string{}, []string{tiers.Auto, tiers.Classify}
	for _, s := range f.sections() {
		targets = append(targets, s.Name)
		if s.tier {
			models = append(models, s.Name)
		}
		models = append(append(models, s.Model), s.Models...)
	}
	models = append(models, slices.Sorted(maps.Keys(f.Models))...)
	return RightNames{distinct(targets), distinct(models)}
}

// UnknownRight is a name in rights that does not exist in the configuration. A mistyped name would lock its
// tenant out, or move its requests to the remaining tiers.
type UnknownRight struct {
	Field   string // tiers or models
	Index   int    // in the list of that field
	Name    string
	Problem string   // such as "is not a tier or pool"
	Known   []string // the names that exist
}

// Hint returns the nearest known name, if there is one, and the known names.
func (u *UnknownRight) Hint() string {
	if near := nearest(u.Name, u.Known); near != "" {
		return "did you mean " + near + "? " + listOf(u.Known)
	}
	return listOf(u.Known)
}

// Unknown returns the tiers and models of rights that match none of the names, in their order.
func (n RightNames) Unknown(r tenants.Rights) (unknown []UnknownRight) {
	for i, name := range r.Tiers {
		if !slices.Contains(n.Targets, name) {
			unknown = append(unknown, UnknownRight{"tiers", i, name, "is not a tier or pool", n.Targets})
		}
	}
	for i, glob := range r.Models {
		if !slices.ContainsFunc(n.Models, func(name string) bool { return tenants.Overlap(glob, name) }) {
			unknown = append(unknown, UnknownRight{"models", i, glob, "matches no model, tier or alias", n.Models})
		}
	}
	return unknown
}
