package kvindex

import (
	"math/bits"

	"tierway/workers/kvevents"
)

// Match is the cached prefix of one worker.
type Match struct {
	Blocks   int          // blocks of the prefix
	ByMedium [mediums]int // Blocks by [kvevents.Medium]: the fastest medium that has the block
}

// Overlap writes the cached prefix of each worker into matches, by the worker's ID. keys are those
// of a prompt's blocks, in order.
func (x *Index) Overlap(keys []uint64, matches *[MaxWorkers]Match) {
	*matches = [MaxWorkers]Match{}
	var s scan
	x.mu.RLock()
	defer x.mu.RUnlock()
	// left: workers that have all blocks before at; fit: those of which these are a cached prefix
	left, fit, at := x.visible, x.visible, 0
	for ; at < len(keys) && left != 0; at++ {
		e := x.entries.get(keys[at])
		left &= e.any()
		fits := left &^ s.unfit(x, &e, left, at)
		s.end(matches, fit&^fits, at)
		fit = fits
		s.count(&e, left)
	}
	s.end(matches, fit, at)
}

// scan is the state of a look-up behind the blocks that it has read.
type scan struct {
	slow [MaxWorkers][mediums]int // blocks of each worker that are not on the GPU

	missing [maxSliding]uint64             // workers of which a sliding-window group lacks the last block
	growing [maxSliding]uint64             // of which the group has the last blocks, and not yet a window
	since   [maxSliding][MaxWorkers]uint32 // first of these blocks
}

// unfit takes the next block of a prompt and returns the workers of which a sliding-window group
// lacks a part of the last window. Its cost is that of the groups' number, and of changes.
func (s *scan) unfit(x *Index, e *entry, left uint64, at int) (unfit uint64) {
	for g := range x.slidingGroups {
		var has uint64
		if e.sliding != nil {
			has = e.sliding[g]
		}
		missing := x.sliding[g] & left &^ has
		begun := s.missing[g] & has
		for w := begun; w != 0; w &= w - 1 {
			s.since[g][bits.TrailingZeros64(w)] = uint32(at)
		}
		s.missing[g] = missing
		s.growing[g] = (s.growing[g] | begun) & left &^ missing
		for w := s.growing[g]; w != 0; w &= w - 1 {
			id := bits.TrailingZeros64(w)
			if at+1-int(s.since[g][id]) >= x.needs[g][id] {
				s.growing[g] &^= 1 << id
			}
		}
		unfit |= missing | s.growing[g]
	}
	return unfit
}

// count counts a block that workers do not have on the GPU.
func (s *scan) count(e *entry, workers uint64) {
	slow := workers &^ e.holders[kvevents.GPU]
	for has := slow & e.holders[kvevents.CPU]; has != 0; has &= has - 1 {
		s.slow[bits.TrailingZeros64(has)][kvevents.CPU]++
	}
	for has := slow &^ e.holders[kvevents.CPU]; has != 0; has &= has - 1 {
		s.slow[bits.TrailingZeros64(has)][kvevents.Disk]++
	}
}

// end writes the match of workers of which the blocks before at are a cached prefix, and one more is
// not.
func (s *scan) end(matches *[MaxWorkers]Match, workers uint64, at int) {
	for ; workers != 0; workers &= workers - 1 {
		id := bits.TrailingZeros64(workers)
		slow := s.slow[id]
		slow[kvevents.GPU] = at - slow[kvevents.CPU] - slow[kvevents.Disk]
		matches[id] = Match{Blocks: at, ByMedium: slow}
	}
}
