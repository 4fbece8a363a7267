package routing

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// owners returns the worker of each of the keys 1 to n.
func owners(g *ring, ws []View, n int) []string {
	if !g.update(start, ws) {
		return make([]string, n)
	}
	ids := make([]string, n)
	for key := range n {
		s, _ := g.next(g.first(Mix(uint64(key + 1))))
		ids[key] = ws[s.view].ID
	}
	return ids
}

// weighted returns idle workers w0, w1 and so on of those weights.
func weighted(weights ...int) []View {
	ws := make([]View, len(weights))
	for i, w := range weights {
		ws[i] = View{ID: fmt.Sprint("w", i), Index: i, Weight: w}
	}
	return ws
}

func TestOnlyKeysOfAddedAndRemovedWorkersMove(t *testing.T) {
	const keys = 20_000
	for _, n := range []int{1, 2, 3, 8, 16, 50} {
		all := weighted(slices.Repeat([]int{1}, n+1)...)
		g := newRing(defaultVirtualNodes)
		before := owners(g, all[:n], keys)
		after := owners(g, all, keys)
		moved, newcomer := 0, all[n].ID
		for key := range keys {
			if before[key] == after[key] {
				continue
			}
			moved++
			if after[key] != newcomer {
				t.Fatalf("%d workers and one more: a key moved from %s to %s", n, before[key], after[key])
			}
		}
		// 150 points leave a standard deviation of 8 %.
		share := float64(moved) / keys * float64(n+1)
		t.Logf("a worker that joins %d takes %.2f of its fair share", n, share)
		if share < 0.75 || share > 1.25 {
			t.Errorf("a worker that joins %d takes %.2f of its fair share", n, share)
		}
		if again := owners(g, all[:n], keys); !slices.Equal(before, again) {
			t.Errorf("%d workers: a worker that came and went has left keys elsewhere", n)
		}
	}
}

func TestWeightMovesOnlyKeysOfItsWorker(t *testing.T) {
	const keys = 20_000
	g := newRing(defaultVirtualNodes)
	weights := []int{1, 2, 3, 4, 1, 1, 2, 2}
	before := owners(g, weighted(weights...), keys)
	for _, weight := range []int{5, 4, 1, 9, 100, 3} {
		weights[2] = weight
		after := owners(g, weighted(weights...), keys)
		has, sum := 0, 0
		for _, w := range weights {
			sum += w
		}
		for key := range keys {
			if after[key] == "w2" {
				has++
			}
			if before[key] != after[key] && before[key] != "w2" && after[key] != "w2" {
				t.Fatalf("weight %d moved a key from %s to %s", weight, before[key], after[key])
			}
		}
		fair := float64(weight) / float64(sum)
		if share := float64(has) / keys; math.Abs(share/fair-1) > 0.25 {
			t.Errorf("weight %d of %d has %.3f of the keys, fair is %.3f", weight, sum, share, fair)
		}
		before = after
	}
}

// A key's home depends on the eligible workers and their weights only, not on earlier picks, so that
// gateways agree.
func TestHomesDependOnEligibleWorkersOnly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := newRing(15)
		now := start
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			var ws []View
			for _, id := range rapid.SliceOfNDistinct(rapid.IntRange(0, 99), 1, 10, rapid.ID[int]).Draw(rt, "ids") {
				ws = append(ws, View{ID: fmt.Sprint("w", id), Index: len(ws), Weight: rapid.IntRange(1, 5).Draw(rt, "weight")})
			}
			now = now.Add(time.Duration(rapid.IntRange(-1, 60).Draw(rt, "minutes")) * time.Minute)
			g.update(now, ws)
			fresh := newRing(15)
			shuffled := rapid.Permutation(ws).Draw(rt, "order")
			if got, want := owners(g, ws, 60), owners(fresh, shuffled, 60); !slices.Equal(got, want) {
				rt.Fatalf("with a past %v, without %v", got, want)
			}
		}
	})
}

func TestWeightsKeepTheRingBounded(t *testing.T) {
	g := newRing(1000)
	ws := weighted(slices.Repeat([]int{100, 1, 50}, 40)...)
	g.update(start, ws)
	if len(g.hashes) > maxPoints {
		t.Fatalf("the ring has %d points", len(g.hashes))
	}
	const keys = 20_000
	has := map[int]int{}
	for _, id := range owners(g, ws, keys) {
		at := slices.IndexFunc(ws, func(v View) bool { return v.ID == id })
		has[ws[at].Weight]++
	}
	for weight, n := range has {
		if fair := float64(weight) / 151 * keys; math.Abs(float64(n)/fair-1) > 0.1 {
			t.Errorf("weight %d has %d keys, fair are %.0f", weight, n, fair)
		}
	}
	// A weight that no ring could hold, or whose points are more than one worker
	// can have, is a share like any other.
	for _, c := range []struct {
		weights []int
		share   float64 // of the last one
	}{
		{[]int{math.MaxInt, 1 << 30, 1<<30 + 1}, 1. / 3}, {[]int{1 << 30, 1}, 0}, {[]int{2000, 1000}, 1. / 3},
	} {
		g, ws, n := newRing(150), weighted(c.weights...), 0
		for _, id := range owners(g, ws, keys) {
			if id == ws[len(ws)-1].ID {
				n++
			}
		}
		if len(g.hashes) > maxPoints || math.Abs(float64(n)/keys-c.share) > 0.02 {
			t.Errorf("weights %v: %d points, the last has %d keys of %d", c.weights, len(g.hashes), n, keys)
		}
	}
}

