package config

import (
	"fmt"
	"maps"
	"slices"

	"tierway/tenants"
	"tierway/tiers"
)

// checkRights notes tiers and models of keys that nothing in the file answers
// to: a right that was mistyped would otherwise lock its tenant out in silence.
func (d *decoder) checkRights(f *File) {
	var targets []string
	names := []string{tiers.Auto, tiers.Classify}
	for _, s := range f.sections() {
		targets = append(targets, s.Name)
		if s.tier {
			names = append(names, s.Name)
		}
		if s.Model != "" {
			names = append(names, s.Model)
		}
		names = append(names, s.Models...)
	}
	names = append(names, slices.Sorted(maps.Keys(f.Models))...)
	targets, names = distinct(targets), distinct(names)
	equal := func(right, name string) bool { return right == name }
	for i, k := range f.Auth.Keys {
		d.checkMatches(fmt.Sprintf("auth.keys[%d].tiers", i), k.Tiers, targets, equal, "is no tier or pool")
		d.checkMatches(fmt.Sprintf("auth.keys[%d].models", i), k.Models, names, tenants.Overlap, "matches no model, tier or alias")
	}
}

// distinct returns the names that are not empty, each once, in their order.
func distinct(names []string) []string {
	seen, out := map[string]bool{"": true}, []string{}
	for _, name := range names {
		if !seen[name] {
			out = append(out, name)
		}
		seen[name] = true
	}
	return out
}

// checkMatches notes rights that match none of the names.
func (d *decoder) checkMatches(path string, rights, names []string, match func(right, name string) bool, nothing string) {
	for i, right := range rights {
		if !slices.ContainsFunc(names, func(name string) bool { return match(right, name) }) {
			at := fmt.Sprintf("%s[%d]", path, i)
			d.fault(at, d.shown(at, right)+" "+nothing+" of this file", DidYouMean(right, names))
		}
	}
}
