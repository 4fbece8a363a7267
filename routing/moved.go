package routing

import "time"

// movedKeys is how many keys MovedShare looks at: the share is then known within
// one and a half in a hundred, which is less than what the ring's own points
// leave open.
const movedKeys = 4096

// MovedShare returns the share of prompts, from 0 to 1, whose home is another
// worker among the members after, under the policy is, than among those before,
// under the policy was: whose cached beginning is lost to them. It is an estimate
// from a fixed set of keys, the same for the same arguments. Of each set only the
// members with weight in the lowest group have homes. A policy that knows no homes
// has none to lose: between two of them nothing moves, from or to one everything
// does, as where one of the sets is empty. Policies that tell prompts apart in
// different ways count as if every prompt had another key, which short ones may
// not have. Which models a member serves is not looked at.
func MovedShare(before []Member, was Config, after []Member, is Config) float64 {
	if homed := is.Name == homing; (was.Name == homing) != homed {
		return 1
	} else if !homed {
		return 0
	}
	var offset uint64
	if was.MaxPrefixLength != is.MaxPrefixLength || (was.Depth == "fixed") != (is.Depth == "fixed") {
		offset = movedKeys
	}
	old, new := homes(before, was.VirtualNodes, 0), homes(after, is.VirtualNodes, offset)
	moved := 0
	for key := range old {
		if old[key] != new[key] {
			moved++
		}
	}
	return float64(moved) / movedKeys
}

// homing is the only policy that knows homes.
const homing = "chwbl"

// homes returns the members that the keys from offset on belong to, on a ring with
// so many points for each unit of weight, 0 being the default; the empty ID where
// there is none.
func homes(members []Member, units int, offset uint64) [movedKeys]string {
	if units == 0 {
		units = defaultVirtualNodes
	}
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
		s, _ := g.next(g.first(Mix(offset + uint64(key) + 1)))
		owners[key] = s.id
	}
	return owners
}
