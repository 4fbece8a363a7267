package engines

import (
	"testing"

	"pgregory.net/rapid"

	_ "tierway/fixedseed"
)

func TestCacheEvictsTheLeastRecentlyUsedBlock(t *testing.T) {
	c := newPrefixCache(4, 2)
	a, b := []uint32{1, 2, 3, 4, 9}, []uint32{5, 6, 7, 8, 9}
	c.add("", a)
	c.add("", b)
	if c.match("", a) != 4 || c.match("", b) != 4 {
		t.Fatalf("both fit: %d and %d", c.match("", a), c.match("", b))
	}
	c.match("", a)
	c.add("", []uint32{10, 11})
	if c.match("", a) != 4 || c.match("", b) != 2 { // b's end goes before its start
		t.Errorf("after one more block: a %d, b %d", c.match("", a), c.match("", b))
	}
	if c.match("", []uint32{3, 4, 9}) != 0 {
		t.Error("a block was found without its prefix")
	}
	if c.match("", a[:4]) != 2 {
		t.Error("the last token of a prompt must be computed")
	}
}

func TestCacheAgreesWithAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newPrefixCache(rapid.IntRange(0, 6).Draw(t, "capacity"), rapid.IntRange(1, 3).Draw(t, "size"))
		ids := rapid.SliceOfN(rapid.Uint32Range(1, 3), 1, 12)
		var seen [][]uint32
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			p := ids.Draw(t, "prompt")
			got := c.match("", p)
			longest := 0
			for _, old := range seen {
				n := 0
				for n < len(old) && n < len(p)-1 && old[n] == p[n] {
					n++
				}
				longest = max(longest, n/c.size*c.size)
			}
			if got > longest || got%c.size != 0 || got >= len(p) {
				t.Fatalf("%v: %d tokens found, at most %d were computed", p, got, longest)
			}
			c.add("", p)
			seen = append(seen, p)
			if c.len() > c.capacity {
				t.Fatalf("%d blocks in a cache of %d", c.len(), c.capacity)
			}
			if again := c.match("", p); c.capacity*c.size >= len(p) && again != (len(p)-1)/c.size*c.size {
				t.Fatalf("%v was just added: %d found", p, again)
			}
		}
	})
}

func TestPiecesRejoinAndAreStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		head, tail := rapid.String().Draw(t, "head"), rapid.String().Draw(t, "tail")
		joined := ""
		for _, p := range pieces(head) {
			joined += p
		}
		if joined != head {
			t.Fatalf("%q became %q", head, joined)
		}
		short, long := appendIDs(nil, head), appendIDs(nil, head+tail)
		if len(short) != len(pieces(head)) {
			t.Fatalf("%d ids for %d pieces", len(short), len(pieces(head)))
		}
		for i := range max(len(short)-1, 0) { // the last token may grow
			if short[i] != long[i] {
				t.Fatalf("token %d of %q changed when %q followed", i, head, tail)
			}
		}
	})
}
