package kvindex

import (
	"math"

	"tierway/workers/kvevents"
)

// Worker is one worker of an index.
type Worker struct {
	index     *Index
	id        int
	namespace string

	blocks  map[uint64]block // by the engine's hash
	counts  Counts
	oldest  ring // hashes in the order of their first store, for the budget
	removed bool

	slidingGroups uint8 // sliding-window groups that the engine has, as a set of bits
	groupNumbers  []int // engine's number of each sliding-window group
	windows       []int // tokens of each group's window
	blockSize     int   // tokens of the last block that was stored
}

// block is what a worker holds under one hash: copies by medium in full-attention groups, and in
// each sliding-window group.
type block struct {
	key     uint64
	full    [3]uint8
	sliding [maxSliding]uint8
}

func (b *block) empty() bool { return b.full == [3]uint8{} && b.sliding == [maxSliding]uint8{} }

// Counts are what a worker's events came to, for metrics.
type Counts struct {
	Stored    int // blocks that were stored
	Removed   int // blocks that were removed
	Unknown   int // blocks or removals of a hash that is not known, or after such a block
	Evicted   int // blocks that the budget has displaced
	Unusable  int // blocks of groups that represent no prefix
	Resettled int // hashes that were stored again with other tokens
}

// ID is the worker's place in the matches of Overlap.
func (w *Worker) ID() int { return w.id }

// Counts returns what the events came to so far.
func (w *Worker) Counts() Counts {
	w.index.mu.RLock()
	defer w.index.mu.RUnlock()
	return w.counts
}

// Len is the number of blocks that the worker has.
func (w *Worker) Len() int {
	w.index.mu.RLock()
	defer w.index.mu.RUnlock()
	return len(w.blocks)
}

// BlockSize is the number of tokens of the engine's blocks; 0 before the first event.
func (w *Worker) BlockSize() int {
	w.index.mu.RLock()
	defer w.index.mu.RUnlock()
	return w.blockSize
}

// Reset forgets all blocks.
func (w *Worker) Reset() {
	w.index.mu.Lock()
	defer w.index.mu.Unlock()
	w.clear()
}

// Remove takes the worker out of its index. It has no effect on a worker that was removed.
func (w *Worker) Remove() {
	w.index.mu.Lock()
	defer w.index.mu.Unlock()
	if !w.removed {
		w.clear()
		w.removed = true
		w.index.workers[w.id] = nil
		w.index.count--
	}
}

func (w *Worker) clear() {
	for _, b := range w.blocks {
		w.forget(b.key)
	}
	w.blocks, w.oldest = map[uint64]block{}, ring{}
}

// forget takes the worker out of an entry.
func (w *Worker) forget(key uint64) {
	e, ok := w.index.entries[key]
	if !ok {
		return
	}
	for m := range e.holders {
		e.holders[m] &^= 1 << w.id
	}
	for i, h := range e.sliding {
		if int(h.worker) == w.id {
			e.sliding = append(e.sliding[:i], e.sliding[i+1:]...)
			break
		}
	}
	w.index.put(key, e)
}

// put keeps an entry unless no worker has its block.
func (x *Index) put(key uint64, e entry) {
	if e.any() == 0 && len(e.sliding) == 0 {
		delete(x.entries, key)
	} else {
		x.entries[key] = e
	}
}

// Apply takes the events of one batch. Stores of full-attention groups come first, because their
// tokens say what the hashes of the other groups are.
func (w *Worker) Apply(batch *kvevents.Batch) {
	w.index.mu.Lock()
	defer w.index.mu.Unlock()
	if w.removed {
		return
	}
	from := 0
	for i := range batch.Events { // a removal before a store belongs to an earlier copy
		if e := &batch.Events[i]; e.Kind == kvevents.Cleared {
			w.applyRun(batch.Events[from:i])
			w.clear()
			from = i + 1
		}
	}
	w.applyRun(batch.Events[from:])
}

func (w *Worker) applyRun(events []kvevents.Event) {
	for i := range events {
		switch e := &events[i]; {
		case e.Kind == kvevents.Removed:
			w.remove(e)
		case e.Other:
			w.counts.Unusable += len(e.Hashes)
		case !e.Sliding:
			w.store(e)
		}
	}
	for i := range events {
		if e := &events[i]; e.Kind == kvevents.Stored && e.Sliding {
			w.storeSliding(e)
		}
	}
}

// store takes a store of a full-attention group.
func (w *Worker) store(e *kvevents.Event) {
	if len(e.Tokens) == 0 {
		w.copyBlocks(e)
		return
	}
	w.blockSize = e.BlockSize
	parent := Root(w.namespace, e.BlockSize)
	if e.HasParent {
		b, ok := w.blocks[e.Parent]
		switch {
		case ok:
			parent = b.key
		case e.Parent != 0: // some engines send 0 for no parent
			w.counts.Unknown += len(e.Hashes)
			return
		}
	}
	reused := true
	for i, hash := range e.Hashes {
		extra := uint64(0)
		if e.Extra != nil {
			extra = e.Extra[i]
		}
		parent = next(parent, e.Tokens[i*e.BlockSize:(i+1)*e.BlockSize], extra)
		b, known := w.blocks[hash]
		if known && b.key != parent {
			w.counts.Resettled++
			w.forget(b.key)
			b = block{}
		}
		// The blocks of an event were computed from the first missing one on. Known blocks at its
		// beginning are a report of what was reused, which no removal will match; the last block
		// of an event is always computed.
		reused = reused && known && b.key == parent && b.full[e.Medium] > 0
		if reused && i < len(e.Hashes)-1 {
			continue
		}
		if !known {
			w.admit(hash)
		}
		b.key = parent
		w.addCopy(hash, b, e.Medium)
	}
}

