package tiers

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"
)

// Classify is the alias target that lets the classifier decide the tier.
const Classify = "classify"

// Auto is the model name that means Classify unless an alias overrides it.
const Auto = "auto"

// Target is a tier, or a pool outside the tiers, with the names that lead to it.
type Target struct {
	Name   string
	Tier   bool
	Model  string   // the model of its workers; empty keeps the client's name
	Models []string // further models of its workers, such as adapters
	// Fallback is the targets that get its requests in this order while it cannot take them; nil: none
	Fallback []string
}

// served returns all model names that the target's workers serve.
func (t *Target) served() []string {
	if t.Model == "" {
		return t.Models
	}
	return append([]string{t.Model}, t.Models...)
}

// workerModel returns the model name to send to its workers when the client used another name; empty
// keeps the client's.
func (t *Target) workerModel() string {
	if served := t.served(); len(served) > 0 {
		return served[0]
	}
	return ""
}

// Config has everything that model names can lead to.
type Config struct {
	Targets []Target           // tiers, least capable first, then pools
	Aliases map[string]Targets // model name or glob to tiers, pools, served models, or Classify
	Default string             // tier of Classify if no rule decides; empty: Rules.Default
	Rules   Rules              // classifier rules
	Model   *Model             // nil: none
}

// route is where a name leads.
type route struct {
	target int // index in targets; -1: none
	model  string
	rule   string
	pinned bool
	alias  uint64      // of Classify: hash of the alias, part of the window's key; 0 for Auto
	free   bool        // Classify: target is the default tier, and the decision may be clamped to the allowed tiers
	list   *targetList // of an alias with several targets, of which target is the first; nil: one
}

type target struct {
	Target
	key   string      // its key in config.yaml
	hash  uint32      // hash of its name, as stored in Chats
	leads []string    // names and globs that lead to it
	list  *targetList // itself and its fallback; nil without one
}

// Catalog resolves model names to targets. It is immutable.
type Catalog struct {
	targets      []target
	tiers        []int            // indexes of the tiers in targets, least capable first
	names        map[string]route // exact names: tiers, served models, aliases
	globs        []glob           // in the order of precedence
	byName       map[string]int   // index in targets
	served       map[string]route // names without aliases
	lists        []*targetList    // of fallbacks, then of aliases
	defaultRoute route            // the default tier; target -1 without one

	classifier      *Classifier   // of the tiers in their order
	chatIdle        time.Duration // how long a chat is remembered; 0: chats are not
	unavailableStep int           // direction of the next tier if one has no worker up: 1 higher, -1 lower, 0 none
}

// New checks c and returns its catalog. Package config checks single values: names of tiers and
// pools are in lower case, and no name is empty. The error joins all mistakes; each part starts
// with its key in config.yaml.
func New(c Config) (*Catalog, error) {
	k := &Catalog{names: map[string]route{}, byName: map[string]int{}}
	tiers := 0
	for _, t := range c.Targets {
		t.Models, t.Fallback = slices.Clone(t.Models), slices.Clone(t.Fallback)
		h := fnv.New32a()
		h.Write([]byte(t.Name))
		key := keyAt("pools", len(k.targets)-tiers)
		if t.Tier {
			key = keyAt("tiers", tiers)
			tiers++
		}
		k.targets = append(k.targets, target{Target: t, key: key, hash: h.Sum32()})
	}
	if c.Default == "" {
		c.Default = c.Rules.Default
	}
	errs := k.addTargets()
	errs = append(errs, k.addDefault(c.Default)...)
	k.served = maps.Clone(k.names)
	errs = append(errs, k.addFallbacks()...)
	errs = append(errs, k.addAliases(c.Aliases)...)
	errs = append(errs, k.checkFallbacks()...)
	errs = append(errs, k.addRules(c.Rules, c.Model)...)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	k.addLeads()
	return k, nil
}

// Warnings returns settings that are valid but probably not intended, in the form of New's
// errors.
func (k *Catalog) Warnings() []string { return k.classifier.Warnings() }

// Classifier returns the classifier of requests. Classification.Tier is an index among the
// targets that are tiers.
func (k *Catalog) Classifier() *Classifier { return k.classifier }

// addRules builds the classifier and the settings that depend on it.
func (k *Catalog) addRules(rules Rules, model *Model) []error {
	names := k.tierNames()
	rules.Default = "" // addDefault has checked it
	if k.defaultRoute.target >= 0 {
		rules.Default = k.targets[k.defaultRoute.target].Name
	}
	var err error
	if k.classifier, err = NewClassifier(rules, names, model); err != nil {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			return joined.Unwrap()
		}
		return []error{err}
	}
	normal := DefaultRules(names)
	if on := cmp.Or(rules.Sticky.Enabled, normal.Sticky.Enabled); *on {
		k.chatIdle = cmp.Or(rules.Sticky.Idle, normal.Sticky.Idle)
	}
	k.unavailableStep = map[string]int{"up": 1, "down": -1}[cmp.Or(rules.Unavailable, normal.Unavailable)]
	return nil
}

// addLeads records, for each target, the names that lead to it.
func (k *Catalog) addLeads() {
	lead := func(name string, to route) {
		if to.target >= 0 && !to.free {
			t := &k.targets[to.target]
			t.leads = append(t.leads, name)
		}
	}
	for name, to := range k.names {
		lead(name, to)
	}
	for _, g := range k.globs {
		lead(g.pattern, g.to)
	}
}

