package routing

import (
	"maps"
	"slices"
)

// apart returns the policy as it is, to be asked without remembering: what it learns
// of the request, and of workers that it had not seen, is lost with it. Who decides a
// recorded pick again has a policy of its own, whose ring may know them: it is of
// their IDs and weights, and the record's room.
func (p *chwbl) apart(r *Request, ws []View) *chwbl {
	q := *p
	if r.recall == nil {
		q.ring = p.ring.clone()
	}
	if c := r.recalled(p); c != nil {
		if p.ring.enter(r.Now, ws) && p.ring.halved != c.Halved {
			fresh := newRing(p.ring.units)
			fresh.least = c.Halved
			p.ring, q.ring = fresh, fresh
		}
	} else if p.depth != nil {
		q.depth = p.depth.clone(r.Blocks)
	}
	return &q
}

func (p *chwbl) alone(r *Request) Policy { return p.apart(r, nil) }

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
