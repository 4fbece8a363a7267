package kvcache

import (
	"slices"
	"sync/atomic"
	"time"

	"tierway/routing"
	"tierway/routing/kvindex"
	"tierway/workers/kvevents"
)

// Time to bring the KV cache of one token from a slower medium to the GPU, until it is learned. At
// 8,000 prefill tokens per second, a token costs 125 µs to compute: a block in CPU memory saves three
// quarters of that, a block on disk a tenth.
const (
	loadCPU  = 31 * time.Microsecond
	loadDisk = 112 * time.Microsecond
)

// Pool is the workers of one pool, with one index. It is safe for concurrent use.
type Pool struct {
	caches  *Caches
	index   *kvindex.Index
	entries atomic.Pointer[[]entry] // of the workers with streams; the slice is replaced, never changed
}

// entry is a worker with its streams, as requests read them.
type entry struct {
	worker *Worker
	ranks  []*rank
}

// Add adds a worker without sources. ref is the Ref of its member in the routing pool.
func (p *Pool) Add(name string, ref any) *Worker {
	p.caches.mu.Lock()
	defer p.caches.mu.Unlock()
	p.caches.added++
	w := &Worker{pool: p, name: name, ref: ref, number: p.caches.added}
	p.caches.workers[w] = true
	return w
}

// BlockSizes appends the sizes, in tokens, of the blocks of all workers that Lookup can answer for,
// each once. It appends none if the events say nothing about any worker.
func (p *Pool) BlockSizes(sizes []int) []int {
	for _, e := range *p.entries.Load() {
		if size := e.blockSize(); size > 0 && !slices.Contains(sizes, size) {
			sizes = append(sizes, size)
		}
	}
	return sizes
}

// Pick returns the ref of a worker whose events are read and for which wanted returns true; nil if
// there is none.
func (p *Pool) Pick(wanted func(ref any) bool) any {
	for _, e := range *p.entries.Load() {
		if e.blockSize() > 0 && wanted(e.worker.ref) {
			return e.worker.ref
		}
	}
	return nil
}

// Lookup appends to r.Cached what the events say about a prompt: in the order of Add, an entry for
// each worker with blocks of that many tokens whose cache is known. keys are those of the prompt's
// blocks from the root of that block size and an empty namespace; of its beginning, if whole is false.
// Lookup does not allocate if r.Cached has room.
func (p *Pool) Lookup(r *routing.Request, blockSize int, keys []uint64, whole bool) {
	var matches [kvindex.MaxWorkers]kvindex.Match
	entries := *p.entries.Load()
	p.index.Overlap(keys, &matches)
	for i := range entries {
		e := &entries[i]
		// After Overlap: the place of a removed stream may already belong to another one.
		if e.blockSize() != blockSize {
			continue
		}
		tokens, load := 0, time.Duration(0)
		for _, rank := range e.ranks {
			m := &matches[rank.index.ID()]
			tokens += m.Blocks * blockSize
			load += time.Duration(m.ByMedium[kvevents.CPU]*blockSize)*loadCPU +
				time.Duration(m.ByMedium[kvevents.Disk]*blockSize)*loadDisk
		}
		n := len(e.ranks)
		r.Cached = append(r.Cached, routing.CachedPrefix{Ref: e.worker.ref, Tokens: int64(tokens / n),
			Load: load / time.Duration(n), More: !whole && tokens/n == len(keys)*blockSize})
	}
}

// blockSize returns the size of the worker's blocks if its cache is known, else 0.
func (e *entry) blockSize() int {
	size := 0
	for _, r := range e.ranks {
		if !r.known() {
			return 0
		}
		size = max(size, int(r.blockSize.Load()))
	}
	return size
}
