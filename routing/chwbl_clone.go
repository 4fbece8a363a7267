package routing

import (
	"maps"
	"slices"
)

// clone leaves out what a recorded pick does not need: a policy that only decides such
// ones shares its ring, which is of the workers' IDs and weights, and the key comes with
// the record.
func (p *chwbl) clone(r *Request) Policy {
	q := *p
	if r.recorded == nil {
		q.ring = p.ring.clone()
	}
	if p.keys != nil && r.recalled(p) == nil {
		q.keys = p.keys.Clone(r.Blocks)
	}
	return &q
}

// clone returns a ring that may be entered in place of g. The points are shared:
// who comes in makes new ones.
func (g *ring) clone() *ring {
	c := *g
	c.slots, c.places, c.byID = slices.Clone(g.slots), slices.Clone(g.places), maps.Clone(g.byID)
	return &c
}
