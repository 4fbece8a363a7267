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
	if r.recall == nil {
		q.ring = p.ring.clone()
	}
	if p.depth != nil && r.recalled(p) == nil {
		q.depth = p.depth.clone(r.Blocks)
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

// clone returns what may be asked for the key of that chain in place of d.
func (d *depth) clone(blocks []Block) *depth {
	c := &depth{
		root: d.root.clone(), branches: make(map[uint64]*branch, len(d.branches)), keys: d.keys, traffic: d.traffic,
		requests: d.requests, swept: d.swept, windowEnd: d.windowEnd, most: d.most, before: d.before,
	}
	for key, b := range d.branches {
		same := *b // those that the chain does not lead to only age
		c.branches[key] = &same
	}
	for i := range blocks {
		if b := c.branches[blocks[i].Hash]; b != nil && b.at == i {
			*b = b.clone()
		}
	}
	return c
}

func (b *branch) clone() branch {
	c := *b
	c.main.chain, c.main.ends = slices.Clone(b.main.chain), slices.Clone(b.main.ends)
	c.rival.chain, c.rival.ends = slices.Clone(b.rival.chain), slices.Clone(b.rival.ends)
	return c
}
