package tiers

import (
	"fmt"
	"slices"
	"strings"
)

// Targets is where an alias leads: one target, or several in the order of preference.
type Targets []string

// Reasons of Resolve and FallBack for passing over a target of a list. All others come from
// Query.Blocked and from the caller of FallBack.
const (
	WhyNotAllowed = "is not allowed"
	WhyContext    = "has too little context"
)

// ruleFallback begins the rule of a request that a target of a list got in place of an earlier one.
const ruleFallback = "fallback"

// targetList is the targets of a request in the order of preference: those of an alias with
// several, or a target with its fallback. It is not followed further: the fallback of a later
// target does not matter, so that lists which name each other are no cycle.
type targetList struct {
	key     string // in config.yaml
	entries []route
	byAlias bool // an alias, which the tenant may use, names all targets
}

// List is a list of targets in config.yaml.
type List struct {
	Key     string
	Targets []string // names of tiers and pools
	Own     bool     // the first target has the list as its fallback: Key[0] is the second target
}

// Lists returns all lists of more than one target: the fallbacks, then the aliases by name.
func (k *Catalog) Lists() []List {
	all := make([]List, len(k.lists))
	for i, l := range k.lists {
		all[i] = List{Key: l.key, Targets: k.namesOf(l), Own: !l.byAlias}
	}
	return all
}

func (k *Catalog) namesOf(l *targetList) []string {
	names := make([]string, len(l.entries))
	for i := range l.entries {
		names[i] = k.targets[l.entries[i].target].Name
	}
	return names
}

// List returns the targets among which a resolution has chosen, in the order of preference; nil
// if the request has no list.
func (k *Catalog) List(v Resolution) []string {
	if v.list == nil {
		return nil
	}
	return k.namesOf(v.list)
}

func (k *Catalog) addFallbacks() (errs []error) {
	for i := range k.targets {
		t := &k.targets[i]
		if t.Fallback == nil {
			continue
		}
		list, mistakes := k.newList(t.key+".fallback", "", []route{{target: i}}, t.Fallback)
		t.list, errs = list, append(errs, mistakes...)
	}
	return errs
}

// newList returns a list of targets: first, and those with the given names. alias is the name
// that leads there; empty for a fallback.
func (k *Catalog) newList(key, alias string, first []route, names []string) (*targetList, []error) {
	list := &targetList{key: key, entries: first, byAlias: alias != ""}
	var errs []error
	report := func(at, format string, args ...any) { errs = append(errs, fmt.Errorf(at+": "+format, args...)) }
	if len(names) == 0 {
		report(key, "the list is empty: name a target, or remove the key")
	}
	for i, name := range names {
		at := keyAt(key, i)
		to, err := k.aliasTarget(name)
		switch {
		case name == Classify:
			report(at, "%q cannot be in a list: write it as the only target, and set fallback at the tiers", Classify)
		case name == alias && err != nil:
			report(at, "%q is the alias itself: name a tier, a pool or a model", name)
		case err != nil:
			report(at, "%w", err)
		case slices.ContainsFunc(list.entries, func(e route) bool { return e.target == to.target }):
			report(at, "%q leads to %q, which is in the list already: remove it", name, k.targets[to.target].Name)
		default:
			list.entries = append(list.entries, to)
		}
	}
	k.lists = append(k.lists, list)
	return list, errs
}

// checkFallbacks returns an error for each fallback of a pool to which no alias leads: requests
// for a pool's own models never move.
func (k *Catalog) checkFallbacks() (errs []error) {
	reached := map[int]bool{}
	for _, to := range k.names {
		reached[to.target] = reached[to.target] || to.rule == "alias" && to.list == nil
	}
	for _, g := range k.globs {
		reached[g.to.target] = reached[g.to.target] || g.to.list == nil
	}
	for i := range k.targets {
		if t := &k.targets[i]; t.list != nil && !t.Tier && !reached[i] {
			errs = append(errs, fmt.Errorf("%s.fallback: has no effect, because requests for a pool's own models never move: "+
				"map an alias to the pool in models, or remove the key", t.key))
		}
	}
	return errs
}

