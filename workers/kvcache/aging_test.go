package kvcache

import (
	"testing"

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
