package config

import (
	"fmt"
	"reflect"
	"slices"

	"tierway/routing"
)

// checkPolicy checks a policy section. That of a tier or pool replaces the
// file's whole, so that options alone would belong to no policy.
func (d *decoder) checkPolicy(path string, c routing.Config) {
	for k := range members(reflect.ValueOf(c)) {
		at := join(path, k.name)
		switch {
		case k.policy == "" || !d.written(at) || c.Name == k.policy || d.told[path+".name"]:
		case c.Name == "":
			d.fault(path+".name", "missing beside "+k.name,
				"write name: "+k.policy+"; this section replaces the file's policy whole")
		default:
			d.fault(at, "only "+k.policy+" reads it, and the policy is "+c.Name,
				"remove the key, or write name: "+k.policy)
		}
	}
	if _, err := routing.New(c); err != nil {
		d.fault(path, err.Error(), "")
	}
}

// checkContexts warns of tiers to which a prompt that is too long for a lower
// one cannot move.
func (d *decoder) checkContexts(tiers []Tier) {
	longest := -1
	for i, t := range tiers {
		switch {
		case t.Context == 0:
		case longest < 0 || t.Context >= tiers[longest].Context:
			longest = i
		default:
			d.caution(fmt.Sprintf("tiers[%d].context", i),
				fmt.Sprintf("%d is less than the %d of tiers[%d], so that a prompt too long for %s cannot move up here", t.Context, tiers[longest].Context, longest, quote(tiers[longest].Name)),
				"tiers stand least capable first; give this one at least the same, or move it down")
		}
	}
}

// checkModels checks which models the workers of a tier or pool say that they
// serve, and that each of its models is served by one.
func (d *decoder) checkModels(s section) {
	names := distinct(append([]string{s.Model}, s.Models...))
	served := map[string]bool{}
	for i, w := range s.Workers {
		path := fmt.Sprintf("%s.workers[%d].models", s.path, i)
		switch {
		case len(w.Models) > 0:
		case d.written(path):
			d.fault(path, "is empty", "name models of its "+s.kind()+", or remove the key for all of them")
			fallthrough
		default:
			for _, name := range names {
				served[name] = true
			}
		}
		for j, name := range w.Models {
			at := fmt.Sprintf("%s[%d]", path, j)
			served[name] = true
			if !slices.Contains(names, name) {
				d.fault(at, d.shown(at, name)+" is no model of its "+s.kind(), DidYouMean(name, names))
			}
		}
	}
	if len(s.Workers) == 0 {
		return
	}
	for _, name := range names {
		if at := s.modelPath(name); !served[name] {
			d.fault(at, "no worker serves "+d.shown(at, name), "add it to the models of a worker, or remove it here")
		}
	}
}

// kind names what the section is.
func (s section) kind() string {
	if s.tier {
		return "tier"
	}
	return "pool"
}

// modelPath returns where one of its models stands.
func (s section) modelPath(name string) string {
	if i := slices.Index(s.Models, name); i >= 0 && name != s.Model {
		return fmt.Sprintf("%s.models[%d]", s.path, i)
	}
	return s.path + ".model"
}
