package kvcache

import (
	"testing"

	"tierway/routing"
	"tierway/routing/kvindex"
	"tierway/workers/kvevents"
)

// TestOffloadedBlocksAgeByTheSizeOfTheirCache (L4): the configured size, else that of the GPU, for each rank its share.
func TestOffloadedBlocksAgeByTheSizeOfTheirCache(t *testing.T) {
	for name, c := range map[string]struct {
		offload, onGPU int64
		ranks          int
		want           int // blocks of 10 that are left after 10 others
	}{
		"configured":       {offload: 30 * blockSize, onGPU: blockSize, ranks: 1, want: 10},
		"a smaller one":    {offload: 10 * blockSize, onGPU: 50 * blockSize, ranks: 1},
		"that of the GPU":  {onGPU: 10 * blockSize, ranks: 1},
		"of two ranks":     {offload: 20 * blockSize, ranks: 2},
		"neither is known": {ranks: 1, want: 10},
	} {
		t.Run(name, func(t *testing.T) {
			w := New(Options{}).NewPool().Add("w", "w")
			w.Configure(Config{Port: 1, Ranks: c.ranks, OffloadTokens: c.offload}, "h", nil)
			w.SetCacheTokens(c.onGPU)
			r := w.ranks[0]
			r.Apply(stored(10, kvevents.CPU))
			other := stored(10, kvevents.CPU)
			for i := range other.Events[0].Hashes {
				other.Events[0].Hashes[i] += 100
				other.Events[0].Tokens[i*blockSize] = 99
			}
			r.Apply(other)
			if got := w.View(); got.Blocks != 10+c.want || got.Index.Aged != 10-c.want {
				t.Errorf("%d blocks, %d aged", got.Blocks, got.Index.Aged)
			}
		})
	}
}

// TestChunksOfLMCacheAddToTheBlocksOnTheGPU: they are of another size, and only what the GPU lacks is loaded.
func TestChunksOfLMCacheAddToTheBlocksOnTheGPU(t *testing.T) {
	const chunk = 4 * blockSize
	tokens := prompt(12)
	chunks := &kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Stored, Medium: kvevents.CPU, BlockSize: chunk,
		Hashes: []uint64{901, 902}, Tokens: tokens[:2*chunk]}}}
	for name, c := range map[string]struct {
		onGPU        int // blocks
		want, loaded int64
	}{
		"nothing on the GPU": {0, 2 * chunk, 2 * chunk},
		"a part on the GPU":  {5, 2 * chunk, 2*chunk - 5*blockSize},
		"more on the GPU":    {10, 10 * blockSize, 0},
	} {
		p := New(Options{}).NewPool()
		w := streams(p, "w", 1)
		w.ranks[0].complete.Store(true)
		other := stored(1, kvevents.GPU) // states the size of the GPU's blocks
		other.Events[0].Hashes[0], other.Events[0].Tokens[0] = 500, 77
		w.ranks[0].Apply(other)
		if c.onGPU > 0 {
			w.ranks[0].Apply(stored(c.onGPU, kvevents.GPU))
		}
		w.ranks[0].Apply(chunks)
		sizes := p.BlockSizes(nil)
		if len(sizes) != 2 || sizes[0] != blockSize || sizes[1] != chunk {
			t.Errorf("%s: the sizes are %v", name, sizes)
		}
		var r routing.Request
		for _, size := range sizes {
			p.Lookup(&r, size, kvindex.AppendKeys(nil, kvindex.Root("", size), size, tokens, nil, 0), true)
		}
		if len(r.Cached) != 1 || r.Cached[0].Tokens != c.want || r.Cached[0].Load != LoadTime(c.loaded, true) {
			t.Errorf("%s: %+v", name, r.Cached)
		}
	}
}
