package routing

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

const (
	// defaultVirtualNodes keeps a worker's share of the keys within 8 % of its weight's share (a
	// relative error of 1/√points).
	defaultVirtualNodes = 150
	// maxPoints bounds a ring to 12 MiB, enough for weights of up to 6,990 in total at 150 points
	// each. Beyond that the points per unit of weight are halved until all fit. The points of
	// absent workers count too, so gateways may differ for a while.
	maxPoints = 1 << 20
	// maxWeight keeps the sum of all points within an integer.
	maxWeight = 1 << 30
	// maxAbsent bounds the absent workers that a ring remembers, but not below the pool's size.
	// Skipping an absent worker costs one step for each of its points.
	maxAbsent = 64
	// absentFor is how long an absent worker keeps its points, in case it returns.
	absentFor = time.Hour

	slotBits = 14            // bits of a point's owner that are the slot; the rest is the ordinal
	maxSlots = 1 << slotBits // workers that a ring can distinguish
	slotMask = uint32(maxSlots - 1)
	maxOwned = 1 << (32 - slotBits) // points that one worker can have
)

// ring is a consistent-hash ring over the IDs of the workers seen so far; it is equal on every
// gateway. Each unit of a worker's weight has `units` points. A point has an ordinal among its
// owner's points and counts only while the owner's weight reaches that ordinal. A smaller weight
// therefore changes nothing on the ring.
type ring struct {
	units       int // points per unit of weight, before halving for maxPoints
	halved      int // number of halvings
	least       int // least number of halvings
	slots       []slot
	byID        map[string]uint32
	slotByIndex []uint32 // slot by View.Index: a cache of byID
	hashes      []uint64 // of the points, ascending
	owners      []uint32 // of the points: ordinal<<slotBits | slot
	starts      []uint32 // by the upper bits of a hash: the first point at or above them
	shift       int      // right shift of a hash to its upper bits
	picks       uint64   // number of picks, which marks the eligible workers
	now         time.Time
}

type slot struct {
	id        string
	seed      uint64    // hash of the ID
	seen      time.Time // when it was last eligible
	maxWeight int       // the weight for which it has points
	live      uint32    // points that count at its present weight
	view      int32     // its index into the views of this pick
	pick      uint64    // the last pick in which it was eligible
	fit       bool      // it may be chosen in this pick
}

func newRing(units int) *ring { return &ring{units: units, byID: map[string]uint32{}} }

// update adapts the ring to ws. It costs one comparison per worker unless a worker is new or has a
// higher weight than ever before. It reports whether the ring has any of the workers.
func (g *ring) update(now time.Time, ws []View) bool {
	if now.After(g.now) { // requests reach the lock out of order of their time
		g.now = now
	}
	g.picks++
	for again := false; ; again = true {
		grow, entered := false, false
		for i := range ws {
			at, known := g.findSlot(&ws[i])
			if !known {
				grow = true
				continue
			}
			s := &g.slots[at]
			s.view, s.pick, s.seen = int32(i), g.picks, g.now
			s.live = max(1, uint32(float64(g.points(ws[i].Weight))*ws[i].weightShare()))
			grow, entered = grow || min(ws[i].Weight, maxWeight) > s.maxWeight, true
		}
		if !grow || again {
			return entered
		}
		g.rebuild(ws)
	}
}

func (g *ring) findSlot(v *View) (at uint32, known bool) {
	if v.Index < len(g.slotByIndex) {
		if at = g.slotByIndex[v.Index]; at < uint32(len(g.slots)) && g.slots[at].id == v.ID {
			return at, true
		}
	}
	if at, known = g.byID[v.ID]; known && v.Index < maxSlots {
		for v.Index >= len(g.slotByIndex) {
			g.slotByIndex = append(g.slotByIndex, 0)
		}
		g.slotByIndex[v.Index] = at
	}
	return at, known
}

// points returns the number of points of a weight, at least one.
func (g *ring) points(weight int) int { return max(1, min(weight, maxWeight)*g.units>>g.halved) }

// rebuild drops workers that are absent for long, adds new ones, and sorts all points.
func (g *ring) rebuild(ws []View) {
	g.dropAbsent(len(ws))
	clear(g.byID)
	for i := range g.slots {
		g.byID[g.slots[i].id] = uint32(i)
	}
	for i := range ws {
		at, known := g.byID[ws[i].ID]
		if !known {
			if len(g.slots) == maxSlots {
				continue // the ring works without it
			}
			at = g.addSlot(ws[i].ID)
		}
		s := &g.slots[at]
		s.maxWeight = max(s.maxWeight, slotWeight(ws[i].Weight))
	}
	g.limitPoints()
	g.sortPoints()
}

func (g *ring) addSlot(id string) uint32 {
	at := uint32(len(g.slots))
	g.slots = append(g.slots, slot{id: id, seed: hashID(id), seen: g.now})
	g.byID[id] = at
	return at
}

