package proxy

import (
	"math"
	"testing"
)

// PD8: an engine of SGLang crashes if a room is used twice.
func TestRoomsAreNotRepeated(t *testing.T) {
	r, seen := rooms{}, map[uint64]bool{}
	for range 1_000_000 {
		room := r.next(func() uint64 { return math.MaxInt64 - 1000 })
		if seen[room] || room > math.MaxInt64 {
			t.Fatalf("the room %d is issued twice, or has more than 63 bits", room)
		}
		seen[room] = true
	}
	var other rooms
	if a, b := other.next(func() uint64 { return 5 }), r.next(nil); a == b || a == 0 {
		t.Errorf("two gateways begin with the rooms %d and %d", a, b)
	}
}