// addTargets adds the names of tiers and the models that all targets serve.
func (k *Catalog) addTargets() (errs []error) {
	owners := map[string]string{} // name to the config key that uses it
	claimName := func(key, name string) {
		if owner, taken := owners[name]; taken {
			errs = append(errs, fmt.Errorf("%s: duplicate name %q, used by %s: use another name", key, name, owner))
			return
		}
		owners[name] = key
	}
	for i := range k.targets {
		t := &k.targets[i]
		if t.Name == "" {
			continue // config reports it
		}
		if t.Name == Classify {
			errs = append(errs, fmt.Errorf("%s.name: %q is reserved: use another name", t.key, Classify))
		}
		claimName(t.key+".name", t.Name)
		if _, taken := k.byName[t.Name]; !taken {
			k.byName[t.Name] = i
		}
		if t.Tier {
			k.tiers = append(k.tiers, i)
			k.names[t.Name] = route{target: i, model: t.workerModel(), rule: "model"}
		}
	}
	for i := range k.targets {
		t := &k.targets[i]
		for j, model := range t.served() {
			key := t.key + ".model"
			if further := j - (len(t.served()) - len(t.Models)); further >= 0 {
				key = keyAt(t.key+".models", further)
			}
			if model == "" {
				continue // config reports it
			}
			// A target may have the name of the model that it serves.
			if model != t.Name || owners[model] != t.key+".name" {
				claimName(key, model)
			}
			k.names[model] = route{target: i, model: model, rule: "model", pinned: true}
		}
	}
	return errs
}

// addDefault sets the default tier.
func (k *Catalog) addDefault(name string) []error {
	k.defaultRoute = route{target: -1, rule: "default", free: true}
	i, known := k.byName[name]
	switch {
	case name == "" && len(k.tiers) == 0:
		return nil
	case name == "":
		i = k.tiers[0]
	case !known || !k.targets[i].Tier:
		return []error{fmt.Errorf("classifier.default: unknown tier %q: name one of the tiers (%s)",
			shorten(name), listNames(k.tierNames()))}
	}
	k.defaultRoute.target, k.defaultRoute.model = i, k.targets[i].workerModel()
	return nil
}

func (k *Catalog) tierNames() (names []string) {
	for _, i := range k.tiers {
		names = append(names, k.targets[i].Name)
	}
	return names
}

// targetNames returns the names of tiers and pools, in the order of the file.
func (k *Catalog) targetNames() (names []string) {
	for i := range k.targets {
		if name := k.targets[i].Name; name != "" {
			names = append(names, name)
		}
	}
	return names
}

// addAliases adds the targets of aliases, and Auto unless another entry has that name.
func (k *Catalog) addAliases(aliases map[string]Targets) (errs []error) {
	same := map[string]string{}
	for _, alias := range slices.Sorted(maps.Keys(aliases)) {
		key := fmt.Sprintf("models[%q]", alias)
		to, mistakes := k.aliasRoute(key, alias, aliases[alias])
		if len(mistakes) > 0 {
			errs = append(errs, mistakes...)
			continue
		}
		if isGlob(alias) {
			form := canonical(alias)
			if twin, taken := same[form]; taken {
				errs = append(errs, fmt.Errorf("%s: never matches: models[%q] matches the same names: remove one", key, twin))
				continue
			}
			same[form] = alias
			k.globs = append(k.globs, glob{pattern: alias, to: to})
			continue
		}
		if r, taken := k.served[alias]; taken {
			errs = append(errs, fmt.Errorf("%s: never matches: %q is already a name of %q: remove the alias",
				key, alias, k.targets[r.target].Name))
		} else if alias == "" {
			errs = append(errs, fmt.Errorf("%s: empty model name: a request without a model goes to the default tier", key))
		}
		k.names[alias] = to
	}
	longestFirst(k.globs)
	if _, taken := k.names[Auto]; !taken && k.defaultRoute.target >= 0 {
		k.names[Auto] = k.defaultRoute
	}
	return errs
}

func (k *Catalog) aliasRoute(key, alias string, targets Targets) (route, []error) {
	if len(targets) == 1 {
		to, err := k.aliasTarget(targets[0])
		if err != nil {
			return route{}, []error{fmt.Errorf("%s: %w", key, err)}
		}
		if to.free {
			h := fnv.New64a()
			h.Write([]byte(alias))
			to.alias = h.Sum64()
		}
		return to, nil
	}
	list, errs := k.newList(key, alias, nil, targets)
	if len(errs) > 0 {
		return route{}, errs
	}
	first := list.entries[0]
	first.list = list
	return first, nil
}

func (k *Catalog) aliasTarget(to string) (route, error) {
	if to == Classify {
		if len(k.tiers) == 0 {
			return route{}, fmt.Errorf("%q needs tiers, but there are none: add a tier, or name a pool", Classify)
		}
		return k.defaultRoute, nil
	}
	if i, ok := k.byName[to]; ok {
		return route{target: i, model: k.targets[i].workerModel(), rule: "alias"}, nil
	}
	if r, ok := k.served[to]; ok {
		return route{target: r.target, model: r.model, rule: "alias"}, nil
	}
	return route{}, fmt.Errorf("unknown target %q: name a tier or pool (%s), a model that one serves, or %q",
		shorten(to), listNames(k.targetNames()), Classify)
}
