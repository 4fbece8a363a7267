package admin

import (
	"fmt"
	"testing"
)

// TestLoggedRejectionsAreBounded: one per second and address, and refusedMax per second in total.
func TestLoggedRejectionsAreBounded(t *testing.T) {
	a := &guard{refused: map[string]refusals{}}
	for second := int64(1); second < 4; second++ {
		n, left := 0, 0
		for i := range 2 * refusedMax {
			if second%2 == 0 { // the untracked addresses first
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
			t.Errorf("in second %d: %d are logged, %d addresses are tracked", second, n, len(a.refused))
		}
		// Each of 2 * refusedMax addresses sends three, and one of each of refusedMax addresses is logged.
		if want := 5 * refusedMax; second > 1 && left != want {
			t.Errorf("in second %d: %d of the second before were omitted, want %d", second, left, want)
		}
	}
}
