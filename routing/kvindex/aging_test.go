package kvindex

import (
	"math/rand/v2"
	"slices"
	"testing"

	"tierway/workers/kvevents"
)

// offloader is a model of LMCache beside an engine: a cache in CPU memory that evicts the least recently used
// prompts' ends first. It publishes stores only.
type offloader struct {
	worker   *Worker
	capacity int      // blocks
	recent   []uint64 // hashes, the least recently used first
}

const offloaded = 4 // tokens of a block

// promptOf returns a prompt that begins with a text that others share.
func promptOf(shared, own uint32, blocks int) []uint32 {
	var tokens []uint32
	for i := range uint32(blocks * offloaded) {
		if i < offloaded*2 {
			tokens = append(tokens, shared<<20|i)
		} else {
			tokens = append(tokens, own<<8|i)
		}
	}
	return tokens
}

func chainOf(tokens []uint32) []uint64 {
	return AppendKeys(nil, Root("", offloaded), offloaded, tokens, nil, 0)
}

// use looks a prompt up and stores it. It returns the blocks that the cache had of it.
func (o *offloader) use(prompt []uint32, each bool) (had int) {
	hashes := chainOf(prompt)
	for had < len(hashes) && slices.Contains(o.recent, hashes[had]) {
		had++
	}
	for i := len(hashes) - 1; i >= 0; i-- {
		o.recent = slices.DeleteFunc(o.recent, func(h uint64) bool { return h == hashes[i] })
		o.recent = append(o.recent, hashes[i])
	}
	o.recent = o.recent[max(0, len(o.recent)-o.capacity):]
	step := len(hashes) - had
	if each {
		step = 1
	}
	for i := had; i < len(hashes); i += step {
		e := kvevents.Event{Kind: kvevents.Stored, Medium: kvevents.CPU, BlockSize: offloaded, Hashes: hashes[i : i+step],
			Tokens: prompt[i*offloaded : (i+step)*offloaded]}
		if i > 0 {
			e.Parent, e.HasParent = hashes[i-1], true
		}
		o.worker.Apply(&kvevents.Batch{Events: []kvevents.Event{e}})
	}
	return had
}

func newOffloader(t *testing.T, capacity int) (*Index, *offloader) {
	x := New(1 << 30)
	w, err := x.Add("")
	if err != nil {
		t.Fatal(err)
	}
	w.SetAging(capacity * offloaded)
	return x, &offloader{worker: w, capacity: capacity}
}

func (o *offloader) predicted(x *Index, prompt []uint32) int {
	var m [MaxWorkers]Match
	x.Overlap(chainOf(prompt), &m)
	return m[o.worker.ID()].Blocks
}

// TestBlocksInCPUMemoryWithoutRemovalsAge (L4): after one turnover of the cache, few predicted blocks are missing.
func TestBlocksInCPUMemoryWithoutRemovalsAge(t *testing.T) {
	for name, each := range map[string]bool{"an event for each prompt": false, "an event for each block": true} {
		t.Run(name, func(t *testing.T) {
			predicted, wrong, actual := predictionsWith(t, 1, each)
			if 100*wrong > 5*predicted || 10*predicted < 6*actual {
				t.Errorf("%d of %d predicted blocks were missing; the cache had %d", wrong, predicted, actual)
			}
		})
	}
}

// TestSizeOfTheCacheIsBetterTooSmall: with half of the real size, few predicted blocks are missing, but many cached
// blocks are not predicted. With twice the real size, it is the reverse.
func TestSizeOfTheCacheIsBetterTooSmall(t *testing.T) {
	if predicted, wrong, actual := predictionsWith(t, 0.5, false); 100*wrong > predicted || 10*predicted > 9*actual {
		t.Errorf("half: %d of %d predicted blocks were missing; the cache had %d", wrong, predicted, actual)
	}
	if predicted, wrong, actual := predictionsWith(t, 2, false); 100*wrong < 5*predicted || 10*predicted < 9*actual {
		t.Errorf("twice: %d of %d predicted blocks were missing; the cache had %d", wrong, predicted, actual)
	}
}

