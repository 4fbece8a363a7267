package kvcache

import (
	"fmt"
	"testing"

	"tierway/routing"
	"tierway/workers/kvevents"
	"tierway/workers/kvstream"
)

// BenchmarkLookup looks up a prompt of 1,000 blocks in the caches of 16 workers. Each has a different
// part of it.
func BenchmarkLookup(b *testing.B) {
	const workers, blocks = 16, 1000
	pool := New(Options{}).NewPool()
	hashes := make([]uint64, blocks)
	for i := range hashes {
		hashes[i] = uint64(i + 1)
	}
	for i := range workers {
		w := pool.Add(fmt.Sprint(i), i)
		w.Configure(Config{Port: 1}, "h", nil)
		n := blocks * (i + 1) / workers
		w.ranks[0].Report(kvstream.Begun, nil)
		w.ranks[0].SetLive(true)
		w.ranks[0].Apply(&kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Stored, Hashes: hashes[:n],
			Tokens: prompt(n), BlockSize: blockSize}}})
	}
	keys, sizes, r := keysOf(blocks), make([]int, 0, 4), routing.Request{}
	b.ReportAllocs()
	for b.Loop() {
		r.Cached = r.Cached[:0]
		for _, size := range pool.BlockSizes(sizes[:0]) {
			pool.Lookup(&r, size, keys, true)
		}
	}
	if len(r.Cached) != workers || r.Cached[workers-1].Tokens != blocks*blockSize {
		b.Fatalf("%+v", r.Cached)
	}
}
