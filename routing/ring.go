package routing

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

const (
	// defaultVirtualNodes puts a worker's share of the keys within 8 % of its
	// weight's (one part in the square root of the points).
	defaultVirtualNodes = 150
	// maxPoints bounds a ring to 12 MiB, enough for weights that sum up to 6,990 at 150
	// points each. Beyond that the points of a unit of weight are halved until all fit.
	// Those of absent workers count, so that gateways may differ for a while.
	maxPoints = 1 << 20
	// maxWeight keeps the sum of all points within an integer.
	maxWeight = 1 << 30
	// maxAbsent bounds the absent workers that a ring remembers, but never below the
	// pool's size. Skipping one costs a step for each of its points.
	maxAbsent = 64
	// absentFor is how long an absent worker keeps its points: less work if it comes back.
	absentFor = time.Hour

	slotBits = 14            // of a point's owner; the rest is the ordinal
	maxSlots = 1 << slotBits // workers that a ring can tell apart
	slotMask = uint32(maxSlots - 1)
	maxOwned = 1 << (32 - slotBits) // points that one worker can have
)

// ring is a consistent-hash ring over the workers that were seen, by ID: equal on every
// gateway. Each unit of a worker's weight is `units` points. A point has its ordinal among
// its owner's and counts only while the owner's weight reaches that far, so that a smaller
// weight changes nothing on the ring.
type ring struct {
	units  int // points for each unit of weight, before maxPoints halves them
	halved int // how often it did
	least  int // how often at least
	slots  []slot
	byID   map[string]uint32
	places []uint32 // View.Index to slot: where to look first
	hashes []uint64 // of the points, ascending
	owners []uint32 // of the points: ordinal<<slotBits | slot
	starts []uint32 // by the upper bits of a hash: the first point at or above them
	shift  int      // how far a hash goes down to its upper bits
	picks  uint64   // stamps who is eligible
	now    time.Time
}

// slot is one worker on the ring.
type slot struct {
	id   string
	seed uint64    // hash of the id
	seen time.Time // when it was last eligible
	room int       // the weight that it has points for
	live uint32    // its points that count at its present weight
	view int32     // its index into the views of this pick
	pick uint64    // the last pick that it was eligible in
	fit  bool      // it is fit to be chosen in this pick
}

func newRing(units int) *ring { return &ring{units: units, byID: map[string]uint32{}} }

// enter makes the ring that of ws. It costs a comparison per worker unless there is a new
// one, or one with more weight than ever. It reports whether the ring has any of them.
func (g *ring) enter(now time.Time, ws []View) bool {
	if now.After(g.now) { // requests reach the lock in another order than they were stamped
		g.now = now
	}
	g.picks++
	for again := false; ; again = true {
		grow, entered := false, false
		for i := range ws {
			at, known := g.find(&ws[i])
			if !known {
				grow = true
				continue
			}
			s := &g.slots[at]
			s.view, s.pick, s.seen = int32(i), g.picks, g.now
			s.live = uint32(g.points(ws[i].Weight))
			grow, entered = grow || min(ws[i].Weight, maxWeight) > s.room, true
		}
		if !grow || again {
			return entered
		}
		g.rebuild(ws)
	}
}

func (g *ring) find(v *View) (at uint32, known bool) {
	if v.Index < len(g.places) {
		if at = g.places[v.Index]; at < uint32(len(g.slots)) && g.slots[at].id == v.ID {
			return at, true
		}
	}
	if at, known = g.byID[v.ID]; known && v.Index < maxSlots {
		for v.Index >= len(g.places) {
			g.places = append(g.places, 0)
		}
		g.places[v.Index] = at
	}
	return at, known
}

// points returns how many points a weight is worth, at least one.
func (g *ring) points(weight int) int { return max(1, min(weight, maxWeight)*g.units>>g.halved) }