func TestChurnKeepsTheRingBounded(t *testing.T) {
	g := newRing(20)
	for round := range 500 {
		ws := weighted(1, 1, 1, 1, 1, 1, 1, 1)
		for i := range ws {
			ws[i].ID = fmt.Sprint("pod-", round, "-", i)
		}
		now := start.Add(time.Duration(round) * time.Second)
		g.update(now, ws)
		if most := 8 + maxAbsent; len(g.slots) > most || len(g.byID) > most || len(g.slotByIndex) > 8 ||
			len(g.hashes) > 20*most {
			t.Fatalf("after %d reloads: %d slots, %d IDs, %d places, %d points", round+1, len(g.slots), len(g.byID),
				len(g.slotByIndex), len(g.hashes))
		}
	}
	g.update(start.Add(time.Hour*3), weighted(1, 1))
	if len(g.slots) != 2 || len(g.hashes) != 40 {
		t.Errorf("hours after, %d workers and %d points are there for 2", len(g.slots), len(g.hashes))
	}
}

// In a pool with many full workers each request sees other eligible workers. That must not sort the
// ring each time.
func TestFullWorkersStayOnTheRing(t *testing.T) {
	g, all, d := newRing(20), weighted(slices.Repeat([]int{1}, 300)...), rng(3)
	g.update(start, all[:299])
	g.update(start, all[260:]) // a new worker, while most are full
	points := &g.hashes[0]
	for range 200 {
		from := d.below(250)
		g.update(start, all[from:from+50])
	}
	if &g.hashes[0] != points {
		t.Error("the ring was sorted again although no worker is new")
	}
}

func TestRingIgnoresWorkersOverItsCapacity(t *testing.T) {
	p := mustCHWBL(t, Config{Depth: "fixed", VirtualNodes: 1})
	ws := weighted(slices.Repeat([]int{1}, maxSlots+5)...)
	for i := range ws[:maxSlots] {
		ws[i].Inflight, ws[i].PendingTokens = 1, 1<<30
	}
	for key := range uint64(5) {
		// Workers that are not on the ring have room, but no request may wait for them.
		if i, reason := p.Pick(&Request{Now: start, Prefix: key + 1, PromptTokens: 1 << 29}, ws); i < 0 || i >= maxSlots ||
			reason != ReasonPrefixSaturated {
			t.Errorf("it went to %d (%s)", i, reason)
		}
	}
}

// Absent workers never keep a present worker from the ring.
func TestRenamedPoolIsOnTheRing(t *testing.T) {
	g, ws := newRing(1), weighted(slices.Repeat([]int{1}, maxSlots*2/3)...)
	g.update(start, ws)
	for i := range ws {
		ws[i].ID = "new-" + ws[i].ID
	}
	g.update(start, ws)
	for i := range ws {
		if _, known := g.findSlot(&ws[i]); !known {
			t.Fatalf("%s, one of %d, is not on the ring", ws[i].ID, len(ws))
		}
	}
}

// Gateways with the same workers agree on every home, in any order of the workers.
func TestGatewaysAgreeOnHomes(t *testing.T) {
	one, two := mustCHWBL(t, Config{}), mustCHWBL(t, Config{})
	ws := equals(make([]int, 12)...)
	turned := slices.Clone(ws)
	slices.Reverse(turned)
	for i := range turned {
		turned[i].Index = i
	}
	d := rng(5)
	for i := range 3000 {
		blocks := prompt(d.below(400), d.below(9), 9)
		r := &Request{Now: start.Add(time.Duration(i) * time.Second), Blocks: blocks, Prefix: blocks[0].Hash}
		a, _ := one.Pick(r, ws)
		b, _ := two.Pick(r, turned)
		if ws[a].ID != turned[b].ID {
			t.Fatalf("request %d goes to %s and %s", i, ws[a].ID, turned[b].ID)
		}
	}
}

// Gateways of different versions must agree on placements: a changed hash would cost every chat its
// cache during an update.
func TestPlacementsAreStableAcrossVersions(t *testing.T) {
	ws := weighted(1, 1, 2, 1)
	ws[3].ID = "http://10.0.0.7:8000"
	got := owners(newRing(defaultVirtualNodes), ws, 16)
	want := []string{
		"w1", "w0", "http://10.0.0.7:8000", "w2", "w0", "w0", "w2", "w0",
		"w1", "http://10.0.0.7:8000", "w0", "http://10.0.0.7:8000", "w2", "w2", "w2", "w1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("keys 1 to 16 go to\n%q, want\n%q", got, want)
	}
	p := mustCHWBL(t, Config{})
	for key, want := range map[uint64]int{1: 1, 2: 0, 0xdeadbeef: 2, math.MaxUint64: 3} {
		if i, _ := p.Pick(&Request{Prefix: key}, ws); i != want {
			t.Errorf("prefix %#x goes to %d, want %d", key, i, want)
		}
	}
}
