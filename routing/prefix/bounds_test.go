package prefix

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "tierway/fixedseed"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// chainOf appends n blocks of that text to a chain.
func chainOf(chain []Block, text uint64, n int) []Block {
	last := Block{Hash: 1}
	if len(chain) > 0 {
		last = chain[len(chain)-1]
	}
	chain = slices.Clip(chain)
	for i := range n {
		last.Hash = (last.Hash ^ (text*1000 + uint64(i) + 1)) * 0x9E3779B97F4A7C15
		last.Hash ^= last.Hash >> 31
		last.End += 512
		chain = append(chain, last)
	}
	return chain
}

// Under any traffic the memory of keys is bounded.
func TestSplitsAreBounded(t *testing.T) {
	const workers, heavy = 600, 150 // each heavy key has twice the traffic at which a key is split
	d, most := New(), 0
	now, said := start, uint64(1000)
	for i := range 40_000 {
		now, said = now.Add(20*time.Millisecond), said+1
		d.Key(now, chainOf(chainOf(nil, uint64(i%heavy+1), 1), said, 2), workers)
		most = max(most, len(d.branches))
	}
	if most != maxBranches || d.Depth().Splits != maxBranches {
		t.Errorf("%d keys of %d were split, %+v", most, heavy, d.Depth())
	}
	// At least the last 32 requests per worker count. They fade to a sixteenth, at which
	// keys are joined, within 55,000 requests.
	for range 65_000 {
		now, said = now.Add(20*time.Millisecond), said+1
		d.Key(now, chainOf(nil, said, 2), workers)
	}
	if len(d.branches) != 0 || d.Depth().Splits != 0 {
		t.Errorf("twenty minutes after the last heavy request, %d keys are split", len(d.branches))
	}
}

// A chain of any length costs only the memory of the longest shared prefix.
func TestLongChainsAreBounded(t *testing.T) {
	d, long := New(), chainOf(nil, 1, 4096)
	for i := range 2000 {
		now := start.Add(time.Duration(i) * time.Second)
		if key := d.Key(now, chainOf(long, uint64(i+2), 1), 8); key == 0 {
			t.Fatal("a prompt has no key")
		}
	}
	if s := d.Depth(); s.Shared != maxShared || len(d.root.main.chain) > maxShared || len(d.root.rival.chain) > maxShared {
		t.Errorf("%+v with %d blocks known", s, len(d.root.main.chain))
	}
}

// The hashes of a chain are not secret: a client can make one hash occur at several depths. It gets a
// key, and nothing else changes.
func TestForgedChainsHaveAKey(t *testing.T) {
	d, now := New(), start
	honest := chainOf(nil, 1, 6)
	for i := range 3000 { // under one block of six, 40 % of the traffic: it is split
		now = now.Add(100 * time.Millisecond)
		if d.Key(now, chainOf(nil, uint64(i+10), 3), 8); i%5 < 2 {
			d.Key(now, chainOf(honest, uint64(i+10), 3), 8)
		}
	}
	split := uint64(0)
	for key := range d.branches {
		split = key
	}
	if split == 0 {
		t.Fatal("no key is split")
	}
	x, y := Block{Hash: split}, Block{Hash: 7}
	for _, forged := range [][]Block{{x}, {x, x}, {x, x, x, x, x}, {y, x, y}, {y, y, x, x, y, x},
		{x, y, x, y, x, y, x, y, x}} {
		if key := d.Key(now, forged, 8); key != split && key != 7 || d.Find(forged) != key {
			t.Errorf("%d blocks have key %d, but Find returns %d", len(forged), key, d.Find(forged))
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		for range 50 {
			blocks := make([]Block, rapid.IntRange(1, 6).Draw(rt, "blocks"))
			for i := range blocks {
				blocks[i].Hash = rapid.SampledFrom([]uint64{split, 1, 2, 3}).Draw(rt, "hash")
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(rt, "seconds")) * time.Second)
			key := d.Key(now, blocks, rapid.IntRange(1, 16).Draw(rt, "workers"))
			if !slices.ContainsFunc(blocks, func(b Block) bool { return b.Hash == key }) {
				rt.Fatalf("key %d is none of %v", key, blocks)
			}
			if key := d.Find(blocks); !slices.ContainsFunc(blocks, func(b Block) bool { return b.Hash == key }) {
				rt.Fatalf("Find returned key %d, which is none of %v", key, blocks)
			}
		}
	})
}

// TestFindReturnsTheKeyOfKey: Find returns the key by which the last request of that chain was placed,
// and changes nothing.
func TestFindReturnsTheKeyOfKey(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d, now := New(), start
		tenants := rapid.IntRange(1, 3).Draw(rt, "tenants")
		for range rapid.IntRange(1, 40).Draw(rt, "bursts") {
			now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(rt, "s")) * time.Second)
			chain := chainOf(nil, uint64(rapid.IntRange(1, tenants).Draw(rt, "tenant")), rapid.IntRange(1, 6).Draw(rt, "system"))
			for range rapid.IntRange(1, 60).Draw(rt, "requests") {
				asked := chainOf(chain, uint64(rapid.IntRange(10, 14).Draw(rt, "chat")), rapid.IntRange(0, 5).Draw(rt, "turns"))
				splits := len(d.branches)
				key := d.Key(now, asked, 4)
				if len(d.branches) > splits {
					continue // from now on it is placed by what follows
				}
				before := fmt.Sprint(d.Depth(), d.requests, d.traffic, d.root.seen, d.root.main, d.root.rival)
				if found := d.Find(asked); found != key {
					rt.Fatalf("a chain of %d blocks has the key %x, but Find returns %x", len(asked), key, found)
				}
				if after := fmt.Sprint(d.Depth(), d.requests, d.traffic, d.root.seen, d.root.main, d.root.rival); after != before {
					rt.Fatalf("finding changed %s to %s", before, after)
				}
			}
		}
	})
}
