package kvindex

import (
	"runtime"
	"testing"

	"tierway/workers/kvevents"
)

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// storeMany stores blocks of one prompt each, with a number of sliding-window groups.
func storeMany(w *Worker, from, blocks uint64, sliding int) {
	tokens, e := make([]uint32, 16), make([]kvevents.Event, 1+sliding)
	for k := from; k < from+blocks; k++ {
		tokens[0], tokens[1] = uint32(k), uint32(k>>32)
		for g := range e {
			e[g] = kvevents.Event{Kind: kvevents.Stored, BlockSize: 16, Group: g, Hashes: []uint64{mix(k, 1)}, Tokens: tokens,
				Attention: kvevents.Attention{Sliding: g > 0, Window: 64}}
		}
		w.Apply(&kvevents.Batch{Events: e})
	}
}

// TestABlockTakesTheStatedMemoryAtMost measures sizes at which maps have just grown and are full, with
// as many different keys as blocks. Blocks that come and go take no more.
func TestABlockTakesTheStatedMemoryAtMost(t *testing.T) {
	for _, sliding := range []int{0, 4} {
		for _, blocks := range []int{15_000, 30_000, 58_000, 115_000} {
			before := heap()
			x, w := onlyWorker(t, blocks*BlockBytes)
			storeMany(w, 0, uint64(blocks), sliding)
			full := heap() - before
			storeMany(w, uint64(blocks), uint64(blocks), sliding)
			churned := heap() - before
			if w.Reset(); w.Len() > 0 {
				t.Error("there are blocks after a reset")
			}
			reset := heap() - before
			if full > blocks*BlockBytes || churned > blocks*BlockBytes || reset > 100<<10 {
				t.Errorf("%d sliding-window groups, %d blocks: %d bytes each, %d after replacement; %d in all after a reset",
					sliding, blocks, full/blocks, churned/blocks, reset)
			}
			runtime.KeepAlive(x)
		}
	}
}

// TestMemoryFollowsTheWorkers: what one worker had is given back while another one keeps its blocks,
// when it leaves and when its part of the budget becomes smaller.
func TestMemoryFollowsTheWorkers(t *testing.T) {
	const blocks = 100_000
	before := heap()
	x, first := onlyWorker(t, 2*blocks*BlockBytes)
	second, err := x.Add("")
	if err != nil {
		t.Fatal(err)
	}
	storeMany(first, 0, blocks/10, 0)
	storeMany(second, 1<<40, blocks, 0)
	second.Remove()
	if left := heap() - before; left > blocks/10*BlockBytes+100<<10 {
		t.Errorf("%d bytes for %d blocks after the other worker has left", left, first.Len())
	}
	storeMany(first, 1<<41, blocks, 0)
	x.SetBudget(blocks / 10 * BlockBytes)
	storeMany(first, 1<<42, 1, 0)
	if left := heap() - before; first.Len() != blocks/10 || left > blocks/10*BlockBytes+100<<10 {
		t.Errorf("%d bytes for %d blocks with a tenth of the budget", left, first.Len())
	}
	runtime.KeepAlive(x)
}

// TestLookupsGoBetweenTheBlocksOfABatch: a batch of an engine may have a million blocks. A look-up finds
// a part of them, and nothing of a worker that is being emptied.
func TestLookupsGoBetweenTheBlocksOfABatch(t *testing.T) {
	const blocks = 200_000
	x, w := onlyWorker(t, 1<<30)
	e := kvevents.Event{Kind: kvevents.Stored, BlockSize: 1, Hashes: make([]uint64, blocks),
		Tokens: make([]uint32, blocks)}
	for i := range e.Hashes {
		e.Hashes[i] = uint64(i)
	}
	keys := AppendKeys(nil, Root("", 1), 1, e.Tokens, nil, 0)
	batch := func(e kvevents.Event) func() {
		return func() { w.Apply(&kvevents.Batch{Events: []kvevents.Event{e}}) }
	}
	for _, c := range []struct {
		name   string
		change func()
		all    bool // the first blocks are found during the change
	}{
		{"store", batch(e), true},
		{"clear", batch(kvevents.Event{Kind: kvevents.Cleared}), false},
		{"store again", batch(e), true},
		{"remove", batch(kvevents.Event{Kind: kvevents.Removed, Hashes: e.Hashes}), false},
		{"store once more", batch(e), true},
		{"leave", w.Remove, false},
	} {
		done := make(chan struct{})
		go func() { defer close(done); c.change() }()
		between := 0
		for running := true; running; {
			select {
			case <-done:
				running = false
			default:
			}
			if _, known := sizeOf(x); known > 0 && known < blocks {
				between++
				var m [MaxWorkers]Match
				if x.Overlap(keys[:1], &m); m[w.ID()].Blocks == 1 != c.all {
					t.Errorf("%s: the first block is cached: %v", c.name, !c.all)
				}
			}
		}
		if between == 0 {
			t.Errorf("%s: no look-up ran before the last block", c.name)
		}
	}
}
