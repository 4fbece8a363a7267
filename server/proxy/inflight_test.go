package proxy

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestAgeOfTheOldestRequestInFlight ends requests from both ends and from the middle.
func TestAgeOfTheOldestRequestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f inflightRequests
		begun := time.Now()
		var all [100]exchange
		for i := range all {
			all[i].in.Start = time.Now()
			f.add(&all[i])
			time.Sleep(time.Second + 16*time.Nanosecond) // another shard
		}
		check := func(oldest int) {
			t.Helper()
			want := time.Duration(0)
			if oldest < len(all) {
				want = time.Since(begun) - time.Duration(oldest)*(time.Second+16)
			}
			if got := f.oldest(); got != want {
				t.Errorf("with %d as the oldest the age is %v, want %v", oldest, got, want)
			}
		}
		check(0)
		for i := 99; i > 50; i-- { // the newest first
			f.remove(&all[i])
		}
		f.remove(&all[1]) // from the middle
		check(0)
		f.remove(&all[0])
		check(2)
		for i := 2; i <= 50; i++ {
			check(i)
			f.remove(&all[i])
		}
		check(len(all))
	})
}
