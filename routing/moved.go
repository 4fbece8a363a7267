package routing

import "time"

// movedKeys is how many keys MovedShare looks at: the share is then known within
// one and a half in a hundred, which is less than what the ring's own points
// leave open.
const movedKeys = 4096

// MovedShare returns the share of prompts, from 0 to 1, whose home is another
// worker among the members after than among those before: whose cached beginning
// is lost to them. It is an estimate from a fixed set of keys, the same for the
// same members. Of each set only the members with weight in the lowest group have
// homes. Under a policy that knows no homes nothing moves; where one of the sets is
// empty, everything does. Which models a member serves is not looked at.
func MovedShare(before, after []Member, c Config) float64 {
	if c.Name != "chwbl" {
		return 0
	}
	units := defaultVirtualNodes
	if c.VirtualNodes > 0 {
		units = c.VirtualNodes
	}
	old, new := homes(before, units), homes(after, units)
	moved := 0
	for key := range old {
		if old[key] != new[key] {
			moved++
		}
	}
	return float64(moved) / movedKeys
}

// homes returns the members that the keys belong to; the empty ID where there is
// none.
func homes(members []Member, units int) [movedKeys]string {
	var ws []View
	for i := range members {
		m := &members[i]
		if m.Weight <= 0 || len(ws) > 0 && m.Group > ws[0].Group {
			continue
		}
		if len(ws) > 0 && m.Group < ws[0].Group {
			ws = ws[:0]
		}
		ws = append(ws, View{ID: m.ID, Index: len(ws), Weight: m.Weight, Group: m.Group})
	}
	var owners [movedKeys]string
	g := newRing(units)
	if !g.enter(time.Time{}, ws) {
		return owners
	}
	for key := range owners {
		s, _ := g.next(g.first(mix(uint64(key) + 1)))
		owners[key] = s.id
	}
	return owners
}