// predictionsWith returns the predicted blocks of prompts, those of them that an LRU cache lacked, and those that it
// had, after its first turnover. The index assumes a share of the cache's size.
func predictionsWith(t *testing.T, share float64, each bool) (predicted, wrong, actual int) {
	t.Helper()
	const capacity = 600
	rng := rand.New(rand.NewPCG(1, 2))
	x, o := newOffloader(t, capacity)
	o.worker.SetAging(int(share * capacity * offloaded))
	popular := rand.NewZipf(rng, 1.2, 4, 4_000)
	stored := 0
	for range 12_000 {
		prompt := promptOf(uint32(rng.IntN(3)), uint32(popular.Uint64()), 8)
		says := o.predicted(x, prompt)
		had := o.use(prompt, each)
		if stored += 8 - had; stored > capacity {
			predicted, wrong, actual = predicted+says, wrong+max(0, says-had), actual+had
		}
	}
	t.Logf("%.1f of the size: %.1f %% of %d predicted blocks were missing; of %d cached blocks, %.0f %% were predicted",
		share, 100*float64(wrong)/float64(predicted), predicted, actual, 100*float64(predicted-wrong)/float64(actual))
	if stored < 10*capacity {
		t.Errorf("only %d blocks were stored", stored)
	}
	return predicted, wrong, actual
}

func TestOneTurnoverDropsAllBlocksOfAnotherTraffic(t *testing.T) {
	const capacity = 400
	x, o := newOffloader(t, capacity)
	for i := range uint32(40) {
		o.use(promptOf(1, i, 10), false)
	}
	for i := range uint32(capacity/8 + 1) { // 8 of the 10 blocks are new
		o.use(promptOf(2, 1000+i, 10), false)
	}
	for i := range uint32(40) {
		if n := o.predicted(x, promptOf(1, i, 10)); n != 0 {
			t.Errorf("%d blocks of prompt %d are left", n, i)
		}
	}
	if n := o.worker.Len(); n > capacity+8 {
		t.Errorf("the index has %d blocks", n)
	}
}

func TestSharedBeginningStaysWhileLongerPromptsAreStored(t *testing.T) {
	x, o := newOffloader(t, 200)
	for i := range uint32(500) {
		o.use(promptOf(1, i, 4), false)
		if n := o.predicted(x, promptOf(1, 9999, 4)); n != 2 {
			t.Fatalf("after %d prompts, %d blocks of the shared beginning are known", i+1, n)
		}
	}
}

func TestEngineThatRemovesBlocksAgesNone(t *testing.T) {
	x, o := newOffloader(t, 20)
	first := promptOf(1, 1, 4)
	o.use(promptOf(9, 9, 4), false)
	o.worker.Apply(&kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Removed, Medium: kvevents.CPU,
		Hashes: chainOf(promptOf(9, 9, 4))[3:]}}})
	o.use(first, false)
	for i := range uint32(40) {
		o.use(promptOf(2, 100+i, 4), false)
	}
	if n := o.predicted(x, first); n != 4 {
		t.Errorf("%d blocks are known of a prompt that was not removed", n)
	}
}

func TestBlocksOnTheGPUDoNotAge(t *testing.T) {
	x, o := newOffloader(t, 20)
	first := promptOf(1, 1, 4)
	o.worker.Apply(&kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Stored, BlockSize: offloaded,
		Hashes: chainOf(first), Tokens: first}}})
	o.use(first[:2*offloaded], false)
	for i := range uint32(40) {
		o.use(promptOf(2, 100+i, 4), false)
	}
	var m [MaxWorkers]Match
	x.Overlap(chainOf(first), &m)
	if got := m[0]; got.Blocks != 4 || got.ByMedium[kvevents.GPU] != 4 {
		t.Errorf("%+v", got)
	}
}
