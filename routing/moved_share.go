package routing

import (
	"cmp"
	"slices"
)

// movedKeys is the number of keys in the estimate of MovedShare, for an error of 1.5 %.
const movedKeys = 4096

// MovedShare returns the share of prompts, 0 to 1, that have another home with the new members and policy than with the
// old ones. Those prompts lose their cache. It is an estimate from a fixed set of keys and ignores models. Only members
// with weight in the lowest group are homes.
//
// Between two policies without homes nothing moves; from or to such a policy everything moves. If
// the two configurations derive keys from prompts in different ways, all keys change.
func MovedShare(oldMembers []Member, oldConfig Config, newMembers []Member, newConfig Config) float64 {
	if homed := newConfig.Name == homing; (oldConfig.Name == homing) != homed {
		return 1
	} else if !homed {
		return 0
	}
	var offset uint64
	if oldConfig.MaxPrefixLength != newConfig.MaxPrefixLength ||
		(oldConfig.Depth == depthFixed) != (newConfig.Depth == depthFixed) {
		offset = movedKeys
	}
	old, new := newHomes(oldMembers, oldConfig.VirtualNodes, 0), newHomes(newMembers, newConfig.VirtualNodes, offset)
	if offset == 0 && old.units == new.units && slices.EqualFunc(old.members, new.members, sameHome) {
		return 0
	}
	from, to := old.find(), new.find()
	moved := 0
	for key := range from {
		if from[key] != to[key] {
			moved++
		}
	}
	return float64(moved) / movedKeys
}

// homing is the only policy with homes.
const homing = "chwbl"

// sameHome reports whether two members have the same points on a ring.
func sameHome(a, b *Member) bool { return a.ID == b.ID && a.Weight == b.Weight }

// homes finds the homes of movedKeys keys: the same as those on a ring, without sorting its points.
type homes struct {
	units   int
	offset  uint64    // of the first key
	members []*Member // with weight, of the lowest group
}

// newHomes returns the homes among members. units is the number of ring points per unit of weight (0: the default).
func newHomes(members []Member, units int, offset uint64) homes {
	h := homes{units: cmp.Or(units, defaultVirtualNodes), offset: offset}
	for i := range members {
		m := &members[i]
		if m.Weight <= 0 || len(h.members) > 0 && m.Group > h.members[0].Group {
			continue
		}
		if len(h.members) > 0 && m.Group < h.members[0].Group {
			h.members = h.members[:0]
		}
		h.members = append(h.members, m)
	}
	h.members = h.members[:min(len(h.members), maxSlots)]
	return h
}

// homeKey is a key with the nearest point clockwise among the points before the next key.
type homeKey struct {
	hash, distance uint64
	number         int
	home           string // empty without such a point
}

// find returns the IDs of the homes of all keys, which are empty without members.
func (h *homes) find() (owners [movedKeys]string) {
	keys := make([]homeKey, movedKeys)
	for i := range keys {
		keys[i] = homeKey{hash: Mix(h.offset + uint64(i) + 1), number: i}
	}
	slices.SortFunc(keys, func(a, b homeKey) int { return cmp.Compare(a.hash, b.hash) })
	const shift = 64 - 12 // about one key for each value of the upper bits
	var above [1<<(64-shift) + 1]int
	for i := range keys {
		above[keys[i].hash>>shift+1] = i + 1
	}
	for i := 1; i < len(above); i++ {
		above[i] = max(above[i], above[i-1])
	}
	g := ring{units: h.units}
	for _, m := range h.members {
		g.slots = append(g.slots, slot{seed: hashID(m.ID), maxWeight: slotWeight(m.Weight)})
	}
	g.limitPoints()
	for i, m := range h.members {
		for ordinal := range g.points(m.Weight) {
			p := point(g.slots[i].seed, ordinal)
			at := above[p>>shift] // of the first key with these upper bits
			for at < movedKeys && keys[at].hash <= p {
				at++
			}
			k := &keys[(at+movedKeys-1)%movedKeys]
			if distance := p - k.hash; k.home == "" || distance < k.distance {
				k.home, k.distance = m.ID, distance
			}
		}
	}
	next := "" // home of the next key clockwise
	for i := 2*movedKeys - 1; i >= 0; i-- {
		k := &keys[i%movedKeys]
		if k.home == "" {
			k.home = next
		}
		next = k.home
		owners[k.number] = k.home
	}
	return owners
}
