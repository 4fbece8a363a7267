package kvindex

import "tierway/workers/kvevents"

// maxGroups is the number of groups without full attention that are remembered for one worker.
// Engines have up to ten.
const maxGroups = 64

// unusable is the place of a group that is ignored.
const unusable = -1

// group is a KV-cache group without full attention. A removal states its number and not its kind.
type group struct {
	number int // of the engine
	place  int // among the sliding-window groups; unusable for other groups
}

// placeOf is the place of a sliding-window group, or unusable. special is false for the number of a
// full-attention group.
func (w *Worker) placeOf(number int) (place int, special bool) {
	for _, g := range w.groups {
		if g.number == number {
			return g.place, true
		}
	}
	return unusable, false
}

// remember returns the place of the group that an event names. A group of another kind, or beyond
// maxSliding, is unusable.
func (w *Worker) remember(e *kvevents.Event) int {
	place, special := w.placeOf(e.Group)
	if special || len(w.groups) == maxGroups || w.blockSize == 0 {
		return place
	}
	if e.Sliding && w.slidingGroups < maxSliding {
		place = w.slidingGroups
		w.slidingGroups++
		w.index.setWindow(w.id, place, windowBlocks(e.Window, w.blockSize))
	}
	w.groups = append(w.groups, group{e.Group, place})
	return place
}

// windowBlocks is the number of blocks behind which a new token needs no more of its prefix.
func windowBlocks(window, blockSize int) int {
	if window <= 1 || blockSize == 0 {
		return 0
	}
	return (window - 1 + blockSize - 1) / blockSize
}

// setWindow states that prefixes of a worker need so many blocks in a sliding-window group.
func (x *Index) setWindow(worker, place, blocks int) {
	if blocks > 0 {
		x.slidingGroups = max(x.slidingGroups, place+1)
		x.sliding[place] |= 1 << worker
		x.needs[place][worker] = blocks
	}
}

func (w *Worker) forgetGroups() {
	w.groups, w.slidingGroups = nil, 0
	for g := range w.index.sliding {
		w.index.sliding[g] &^= 1 << w.id
	}
}
