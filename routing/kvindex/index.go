package kvindex

import (
	"errors"
	"math/bits"
	"sync"

	"tierway/workers/kvevents"
)

// BlockBytes is the memory of one block of one worker, in bytes, at most.
const BlockBytes = 160

// MaxWorkers is the number of workers that one index can have.
const MaxWorkers = 64

// maxSliding is the number of sliding-window groups that are distinguished.
const maxSliding = 8

// ErrFull is the error of Add on an index with MaxWorkers workers.
var ErrFull = errors.New("kvindex: an index has up to 64 workers")

// Index knows the cached blocks of a pool's workers. All methods may be called concurrently.
type Index struct {
	mu      sync.RWMutex
	budget  int // bytes of all workers
	entries map[uint64]entry
	workers [MaxWorkers]*Worker
	count   int
}

// entry is what is known of one block: the workers that have it by medium, as sets of bits, and
// those whose sliding-window groups have it.
type entry struct {
	holders [3]uint64
	sliding []slidingHolder
}

// slidingHolder is the sliding-window groups of one worker that have a block, as a set of bits.
type slidingHolder struct {
	worker uint8
	groups uint8
}

func (e *entry) any() uint64 { return e.holders[0] | e.holders[1] | e.holders[2] }

func (e *entry) slidingOf(worker int) uint8 {
	for _, h := range e.sliding {
		if int(h.worker) == worker {
			return h.groups
		}
	}
	return 0
}

// setSliding sets the groups of a worker.
func (e *entry) setSliding(worker int, groups uint8) {
	for i := range e.sliding {
		if int(e.sliding[i].worker) == worker {
			e.sliding[i].groups = groups
			return
		}
	}
	e.sliding = append(e.sliding, slidingHolder{uint8(worker), groups})
}

// Match is the cached prefix of one worker.
type Match struct {
	Blocks   int    // blocks of the prefix
	ByMedium [3]int // the same by the fastest medium that has each block, by [kvevents.Medium]
}

// New returns an empty index. budget is the memory that all workers together may take, in bytes.
func New(budget int) *Index { return &Index{budget: budget, entries: map[uint64]entry{}} }

// SetBudget sets the memory that all workers together may take, in bytes. A worker over its part
// loses blocks with its next store.
func (x *Index) SetBudget(bytes int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.budget = bytes
}

// Budget is the memory that all workers together may take, in bytes.
func (x *Index) Budget() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.budget
}

// Add returns a new worker without blocks. The namespace is that of [Root].
func (x *Index) Add(namespace string) (*Worker, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, taken := range x.workers {
		if taken == nil {
			w := &Worker{index: x, id: id, namespace: namespace}
			w.clear()
			x.workers[id] = w
			x.count++
			return w, nil
		}
	}
	return nil, ErrFull
}

// Overlap writes the cached prefix of each worker into matches, by the worker's ID. keys are those
// of a prompt's blocks, in order.
func (x *Index) Overlap(keys []uint64, matches *[MaxWorkers]Match) {
	*matches = [MaxWorkers]Match{}
	x.mu.RLock()
	defer x.mu.RUnlock()
	left, at := ^uint64(0), 0 // workers that have all blocks before at
	for ; at < len(keys) && left != 0; at++ {
		e := x.entries[keys[at]]
		end(matches, left&^e.any(), at)
		left &= e.any()
		slow := left &^ e.holders[kvevents.GPU]
		for has := slow & e.holders[kvevents.CPU]; has != 0; has &= has - 1 {
			matches[bits.TrailingZeros64(has)].ByMedium[kvevents.CPU]++
		}
		for has := slow &^ e.holders[kvevents.CPU]; has != 0; has &= has - 1 {
			matches[bits.TrailingZeros64(has)].ByMedium[kvevents.Disk]++
		}
	}
	end(matches, left, at)
	for id, w := range x.workers {
		if w != nil && w.slidingGroups != 0 && matches[id].Blocks > 0 {
			w.shorten(keys, &matches[id])
		}
	}
}

// end writes the length of the prefix of workers that have the blocks before at and no more.
func end(matches *[MaxWorkers]Match, workers uint64, at int) {
	for ; workers != 0; workers &= workers - 1 {
		m := &matches[bits.TrailingZeros64(workers)]
		m.Blocks = at
		m.ByMedium[kvevents.GPU] = at - m.ByMedium[kvevents.CPU] - m.ByMedium[kvevents.Disk]
	}
}

// Size is the number of blocks of all workers, and of different keys.
func (x *Index) Size() (blocks, keys int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, w := range x.workers {
		if w != nil {
			blocks += len(w.blocks)
		}
	}
	return blocks, len(x.entries)
}

// perWorker is the number of blocks that each worker may have.
func (x *Index) perWorker() int { return max(1, x.budget/BlockBytes/max(1, x.count)) }