// firstAllowed moves a request whose name leads to several targets to the first one that the
// tenant may use, and returns the target.
func (k *Catalog) firstAllowed(v *Resolution, at int, q *Query) (int, bool) {
	if v.list == nil {
		return at, permits(q.Allowed, k.targets[at].Name)
	}
	i := slices.IndexFunc(v.list.entries, func(e route) bool { return permits(q.Allowed, k.targets[e.target].Name) })
	if i < 0 {
		return 0, false
	}
	v.Model = v.list.entries[i].model
	return v.list.entries[i].target, true
}

// chooseFromList returns the resolution of a request with a list of targets: the first that can
// take it, or else the first where it is allowed and fits. Without such a target, ok is false.
func (k *Catalog) chooseFromList(v Resolution, free bool, q *Query) (Resolution, bool) {
	to, passed, ok := k.follow(v, 0, free, q)
	if !ok {
		unblocked := *q
		unblocked.Blocked = nil
		to, passed, ok = k.follow(v, 0, free, &unblocked)
	}
	if ok && q.Moves != nil {
		*q.Moves = append(*q.Moves, passed...)
	}
	return to, ok
}

// FallBack returns the resolution of a request that the target of v did not serve: the next
// target of its list that can take it. why completes a sentence about the target of v, such as
// "has a full queue". Without a further target, ok is false, and the resolution is v with the
// reasons in its note. q is the query of v.
func (k *Catalog) FallBack(v Resolution, q Query, why string) (to Resolution, ok bool) {
	if v.list == nil {
		return v, false
	}
	left := k.pass(&v, v.index, why)
	r, _ := k.lookup(q.Model)
	to, passed, ok := k.follow(v, v.index+1, r.free, &q)
	if q.Moves != nil {
		*q.Moves = append(append(*q.Moves, left), passed...)
	}
	return to, ok
}

// MayFallBack reports whether the request has a further target.
func (v *Resolution) MayFallBack() bool { return v.list != nil && v.index+1 < len(v.list.entries) }

// follow returns the resolution of the first target from index from on that can take the
// request, and those that it passes over. If none can, the resolution is v with the reasons.
func (k *Catalog) follow(v Resolution, from int, free bool, q *Query) (to Resolution, passed []Move, ok bool) {
	for i := from; i < len(v.list.entries); i++ {
		why := k.whyNot(v.list, i, free, q)
		if why == "" {
			k.takeEntry(&v, i)
			return v, passed, true
		}
		passed = append(passed, k.pass(&v, i, why))
	}
	return v, passed, false
}

// whyNot returns why a target of the list cannot take the request; empty if it can.
func (k *Catalog) whyNot(l *targetList, i int, free bool, q *Query) string {
	to := l.entries[i].target
	name := k.targets[to].Name
	owner := i == 0 && !l.byAlias // its permission is checked, or the name that was sent permits it
	switch {
	case !owner && (!permits(q.Allowed, name) || !l.byAlias && !free && !k.mayNameTier(to, q)):
		return WhyNotAllowed
	case !permits(q.Fits, name):
		return WhyContext
	case q.Blocked != nil:
		return q.Blocked(name)
	}
	return ""
}

// pass notes that the request passes over a target, and returns the move.
func (k *Catalog) pass(v *Resolution, i int, why string) Move {
	name := k.targets[v.list.entries[i].target].Name
	v.AddNote(name + " " + why)
	by := ruleFallback
	if i == 0 {
		by = v.Rule
	}
	return Move{Tier: name, Rule: by, By: ruleFallback, Why: why}
}

// takeEntry moves a request to a target of its list. The first one leaves the resolution as it is.
func (k *Catalog) takeEntry(v *Resolution, i int) {
	e := v.list.entries[i]
	t := &k.targets[e.target]
	v.index, v.Target, v.Tier = i, t.Name, t.Tier
	if i == 0 {
		return
	}
	if !strings.HasPrefix(v.Rule, ruleFallback) {
		v.AddNote(overridden(v.Rule, k.targets[v.list.entries[0].target].Name))
	}
	v.Rule, v.Model = ruleFallback+":"+t.Name, e.model
}
