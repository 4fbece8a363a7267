package routing

import (
	"cmp"
	"time"
)

// movedKeys is how many keys MovedShare looks at, for an error of 1.5 %.
const movedKeys = 4096

// MovedShare returns the share of prompts, from 0 to 1, whose home moves, so that their cache
// is lost, if members and policy change from before and was to after and is. It is an
// estimate from a fixed set of keys. Only members with weight in the lowest group have homes.
// Between two policies without homes nothing moves; from or to one everything does. If the
// policies make keys of prompts in different ways, every key is another one. Models are not
// considered.
func MovedShare(before []Member, was Config, after []Member, is Config) float64 {
	if homed := is.Name == homing; (was.Name == homing) != homed {
		return 1
	} else if !homed {
		return 0
	}
	var offset uint64
	if was.MaxPrefixLength != is.MaxPrefixLength || (was.Depth == depthFixed) != (is.Depth == depthFixed) {
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

// homing is the only policy with homes.
const homing = "chwbl"

// homes returns the IDs of the homes of the keys from offset on, on a ring with so many
// points per unit of weight (0: the default); empty without members.
func homes(members []Member, units int, offset uint64) [movedKeys]string {
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
	g := newRing(cmp.Or(units, defaultVirtualNodes))
	if !g.enter(time.Time{}, ws) {
		return owners
	}
	for key := range owners {
		s, _ := g.next(g.first(Mix(offset + uint64(key) + 1)))
		owners[key] = s.id
	}
	return owners
}
