package kvindex

import (
	"sync"

	"tierway/workers/kvevents"
)

// Worker is one worker of an index.
type Worker struct {
	index     *Index
	id        int
	namespace string

	mu sync.Mutex // one change at a time; locked before that of the index, which guards the rest

	tree    tree
	counts  Counts
	onGPU   int // blocks with a copy on the GPU
	steps   int // blocks since the lock of the index was released
	removed bool

	aging aging

	groups        []group
	slidingGroups int // number of these that are sliding-window groups in use
	blockSize     int // tokens of a block on the GPU, or in another medium if the GPU had none
	offloadSize   int // tokens of the last block in another medium
}

// Counts are the results of a worker's events, for metrics.
type Counts struct {
	Stored    int // blocks that were stored
	Removed   int // blocks that were removed
	Unknown   int // stores behind an unknown parent, and copies and removals of an unknown hash
	Evicted   int // blocks that were dropped to keep the budget
	Unusable  int // blocks of groups that represent no prefix
	Resettled int // hashes that were stored again with other tokens
	Aged      int // blocks in slower media that were dropped, because the engine publishes no removals from them
}

// ID is the worker's place in the matches of Overlap.
func (w *Worker) ID() int { return w.id }

// Counts returns the results of all events so far.
func (w *Worker) Counts() Counts {
	w.index.mu.RLock()
	defer w.index.mu.RUnlock()
	return w.counts
}

// Len is the number of blocks that take memory.
func (w *Worker) Len() int {
	w.index.mu.RLock()
	defer w.index.mu.RUnlock()
	return w.tree.count
}

// OnGPU is the number of blocks of which a copy is on the GPU.
func (w *Worker) OnGPU() int {
	w.index.mu.RLock()
	defer w.index.mu.RUnlock()
	return w.onGPU
}

// BlockSize is the number of tokens of the engine's blocks on the GPU, or in another medium before the
// first of these; 0 before the first event.
func (w *Worker) BlockSize() int {
	w.index.mu.RLock()
	defer w.index.mu.RUnlock()
	return w.blockSize
}

// OffloadSize is the number of tokens of the engine's blocks in other media than the GPU's memory if it is not
// BlockSize; else 0.
func (w *Worker) OffloadSize() int {
	w.index.mu.RLock()
	defer w.index.mu.RUnlock()
	if w.offloadSize == w.blockSize {
		return 0
	}
	return w.offloadSize
}

// Reset removes all blocks, and forgets the engine's groups and the media from which it removes blocks.
func (w *Worker) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.index.mu.Lock()
	defer w.index.mu.Unlock()
	w.clear()
	w.forgetGroups()
	w.aging.removes = [mediums]bool{}
}

// Remove takes the worker out of its index. It has no effect on a worker that was removed. A batch
// that is being applied is cut short.
func (w *Worker) Remove() {
	if !w.markRemoved() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.index.mu.Lock()
	defer w.index.mu.Unlock()
	w.clear()
	w.forgetGroups()
	w.index.workers[w.id] = nil
	w.index.count--
}

// markRemoved reports whether the worker was not removed before.
func (w *Worker) markRemoved() bool {
	w.index.mu.Lock()
	defer w.index.mu.Unlock()
	first := !w.removed
	w.removed = true
	return first
}

// lockSteps is the number of blocks after which a change releases the lock of the index: look-ups
// wait for less than a millisecond.
const lockSteps = 1024

// pause lets look-ups run before the next block. It reports whether the worker is still in the index.
func (w *Worker) pause() bool {
	if w.steps++; w.steps >= lockSteps {
		w.steps = 0
		w.index.mu.Unlock()
		w.index.mu.Lock()
	}
	return !w.removed
}

// clear drops all blocks and gives their memory back. For look-ups they are gone at once.
func (w *Worker) clear() {
	if w.tree.used == root+1 {
		return
	}
	x := w.index
	x.visible &^= 1 << w.id
	for place := uint32(root + 1); place < w.tree.used; place++ {
		if b := w.tree.at(place); b.parent != place && !b.empty() {
			x.entries.forget(b.key, w.id)
			w.pause()
		}
	}
	w.tree, w.onGPU = newTree(), 0
	w.aging.queue, w.aging.stored = nil, 0
	w.shrinkEntries()
	if !w.removed {
		x.visible |= 1 << w.id
	}
}

// shrinkEntries gives memory of the index back of which most is not used.
func (w *Worker) shrinkEntries() {
	for i := range w.index.entries {
		w.index.entries.shrink(i)
		w.steps = lockSteps
		w.pause()
	}
}

// makeRoom evicts the least recently stored leaves until the worker is within its share of the budget.
// It reports whether a block, which is a leaf, is kept.
func (w *Worker) makeRoom(place uint32) (kept bool) {
	for w.tree.count > w.index.perWorker() {
		oldest := w.tree.oldest()
		w.counts.Evicted++
		w.drop(oldest)
		if oldest == place || !w.pause() {
			return false
		}
	}
	return true
}

// drop removes a leaf with all its copies.
func (w *Worker) drop(place uint32) {
	b := w.tree.at(place)
	if b.full[kvevents.GPU] > 0 {
		w.onGPU--
	}
	w.index.entries.forget(b.key, w.id)
	w.tree.remove(place)
}

// compact gives memory back if the worker has far more than its share of the budget, because that
// became smaller.
func (w *Worker) compact() {
	x := w.index
	if maxBlocks := x.perWorker(); int(w.tree.used) <= maxBlocks+maxBlocks/8+chunkBlocks || w.tree.count > maxBlocks {
		return
	}
	x.mu.Unlock()
	smaller := w.tree.compacted() // a change needs the lock of the worker, too
	x.mu.Lock()
	w.tree = smaller
	w.shrinkEntries()
}
