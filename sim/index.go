package sim

import (
	"fmt"
	"math/bits"
	"time"
)

const (
	// eventDelay is the time from a change of an engine's cache until a gateway receives its event.
	eventDelay = 10 * time.Millisecond
	// maxIndexed is the number of engines of an index: the bits of a word.
	maxIndexed = 64
)

// index is the content of the engines' caches by their events, as a gateway gets them, and the prompts that
// were routed recently.
type index struct {
	simulation *Simulation
	cached     []uint64 // by the block's number: the engines that have it
	routed     []uint64 // the engines that a prompt with the block was recently routed to
	counts     []uint16 // by block and engine: the number of these prompts
	changes    []cacheChange
	hits       []int // buffer of one look-up, by engine
}

// cacheChange is a change with an event that the gateway has not received yet.
type cacheChange struct {
	at     time.Duration // time at which the gateway receives it
	number int32
	engine uint8
	stored bool
}

// openIndex gives the simulation an index.
func (w *Simulation) openIndex() error {
	if w.index != nil {
		return nil
	}
	if len(w.engines) > maxIndexed {
		return fmt.Errorf("an index of the caches has at most %d engines, and there are %d", maxIndexed, len(w.engines))
	}
	x := &index{simulation: w, hits: make([]int, len(w.engines))}
	for i, e := range w.engines {
		e.cache.onChange = func(number int32, stored bool) {
			x.changes = append(x.changes, cacheChange{w.now + eventDelay, number, uint8(i), stored})
		}
	}
	w.index = x
	return nil
}

// grow makes room for all blocks that have a number.
func (x *index) grow() {
	if missing := len(x.simulation.numbers) - len(x.cached); missing > 0 {
		missing += len(x.cached) / 2
		x.cached = append(x.cached, make([]uint64, missing)...)
		x.routed = append(x.routed, make([]uint64, missing)...)
		x.counts = append(x.counts, make([]uint16, missing*len(x.simulation.engines))...)
	}
}

// advance applies the changes that the gateway has received by now.
func (x *index) advance() {
	x.grow()
	n := 0
	for ; n < len(x.changes) && x.changes[n].at <= x.simulation.now; n++ {
		c := x.changes[n]
		if bit := uint64(1) << c.engine; c.stored {
			x.cached[c.number] |= bit
		} else {
			x.cached[c.number] &^= bit
		}
	}
	x.changes = x.changes[n:]
}

// lookUp returns how many leading blocks each engine has. With routed, prompts that were routed recently
// count as cached. The result is valid until the next call.
func (x *index) lookUp(numbers []int32, routed bool) []int {
	x.advance()
	left := ^uint64(0) >> (maxIndexed - len(x.hits))
	for depth, number := range numbers {
		have := x.cached[number]
		if routed {
			have |= x.routed[number]
		}
		for gone := left &^ have; gone != 0; gone &= gone - 1 {
			x.hits[bits.TrailingZeros64(gone)] = depth
		}
		if left &= have; left == 0 {
			break
		}
	}
	for ; left != 0; left &= left - 1 {
		x.hits[bits.TrailingZeros64(left)] = len(numbers)
	}
	return x.hits
}

// addRouted counts a prompt as cached on the engine before its events have arrived. removeRouted reverts it.
func (x *index) addRouted(numbers []int32, engine int) {
	x.grow()
	for _, number := range numbers {
		x.counts[int(number)*len(x.hits)+engine]++
		x.routed[number] |= 1 << engine
	}
}

func (x *index) removeRouted(numbers []int32, engine int) {
	for _, number := range numbers {
		count := &x.counts[int(number)*len(x.hits)+engine]
		if *count--; *count == 0 {
			x.routed[number] &^= 1 << engine
		}
	}
}
