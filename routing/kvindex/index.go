package kvindex

import (
	"errors"
	"sync"
)

// BlockBytes is an upper bound of the memory of one block of one worker, in bytes. Full maps take the
// least: 150 to 200 bytes without sliding-window groups, 210 to 265 with them.
const BlockBytes = 288

// MaxWorkers is the number of workers that one index can have.
const MaxWorkers = 64

// maxSliding is the number of sliding-window groups that are distinguished.
const maxSliding = 8

// ErrFull is the error of Add on an index with MaxWorkers workers.
var ErrFull = errors.New("kvindex: an index has up to 64 workers")

// Index has the cached blocks of a pool's workers. All methods may be called concurrently.
type Index struct {
	mu      sync.RWMutex
	budget  int // bytes of all workers
	entries entries
	workers [MaxWorkers]*Worker
	count   int
	visible uint64 // workers that matches are written for, as a set of bits

	slidingGroups int                         // places of sliding-window groups that some worker uses
	sliding       [maxSliding]uint64          // workers with such a group
	needs         [maxSliding][MaxWorkers]int // blocks of the group's window
}

// New returns an empty index. budget is the memory that all workers together may take, in bytes.
func New(budget int) *Index { return &Index{budget: budget} }

// SetBudget sets the memory that all workers together may take, in bytes. A worker that exceeds its
// share loses blocks with its next store.
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
			w := &Worker{index: x, id: id, namespace: namespace, tree: newTree()}
			x.workers[id] = w
			x.visible |= 1 << id
			x.count++
			return w, nil
		}
	}
	return nil, ErrFull
}

// perWorker is the number of blocks that each worker may have.
func (x *Index) perWorker() int { return max(1, x.budget/BlockBytes/max(1, x.count)) }
