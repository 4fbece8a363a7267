package routing

import (
	"cmp"
	"time"
)

// movedKeys is the number of keys in the estimate of MovedShare, for an error of 1.5 %.
const movedKeys = 4096

// MovedShare returns the share of prompts, 0 to 1, whose home changes if members and policy change
// from before and was to after and is. Those prompts lose their cache. It is an estimate from a
// fixed set of keys and ignores models. Only members with weight in the lowest group are homes.
//
// Between two policies without homes nothing moves; from or to such a policy everything moves. If
// the two configurations derive keys from prompts in different ways, all keys change.
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

// homes returns the IDs of the homes of movedKeys keys from offset on. units is the number of ring
// points per unit of weight (0: the default). The IDs are empty without members.
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
	if !g.update(time.Time{}, ws) {
		return owners
	}
	for key := range owners {
		s, _ := g.next(g.first(Mix(offset + uint64(key) + 1)))
		owners[key] = s.id
	}
	return owners
}
