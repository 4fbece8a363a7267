package tiers

import "slices"

// avoidUnavailable moves a request as the rules say if its tier has no worker up.
func (k *Catalog) avoidUnavailable(v *Resolution, at int, free bool, q *Query) int {
	if !k.movable(v, at) || permits(q.Available, k.targets[at].Name) {
		return at
	}
	to, ok := k.nextAvailable(at, free, q)
	if !ok {
		return at
	}
	return k.leaveUnavailable(q, v, at, to)
}

// leaveUnavailable moves a request from a tier without a worker up to another one.
func (k *Catalog) leaveUnavailable(q *Query, v *Resolution, from, to int) int {
	if v.selected == nil {
		selected := *v
		selected.Target = k.targets[from].Name
		v.selected = &selected
	}
	k.move(q, v, from, to, "unavailable")
	if name := k.targets[to].Name; name == v.selected.Target {
		v.Model = v.selected.Model // an alias may name another model of the tier than its first
	}
	return to
}

// nextAvailable returns the tier that gets the requests of the tier at as the rules say.
func (k *Catalog) nextAvailable(at int, free bool, q *Query) (int, bool) {
	if k.unavailableStep == 0 {
		return 0, false
	}
	up := func(i int) bool { return k.mayMoveTo(i, free, q) && takes(q, k.targets[i].Name) }
	here := slices.Index(k.tiers, at)
	if to, ok := k.nearest(here, k.unavailableStep, up); ok {
		return to, true
	}
	return k.nearest(here, -k.unavailableStep, up)
}

// takes reports whether the prompt fits the target and a worker of it is up.
func takes(q *Query, target string) bool {
	return permits(q.Fits, target) && permits(q.Available, target)
}

// MovesIfUnavailable reports whether the rules move a request out of its tier while the tier has no
// worker up. Whether another tier can take it is decided by MoveUnavailable.
func (k *Catalog) MovesIfUnavailable(v *Resolution) bool {
	return v.Tier && !v.Pinned && v.list == nil && k.unavailableStep != 0 && len(k.tiers) > 1
}

// MoveUnavailable returns the resolution of a request that was resolved to v, and whose tier has no
// worker up any more: it gets the tier that a request gets which arrives now. That is the tier that
// the rules selected first, if it has a worker up again. Without such a tier, or while the tier of v
// has a worker up, ok is false and the resolution is v. q is the query of v.
func (k *Catalog) MoveUnavailable(v Resolution, q Query) (to Resolution, ok bool) {
	at, known := k.byName[v.Target]
	if !known || !k.MovesIfUnavailable(&v) || permits(q.Available, v.Target) {
		return v, false
	}
	selected := v.Target
	if v.selected != nil {
		selected = v.selected.Target
	}
	next := k.byName[selected]
	if next == at || !takes(&q, selected) {
		r, _ := k.lookup(q.Model)
		if next, ok = k.nextAvailable(next, r.free, &q); !ok {
			return v, false
		}
	}
	k.leaveUnavailable(&q, &v, at, next)
	v.Target = k.targets[next].Name
	return v, true
}
