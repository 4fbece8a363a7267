package kvindex

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"sync"

	"github.com/cespare/xxhash/v2"
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

// mix combines two hashes. It depends on their order.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xbf58476d1ce4e5b9)
	return hi ^ lo ^ bits.RotateLeft64(a, 31)
}

// Root is the parent key of the first block of a prompt. The namespace separates the models of workers
// that share an index; blockSize is in tokens.
func Root(namespace string, blockSize int) uint64 {
	return mix(xxhash.Sum64String(namespace), uint64(blockSize))
}

// next is the key of the block after the one with the key parent.
func next(parent uint64, tokens []uint32, extra uint64) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(parent)
	var b [256]byte
	for len(tokens) > 0 {
		n := min(len(tokens), len(b)/4)
		for i, t := range tokens[:n] {
			binary.LittleEndian.PutUint32(b[4*i:], t)
		}
		d.Write(b[:4*n]) // never fails
		tokens = tokens[n:]
	}
	key := d.Sum64()
	if extra != 0 {
		key = mix(key, extra)
	}
	return key
}

// AppendKeys appends the keys of a prompt's full blocks. root is that of the prompt, or the key of the
// block before tokens. extras are the extras of the first blocks (see [kvevents.ExtraKey]), and each is
// that of all blocks behind them; nil and 0 mean none.
func AppendKeys(keys []uint64, root uint64, blockSize int, tokens []uint32, extras []uint64, each uint64) []uint64 {
	for parent := root; len(tokens) >= blockSize && blockSize > 0; tokens = tokens[blockSize:] {
		extra := each
		if len(extras) > 0 {
			extra, extras = extras[0], extras[1:]
		}
		parent = next(parent, tokens[:blockSize], extra)
		keys = append(keys, parent)
	}
	return keys
}
