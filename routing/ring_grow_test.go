package routing

import (
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestGrownRingIsTheRingOfItsWorkers: it has the points in the order that a new ring of the same weights has.
func TestGrownRingIsTheRingOfItsWorkers(t *testing.T) {
	weights := rapid.SliceOfN(rapid.IntRange(0, 40), 0, 30)
	rapid.Check(t, func(t *rapid.T) {
		units := rapid.SampledFrom([]int{1, 7, 150, maxPoints / 100}).Draw(t, "units")
		g, all := newRing(units), []Member(nil)
		for range rapid.IntRange(1, 4).Draw(t, "reloads") {
			all = membersOf(weights.Draw(t, "weights")...)
			if g.lacks(all) {
				grown := *g
				grown.slots = slices.Clone(g.slots)
				grown.grow(all)
				g.replace(&grown)
			}
		}
		if g.lacks(all) {
			t.Fatal("the ring lacks a member after it has grown")
		}
		built := newRing(units)
		for _, s := range g.slots {
			built.slots[built.addSlot(s.id)].maxWeight = s.maxWeight
		}
		built.limitPoints()
		built.sortPoints()
		if g.halved != built.halved || len(built.hashes) > 0 && (!slices.Equal(g.hashes, built.hashes) ||
			!slices.Equal(g.owners, built.owners) || !slices.Equal(g.starts, built.starts) || g.shift != built.shift) {
			t.Fatalf("%d points, of %d slots; a new ring has %d", len(g.hashes), len(g.slots), len(built.hashes))
		}
	})
}

// TestReloadLeavesNoRingToThePicks: the points of a higher weight and of a new member exist before the first pick, also
// in the policies of rules.
func TestReloadLeavesNoRingToThePicks(t *testing.T) {
	policy, err := Compose(Config{Name: "chwbl"}, []Config{{Name: "consistent_hash"}})
	if err != nil {
		t.Fatal(err)
	}
	p := poolOf(membersOf(1, 1)...)
	for _, members := range [][]Member{membersOf(1, 1), membersOf(9, 1), membersOf(9, 1, 4)} {
		p.Configure(policy, members)
		for i, g := range ringsOf(policy) {
			if g.lacks(members) || len(g.hashes) == 0 {
				t.Errorf("ring %d lacks points of %v", i, members)
			}
		}
	}
}

// TestPicksGoOnWhileRingsGrow, with -race.
func TestPicksGoOnWhileRingsGrow(t *testing.T) {
	policy, err := New(Config{Name: "chwbl"})
	if err != nil {
		t.Fatal(err)
	}
	p := poolOf(membersOf(1, 1, 1)...)
	p.Configure(policy, membersOf(1, 1, 1))
	var picks sync.WaitGroup
	defer picks.Wait()
	for of := range 2 {
		picks.Go(func() {
			for i := range 500 {
				lease, err := p.Acquire(&Request{Now: start.Add(time.Duration(i)), Prefix: uint64(of*500 + i)})
				if err != nil {
					t.Error(err)
					return
				}
				lease.Release(Result{At: start, Err: ErrExcluded})
			}
		})
	}
	for weight := range 50 {
		p.Configure(policy, membersOf(weight+1, 1, 1))
	}
}
