package main

import "testing"

// TestLargeHeapGrowsLess: the memory of a gateway with a million keys stays below 1 GiB.
func TestLargeHeapGrowsLess(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 5 << 20: 400, 100 << 20: 400, 120 << 20: 300, 200 << 20: 200,
		350 << 20: 100, 4 << 30: 100} {
		if got := collectorPercent(live); got != want {
			t.Errorf("%d MiB live: %d %%, want %d", live>>20, got, want)
		}
	}
}