// copyBlocks takes a store of blocks that were copied to another medium, without their tokens.
func (w *Worker) copyBlocks(e *kvevents.Event) {
	for _, hash := range e.Hashes {
		if b, ok := w.blocks[hash]; ok {
			w.addCopy(hash, b, e.Medium)
		} else {
			w.counts.Unknown++
		}
	}
}

func (w *Worker) addCopy(hash uint64, b block, m kvevents.Medium) {
	w.counts.Stored++
	if b.full[m] < math.MaxUint8 {
		b.full[m]++
	}
	w.blocks[hash] = b
	x := w.index.entries[b.key]
	x.holders[m] |= 1 << w.id
	w.index.entries[b.key] = x
}

// storeSliding takes a store of a sliding-window group, whose blocks have the hashes of the
// full-attention group.
func (w *Worker) storeSliding(e *kvevents.Event) {
	g := w.slidingGroup(e)
	if g < 0 {
		w.counts.Unusable += len(e.Hashes)
		return
	}
	for _, hash := range e.Hashes {
		b, ok := w.blocks[hash]
		if !ok {
			w.counts.Unknown++
			continue
		}
		if b.sliding[g] < math.MaxUint8 {
			b.sliding[g]++
		}
		w.blocks[hash] = b
		x := w.index.entries[b.key]
		x.setSliding(w.id, x.slidingOf(w.id)|1<<g)
		w.index.entries[b.key] = x
	}
}

// slidingGroup is the place of an event's sliding-window group; -1 if there are too many.
func (w *Worker) slidingGroup(e *kvevents.Event) int {
	for g, number := range w.groupNumbers {
		if number == e.Group {
			return g
		}
	}
	g := len(w.groupNumbers)
	if g == maxSliding {
		return -1
	}
	w.groupNumbers, w.windows = append(w.groupNumbers, e.Group), append(w.windows, e.Window)
	w.slidingGroups |= 1 << g
	return g
}

// remove takes a removal. It states the group's number and not its kind.
func (w *Worker) remove(e *kvevents.Event) {
	g := -1
	for i, number := range w.groupNumbers {
		if number == e.Group {
			g = i
		}
	}
	for _, hash := range e.Hashes {
		b, ok := w.blocks[hash]
		if !ok {
			w.counts.Unknown++
			continue
		}
		copies := &b.full[e.Medium]
		if g >= 0 {
			copies = &b.sliding[g]
		}
		if *copies == 0 {
			w.counts.Unknown++
			continue
		}
		*copies--
		w.counts.Removed++
		x := w.index.entries[b.key]
		switch {
		case *copies > 0:
		case g >= 0:
			x.setSliding(w.id, x.slidingOf(w.id)&^(1<<g))
		default:
			x.holders[e.Medium] &^= 1 << w.id
		}
		if b.empty() {
			delete(w.blocks, hash)
			w.forget(b.key)
			continue
		}
		w.blocks[hash] = b
		w.index.entries[b.key] = x
	}
}

// shorten cuts a match to the longest prefix of which each sliding-window group has the last
// window.
func (w *Worker) shorten(keys []uint64, m *Match) {
	if w.blockSize == 0 {
		return
	}
	var run [maxSliding]int // blocks in a row that each group has, up to the present one
	fits := 0
	var byMedium, media [3]int
	for i, key := range keys[:m.Blocks] {
		e := w.index.entries[key]
		groups, all := e.slidingOf(w.id), true
		for g, window := range w.windows {
			if run[g]++; groups&(1<<g) == 0 {
				run[g] = 0
			}
			need := (max(window, 1) - 1 + w.blockSize - 1) / w.blockSize
			all = all && run[g] >= min(need, i+1)
		}
		for medium, holders := range e.holders {
			if holders&(1<<w.id) != 0 {
				media[medium]++
				break
			}
		}
		if all {
			fits, byMedium = i+1, media
		}
	}
	m.Blocks, m.ByMedium = fits, byMedium
}

// admit makes room for one more block within the budget: the block that was stored first goes.
func (w *Worker) admit(hash uint64) {
	for len(w.blocks) >= w.index.perWorker() {
		oldest, ok := w.oldest.pop()
		if !ok {
			break
		}
		if b, ok := w.blocks[oldest]; ok {
			delete(w.blocks, oldest)
			w.forget(b.key)
			w.counts.Evicted++
		}
	}
	w.oldest.push(hash)
	if w.oldest.len() > 2*len(w.blocks)+64 {
		w.oldest.keep(func(hash uint64) bool { _, ok := w.blocks[hash]; return ok })
		w.oldest.push(hash)
	}
}
