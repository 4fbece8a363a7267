package routing

import (
	"cmp"
	"slices"
)

// hasRings is implemented by policies with hash rings.
type hasRings interface{ rings() []*ring }

func ringsOf(p Policy) []*ring {
	if h, ok := p.(hasRings); ok {
		return h.rings()
	}
	return nil
}

func (p *chwbl) rings() []*ring          { return []*ring{p.ring} }
func (p *consistentHash) rings() []*ring { return []*ring{p.ring} }

func (p *composed) rings() (all []*ring) {
	for _, chain := range p.chains {
		for _, link := range chain {
			all = append(all, ringsOf(link)...)
		}
	}
	return all
}

// grownRings returns rings with points for all members, by the ring of a policy that lacks some. Most of the work is
// done without the pool's lock, which a pick would hold for it otherwise.
func (p *Pool) grownRings(policy Policy, members []Member) map[*ring]*ring {
	grown := map[*ring]*ring{}
	p.mu.Lock()
	all := ringsOf(policy)
	if p.handover != nil {
		all = append(all, ringsOf(p.handover.Policy)...)
	}
	for _, g := range all {
		if g.lacks(members) {
			copied := *g
			copied.slots, copied.byID, copied.slotByIndex = slices.Clone(g.slots), nil, nil
			grown[g] = &copied
		}
	}
	p.mu.Unlock()
	for _, g := range grown {
		g.grow(members)
	}
	return grown
}

// lacks reports whether a member with weight has too few points. More members than a ring can hold count as none.
func (g *ring) lacks(members []Member) bool {
	if len(members) > maxSlots {
		return false
	}
	return slices.ContainsFunc(members, func(m Member) bool {
		at, known := g.byID[m.ID]
		return m.Weight > 0 && (!known || g.slots[at].maxWeight < slotWeight(m.Weight))
	})
}

// grow adds the missing points of all members. Points and byID are replaced, not changed.
func (g *ring) grow(members []Member) {
	if len(g.slots) > len(members)+maxAbsent || len(g.slots)+len(members) > maxSlots {
		g.slots, g.hashes = nil, nil // of former members too
	}
	before := make([]int, len(g.slots), len(g.slots)+len(members)) // points by slot
	g.byID = make(map[string]uint32, len(members))
	for i := range g.slots {
		g.byID[g.slots[i].id] = uint32(i)
		before[i] = g.points(g.slots[i].maxWeight)
	}
	for i := range members {
		if m := &members[i]; m.Weight > 0 {
			at, known := g.byID[m.ID]
			if !known {
				at = g.addSlot(m.ID)
			}
			g.slots[at].maxWeight = max(g.slots[at].maxWeight, slotWeight(m.Weight))
		}
	}
	halved := g.halved
	g.limitPoints()
	if len(g.hashes) == 0 || g.halved != halved {
		g.sortPoints()
		return
	}
	var added []ringPoint
	for i := range g.slots {
		first := 0
		if i < len(before) {
			first = before[i]
		}
		for k := first; k < g.points(g.slots[i].maxWeight); k++ {
			added = append(added, ringPoint{point(g.slots[i].seed, k), uint32(k)<<slotBits | uint32(i)})
		}
	}
	slices.SortFunc(added, func(a, b ringPoint) int { return cmp.Compare(a.hash, b.hash) })
	g.mergePoints(added)
}

// ringPoint is a point with its owner, as in ring.owners.
type ringPoint struct {
	hash  uint64
	owner uint32
}

// mergePoints merges sorted points into those of the ring.
func (g *ring) mergePoints(added []ringPoint) {
	hashes, owners := g.hashes, g.owners
	g.makePoints(len(hashes) + len(added))
	from := 0 // points of the ring that were copied
	for i, p := range added {
		to, _ := slices.BinarySearch(hashes[from:], p.hash)
		to += from
		copy(g.hashes[from+i:], hashes[from:to])
		copy(g.owners[from+i:], owners[from:to])
		g.hashes[to+i], g.owners[to+i] = p.hash, p.owner
		from = to
	}
	copy(g.hashes[from+len(added):], hashes[from:])
	copy(g.owners[from+len(added):], owners[from:])
	for i, hash := range g.hashes {
		g.starts[hash>>g.shift+1] = uint32(i + 1)
	}
	for i := 1; i < len(g.starts); i++ {
		g.starts[i] = max(g.starts[i], g.starts[i-1])
	}
}

// replace puts the points and slots of a grown copy in force.
func (g *ring) replace(grown *ring) {
	g.slots, g.byID, g.halved = grown.slots, grown.byID, grown.halved
	g.hashes, g.owners, g.starts, g.shift = grown.hashes, grown.owners, grown.starts, grown.shift
}
