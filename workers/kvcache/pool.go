package kvcache

import (
	"slices"
	"sync/atomic"
	"time"

	"tierway/routing"
	"tierway/routing/kvindex"
	"tierway/workers/kvevents"
)

// Assumed time to load the KV cache of one token from a slower medium to the GPU. At 8,000 prefill tokens
// per second, a token takes 125 µs to compute: a block in CPU memory saves three quarters of that, a block
// on disk a tenth.
const (
	loadCPU  = 31 * time.Microsecond
	loadDisk = 112 * time.Microsecond
)

// LoadTime returns the assumed time to load cached tokens from CPU memory, or from a slower medium, to the GPU.
func LoadTime(tokens int64, inCPU bool) time.Duration {
	if inCPU {
		return time.Duration(tokens) * loadCPU
	}
	return time.Duration(tokens) * loadDisk
}

// Pool is the workers of one pool, with one index. It is safe for concurrent use.
type Pool struct {
	caches  *Caches
	index   *kvindex.Index
	entries atomic.Pointer[[]entry] // of the workers with streams; the slice is replaced, never changed
	picks   atomic.Uint64           // calls of Pick
}

// entry is a worker with its streams, for look-ups.
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

// BlockSizes appends the block sizes, in tokens, of the workers with a known cache, each size once: those on the GPU,
// then those of slower media, such as LMCache's chunks. It appends none if no worker has one.
func (p *Pool) BlockSizes(sizes []int) []int {
	entries := *p.entries.Load()
	for _, of := range []func(*entry) int{(*entry).blockSize, (*entry).offloadSize} {
		for i := range entries {
			if size := of(&entries[i]); size > 0 && !slices.Contains(sizes, size) {
				sizes = append(sizes, size)
			}
		}
	}
	return sizes
}

// Pick returns the ref of a worker that has a known cache and for which wanted returns true; nil if there
// is none. Successive calls begin with successive workers.
func (p *Pool) Pick(wanted func(ref any) bool) any {
	entries := *p.entries.Load()
	first := p.picks.Add(1)
	for i := range entries {
		e := &entries[(first+uint64(i))%uint64(len(entries))]
		if e.blockSize() > 0 && wanted(e.worker.ref) {
			return e.worker.ref
		}
	}
	return nil
}

// Lookup appends the cached prefixes of a prompt to r.Cached: in the order of Add, an entry for each worker
// with a known cache and blocks of blockSize tokens. keys are the keys of the prompt's blocks, or of its
// beginning if whole is false; their root has that block size and an empty namespace. A worker with blocks of that size
// in slower media gets more in its entry of an earlier call, if these are a longer prefix. Lookup does not allocate if
// r.Cached has room.
func (p *Pool) Lookup(r *routing.Request, blockSize int, keys []uint64, whole bool) {
	var matches [kvindex.MaxWorkers]kvindex.Match
	entries := *p.entries.Load()
	p.index.Overlap(keys, &matches)
	for i := range entries {
		e := &entries[i]
		// This check follows Overlap: the place of a removed stream may already belong to another one.
		known := e.blockSize()
		if offload := known > 0 && e.offloadSize() == blockSize; known != blockSize && !offload {
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
		if known != blockSize {
			e.addOffloaded(r.Cached, int64(tokens/n), !whole && tokens/n == len(keys)*blockSize)
			continue
		}
		r.Cached = append(r.Cached, routing.CachedPrefix{Ref: e.worker.ref, Tokens: int64(tokens / n),
			Load: load / time.Duration(n), More: !whole && tokens/n == len(keys)*blockSize})
	}
}

// addOffloaded raises the worker's entry to a prefix of its blocks in slower media. What the GPU has of it is not
// loaded.
func (e *entry) addOffloaded(all []routing.CachedPrefix, tokens int64, more bool) {
	for i := range all {
		if c := &all[i]; c.Ref == e.worker.ref && tokens > c.Tokens {
			c.Load += LoadTime(tokens-c.Tokens, true)
			c.Tokens, c.More = tokens, more
		}
	}
}

// offloadSize returns the size of the worker's blocks in slower media if it differs from that on the GPU, else 0.
func (e *entry) offloadSize() (size int) {
	for _, r := range e.ranks {
		size = max(size, int(r.offloadSize.Load()))
	}
	return size
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
