package kvcache

import (
	"testing"

	"tierway/routing/kvindex"
	"tierway/workers/kvevents"
	"tierway/workers/kvstream"
)

// streams adds a worker with a number of live streams, whose batches come from the test.
func streams(p *Pool, name string, ranks int) *Worker {
	w := p.Add(name, name)
	w.Configure(Config{Port: 1, Ranks: ranks}, "h", nil)
	for _, r := range w.ranks {
		r.SetLive(true)
	}
	return w
}

// stored is a batch with the first blocks of a prompt.
func stored(blocks int, m kvevents.Medium) *kvevents.Batch {
	hashes := make([]uint64, blocks)
	for i := range hashes {
		hashes[i] = uint64(i + 1)
	}
	return &kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Stored, Medium: m, Hashes: hashes,
		Tokens: prompt(blocks), BlockSize: blockSize}}}
}

// TestEachRankOfALateReaderHasItsShareOfTheCache: the engine states the cache of all ranks together.
func TestEachRankOfALateReaderHasItsShareOfTheCache(t *testing.T) {
	w := streams(New(Options{}).NewPool(), "w", 2)
	w.SetCacheTokens(2 * 5 * blockSize)
	for i, r := range w.ranks {
		if r.Apply(stored(4, kvevents.GPU)); w.View().Known {
			t.Errorf("known with 4 of 5 blocks of rank %d", i)
		}
		r.Apply(stored(5, kvevents.GPU))
	}
	if v := w.View(); !v.Known {
		t.Errorf("all blocks are known, and the view is %+v", v)
	}
}

// TestBlocksInSlowerMediaAreNoPartOfTheCacheSize: the engine states the size of its GPU cache.
func TestBlocksInSlowerMediaAreNoPartOfTheCacheSize(t *testing.T) {
	w := streams(New(Options{}).NewPool(), "w", 1)
	w.SetCacheTokens(5 * blockSize)
	if w.ranks[0].Apply(stored(5, kvevents.CPU)); w.View().Known {
		t.Error("known without a block on the GPU")
	}
	if w.ranks[0].Apply(stored(5, kvevents.GPU)); !w.View().Known {
		t.Error("all blocks are on the GPU, and the cache is not known")
	}
}

func TestIndexThatEvictsIsCompleteOnlyWithMostOfTheCache(t *testing.T) {
	const room = 9
	for _, c := range []struct {
		name  string
		cache int64 // blocks; 0 is unknown
		known bool
	}{
		{"unknown cache", 0, false},
		{"the index has nine tenths", 10, true},
		{"the index has less", 11, false},
	} {
		caches := New(Options{})
		w := streams(caches.NewPool(), "w", 1)
		caches.SetMemory(room * kvindex.BlockBytes)
		w.SetCacheTokens(c.cache * blockSize)
		r := w.ranks[0]
		r.Report(kvstream.Begun, nil)
		if r.Apply(stored(room, kvevents.GPU)); !w.View().Known {
			t.Errorf("%s: not known with all blocks", c.name)
		}
		r.Apply(stored(room+1, kvevents.GPU))
		if v := w.View(); v.Known != c.known || v.Index.Evicted == 0 {
			t.Errorf("%s: known %v after %d evicted blocks", c.name, v.Known, v.Index.Evicted)
		}
		cleared := &kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Cleared}}}
		if r.Apply(cleared); !w.View().Known {
			t.Errorf("%s: an empty cache is not known", c.name)
		}
	}
}

func TestPicksAreSpreadOverTheWorkers(t *testing.T) {
	pool := New(Options{}).NewPool()
	if got := pool.Pick(func(any) bool { return true }); got != nil {
		t.Errorf("%v of no workers", got)
	}
	for _, name := range []string{"a", "b", "c", "unknown"} {
		w := streams(pool, name, 1)
		w.ranks[0].complete.Store(name != "unknown")
		w.ranks[0].Apply(stored(1, kvevents.GPU))
	}
	picks := map[any]int{}
	for range 400 {
		picks[pool.Pick(func(any) bool { return true })]++
	}
	for _, name := range []string{"a", "b", "c"} {
		if picks[name] < 100 {
			t.Errorf("%s is picked %d of 400 times", name, picks[name])
		}
	}
	if got := pool.Pick(func(ref any) bool { return ref == "b" }); got != "b" {
		t.Errorf("%v instead of b", got)
	}
	if got := pool.Pick(func(ref any) bool { return ref == "unknown" }); got != nil || picks["unknown"] > 0 {
		t.Errorf("%v is picked, and its cache is not known", got)
	}
}
