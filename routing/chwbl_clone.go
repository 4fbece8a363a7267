package routing

import (
	"maps"
	"slices"
)

// clone copies only what the pick needs. For a recorded pick it shares the ring, which depends on
// the workers' IDs and weights only; the key comes with the record.
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

// clone returns a ring for calls of update that leave g unchanged. The points are shared: a new
// worker causes new ones.
func (g *ring) clone() *ring {
	c := *g
	c.slots, c.slotByIndex, c.byID = slices.Clone(g.slots), slices.Clone(g.slotByIndex), maps.Clone(g.byID)
	return &c
}