// rebuild forgets long absent workers, adds new ones, and sorts all points.
func (g *ring) rebuild(ws []View) {
	g.forget(len(ws))
	clear(g.byID)
	for i := range g.slots {
		g.byID[g.slots[i].id] = uint32(i)
	}
	for i := range ws {
		at, known := g.byID[ws[i].ID]
		if !known {
			if at = uint32(len(g.slots)); at == maxSlots {
				continue // the ring does without it
			}
			g.slots = append(g.slots, slot{id: ws[i].ID, seed: hashID(ws[i].ID)})
			g.byID[ws[i].ID] = at
		}
		// The next power of two, so that a weight in motion seldom rebuilds.
		s := &g.slots[at]
		s.room = max(s.room, 1<<bits.Len(uint(min(ws[i].Weight, maxWeight)-1)))
	}
	g.fit()
	g.place()
}

// forget drops the slots that were not eligible for absentFor, and of the others that are
// absent those longest gone beyond maxAbsent or the pool. All that are present have room.
func (g *ring) forget(workers int) {
	present := func(s slot) bool { return s.pick == g.picks }
	g.slots = slices.DeleteFunc(g.slots, func(s slot) bool { return !present(s) && g.now.Sub(s.seen) > absentFor })
	slices.SortStableFunc(g.slots, func(a, b slot) int { return cmp.Compare(b.pick, a.pick) }) // the present first
	first := slices.IndexFunc(g.slots, func(s slot) bool { return !present(s) })
	absent := max(0, min(max(maxAbsent, len(g.places)), maxSlots-workers))
	if most := first + absent; first >= 0 && len(g.slots) > most {
		clear(g.slots[most:])
		g.slots = g.slots[:most]
	}
}

// fit halves the points of a unit of weight until all fit.
func (g *ring) fit() {
	for g.halved = g.least; ; g.halved++ {
		total, most := 0, 0
		for i := range g.slots {
			n := g.points(g.slots[i].room)
			total, most = total+n, max(most, n)
		}
		if total <= maxPoints && most <= maxOwned {
			return
		}
	}
}

// place sorts the points of all slots into the ring: by the upper bits of their hashes,
// which are even, then by moving each to its place.
func (g *ring) place() {
	n := 0
	for i := range g.slots {
		n += g.points(g.slots[i].room)
	}
	width := bits.Len(uint(n)) // about one point for each start
	g.shift = 64 - width
	g.hashes, g.owners, g.starts = make([]uint64, n), make([]uint32, n), make([]uint32, 1<<width+1)
	g.each(func(hash uint64, _ uint32) { g.starts[hash>>g.shift+1]++ })
	for i := 1; i < len(g.starts); i++ {
		g.starts[i] += g.starts[i-1]
	}
	next := slices.Clone(g.starts)
	g.each(func(hash uint64, owner uint32) {
		at := next[hash>>g.shift]
		next[hash>>g.shift]++
		for first := g.starts[hash>>g.shift]; at > first && g.hashes[at-1] > hash; at-- {
			g.hashes[at], g.owners[at] = g.hashes[at-1], g.owners[at-1]
		}
		g.hashes[at], g.owners[at] = hash, owner
	})
}

// each calls f with every point of every slot.
func (g *ring) each(f func(hash uint64, owner uint32)) {
	for i := range g.slots {
		for k := range g.points(g.slots[i].room) {
			f(point(g.slots[i].seed, k), uint32(k)<<slotBits|uint32(i))
		}
	}
}

// first returns the first point at or clockwise of a hash.
func (g *ring) first(hash uint64) int {
	at := int(g.starts[hash>>g.shift])
	for at < len(g.hashes) && g.hashes[at] < hash {
		at++
	}
	return at
}

// next returns the slot of the first point from at on, clockwise, that counts and whose
// worker is eligible, and where to go on. Some worker must be eligible.
func (g *ring) next(at int) (*slot, int) {
	for {
		if at >= len(g.owners) {
			at = 0
		}
		owner := g.owners[at]
		at++
		if s := &g.slots[owner&slotMask]; s.pick == g.picks && owner>>slotBits < s.live {
			return s, at
		}
	}
}

// point returns a worker's point of that ordinal.
func point(seed uint64, ordinal int) uint64 { return Mix(seed + (uint64(ordinal)+1)*golden) }

// hashID returns a hash of an ID that is the same in every process.
func hashID(id string) uint64 {
	h := uint64(len(id)) // tells a from a\x00
	for i := range len(id) {
		h = Mix(h + golden ^ uint64(id[i]))
	}
	return h
}
