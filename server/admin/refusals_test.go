package admin

import (
	"fmt"
	"testing"
)

// TestRefusalsAreBoundedByAddress: one a second of each, and of all a thousand.
func TestRefusalsAreBoundedByAddress(t *testing.T) {
	a := &guard{refused: map[string]refusals{}}
	for second := int64(1); second < 4; second++ {
		n, left := 0, 0
		for i := range 2 * refusedMax {
			if second%2 == 0 { // those that are forgotten come first
				i = 2*refusedMax - 1 - i
			}
			for range 3 {
				more, elsewhere, first := a.firstOfSecond(fmt.Sprintf("address %d", i), second)
				left += more + elsewhere
				if first {
					n++
				}
			}
		}
		if n != refusedMax || len(a.refused) > refusedMax {
			t.Errorf("in second %d: %d, and %d are remembered", second, n, len(a.refused))
		}
		// Of three from each of two thousand, one from each of a thousand is written.
		if want := 5 * refusedMax; second > 1 && left != want {
			t.Errorf("in second %d: %d of the second before were left out, want %d", second, left, want)
		}
	}
}