// slotWeight returns the weight for which a worker of a weight gets points: the next power of two, so that a changing
// weight rarely causes a rebuild.
func slotWeight(weight int) int { return 1 << bits.Len(uint(min(weight, maxWeight)-1)) }

// dropAbsent drops the workers that were not eligible for absentFor. Of the other absent workers it
// keeps the latest ones: maxAbsent, or as many as the pool has. All present workers have room.
func (g *ring) dropAbsent(workers int) {
	present := func(s slot) bool { return s.pick == g.picks }
	g.slots = slices.DeleteFunc(g.slots, func(s slot) bool { return !present(s) && g.now.Sub(s.seen) > absentFor })
	slices.SortStableFunc(g.slots, func(a, b slot) int { return cmp.Compare(b.pick, a.pick) }) // present ones first
	first := slices.IndexFunc(g.slots, func(s slot) bool { return !present(s) })
	absent := max(0, min(max(maxAbsent, len(g.slotByIndex)), maxSlots-workers))
	if maxLength := first + absent; first >= 0 && len(g.slots) > maxLength {
		clear(g.slots[maxLength:])
		g.slots = g.slots[:maxLength]
	}
}

// limitPoints halves the points per unit of weight until all points fit.
func (g *ring) limitPoints() {
	for g.halved = g.least; ; g.halved++ {
		total, largest := 0, 0
		for i := range g.slots {
			n := g.points(g.slots[i].maxWeight)
			total, largest = total+n, max(largest, n)
		}
		if total <= maxPoints && largest <= maxOwned {
			return
		}
	}
}

// sortPoints sorts the points of all slots into the ring: by the upper bits of their hashes, which are
// evenly distributed, then by insertion.
func (g *ring) sortPoints() {
	n := 0
	for i := range g.slots {
		n += g.points(g.slots[i].maxWeight)
	}
	g.makePoints(n)
	g.eachPoint(func(hash uint64, _ uint32) { g.starts[hash>>g.shift+1]++ })
	for i := 1; i < len(g.starts); i++ {
		g.starts[i] += g.starts[i-1]
	}
	next := slices.Clone(g.starts)
	g.eachPoint(func(hash uint64, owner uint32) {
		at := next[hash>>g.shift]
		next[hash>>g.shift]++
		for first := g.starts[hash>>g.shift]; at > first && g.hashes[at-1] > hash; at-- {
			g.hashes[at], g.owners[at] = g.hashes[at-1], g.owners[at-1]
		}
		g.hashes[at], g.owners[at] = hash, owner
	})
}

func (g *ring) makePoints(n int) {
	width := bits.Len(uint(n)) // about one point per start
	g.shift = 64 - width
	g.hashes, g.owners, g.starts = make([]uint64, n), make([]uint32, n), make([]uint32, 1<<width+1)
}

// eachPoint calls f for every point of every slot.
func (g *ring) eachPoint(f func(hash uint64, owner uint32)) {
	for i := range g.slots {
		for k := range g.points(g.slots[i].maxWeight) {
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

// next returns the slot of the first point from at on, clockwise, that counts and whose worker is
// eligible, and the position after it. At least one worker must be eligible.
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

// halvedBy returns an empty ring whose points per unit of weight are halved at least that often.
func (g *ring) halvedBy(times int) *ring {
	r := newRing(g.units)
	r.least = times
	return r
}

// eachWorker calls f for each worker with its place clockwise from the home, which is at s and at. The
// walk is bounded: workers that it does not meet share the last place.
func (g *ring) eachWorker(ws []View, s *slot, at int, f func(view, step int)) {
	met := 0
	for i := range ws {
		if place, known := g.findSlot(&ws[i]); known {
			g.slots[place].fit = true
		}
	}
	for points := 0; met < len(ws)-1 && points < recordedPoints*len(ws); points++ {
		if s.fit {
			s.fit = false
			f(int(s.view), met)
			met++
		}
		s, at = g.next(at)
	}
	for i := range ws {
		if place, known := g.findSlot(&ws[i]); !known || g.slots[place].fit {
			f(i, met)
		}
	}
}

// recordedPoints bounds the walk of eachWorker, per worker. Of sixteen equal workers, all but the last
// are met within three points per worker, but one of little weight may be thousands away.
const recordedPoints = 8

// point returns the hash of a worker's point of that ordinal.
func point(seed uint64, ordinal int) uint64 { return Mix(seed + (uint64(ordinal)+1)*golden) }

// hashID returns a hash of an ID that is the same in every process.
func hashID(id string) uint64 {
	h := uint64(len(id)) // distinguishes a from a\x00
	for i := range len(id) {
		h = Mix(h + golden ^ uint64(id[i]))
	}
	return h
}
