package routing

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// However the traffic is made, what is remembered of it has a bound.
func TestSplitsAreBounded(t *testing.T) {
	const workers, heavy = 600, 150 // each of them has twice what splits
	d, most := newDepth(), 0
	now, said := start, uint64(1000)
	for i := range 40_000 {
		now, said = now.Add(20*time.Millisecond), said+1
		d.key(now, chainOf(chainOf(nil, uint64(i%heavy+1), 1), said, 2), workers)
		most = max(most, len(d.branches))
	}
	if most != maxBranches || d.state().Splits != maxBranches {
		t.Errorf("%d beginnings of %d were split, %+v", most, heavy, d.state())
	}
	// What counts is at least the last 32 requests for each worker: they fade to
	// the sixteenth, which joins, within 55,000.
	for range 65_000 {
		now, said = now.Add(20*time.Millisecond), said+1
		d.key(now, chainOf(nil, said, 2), workers)
	}
	if len(d.branches) != 0 || d.state().Splits != 0 {
		t.Errorf("twenty minutes after the last of them, %d are split", len(d.branches))
	}
}

// A chain of any length costs the memory of what is known as shared.
func TestLongChainsAreBounded(t *testing.T) {
	d, long := newDepth(), chainOf(nil, 1, 4096)
	for i := range 2000 {
		now := start.Add(time.Duration(i) * time.Second)
		if key := d.key(now, chainOf(long, uint64(i+2), 1), 8); key == 0 {
			t.Fatal("a prompt has no key")
		}
	}
	if s := d.state(); s.Shared != maxShared || len(d.root.main.chain) > maxShared || len(d.root.rival.chain) > maxShared {
		t.Errorf("%+v with %d blocks known", s, len(d.root.main.chain))
	}
}

// A chain's hashes are not secret: whoever makes one stand at several depths
// gets a key all the same, and no more than that.
func TestForgedChainsHaveAKey(t *testing.T) {
	d, now := newDepth(), start
	honest := chainOf(nil, 1, 6)
	for i := range 3000 { // under one block of six, 40 % of the traffic: it is split
		now = now.Add(100 * time.Millisecond)
		if d.key(now, chainOf(nil, uint64(i+10), 3), 8); i%5 < 2 {
			d.key(now, chainOf(honest, uint64(i+10), 3), 8)
		}
	}
	split := uint64(0)
	for key := range d.branches {
		split = key
	}
	if split == 0 {
		t.Fatal("nothing is split")
	}
	x, y := Block{Hash: split}, Block{Hash: 7}
	for _, forged := range [][]Block{{x}, {x, x}, {x, x, x, x, x}, {y, x, y}, {y, y, x, x, y, x}, {x, y, x, y, x, y, x, y, x}} {
		if key := d.key(now, forged, 8); key != split && key != 7 || d.find(forged) != key {
			t.Errorf("%d blocks have key %d, and are found under %d", len(forged), key, d.find(forged))
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		for range 50 {
			blocks := make([]Block, rapid.IntRange(1, 6).Draw(rt, "blocks"))
			for i := range blocks {
				blocks[i].Hash = rapid.SampledFrom([]uint64{split, 1, 2, 3}).Draw(rt, "hash")
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(rt, "seconds")) * time.Second)
			key := d.key(now, blocks, rapid.IntRange(1, 16).Draw(rt, "workers"))
			if !slices.ContainsFunc(blocks, func(b Block) bool { return b.Hash == key }) {
				rt.Fatalf("key %d is none of %v", key, blocks)
			}
			if key := d.find(blocks); !slices.ContainsFunc(blocks, func(b Block) bool { return b.Hash == key }) {
				rt.Fatalf("key %d was found and is none of %v", key, blocks)
			}
		}
	})
}
