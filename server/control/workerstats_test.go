package control

import (
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// statsEpoch returns the beginning of a window.
func statsEpoch() time.Time { return time.Unix(0, 0).Add(1000 * statsWindow5m) }

func TestPercentilesAreAtMostATenthOff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := rapid.SliceOfN(rapid.Int64Range(int64(time.Microsecond), int64(time.Hour)), 1, 300).Draw(t, "times")
		st := &workerStats{}
		var sum float64
		for _, d := range times {
			st.Observe(statsEpoch(), AttemptStats{Total: time.Duration(d), TTFT: time.Duration(d)})
			sum += float64(d)
		}
		slices.Sort(times)
		at := func(q float64) float64 { return float64(times[int(math.Ceil(q*float64(len(times))))-1]) }
		v := st.View(statsEpoch())
		if v.Total.Count != int64(len(times)) || math.Abs(float64(v.Total.Mean)-sum/float64(len(times))) > 1 {
			t.Fatalf("%+v of %d durations with the mean %g", v.Total, len(times), sum/float64(len(times)))
		}
		for got, want := range map[time.Duration]float64{v.Total.P95: at(0.95), v.Total.P99: at(0.99), v.TTFT.P99: at(0.99)} {
			if off := math.Abs(float64(got)-want) / want; off > 0.1 {
				t.Fatalf("%v instead of %v: off by %.3f", got, time.Duration(want), off)
			}
		}
	})
}

func TestEveryDurationHasABucket(t *testing.T) {
	for _, d := range []time.Duration{-1, 0, 1, time.Microsecond, time.Second, 71 * time.Minute, 100 * time.Hour,
		math.MaxInt64} {
		if b := bucketOf(d); b < 0 || b >= bucketCount {
			t.Errorf("%v is in bucket %d", d, b)
		}
	}
	for b := range bucketCount {
		if got := bucketOf(bucketMiddle(b)); got != b {
			t.Errorf("the middle of bucket %d, %v, is in %d", b, bucketMiddle(b), got)
		}
	}
}

func TestOldLatenciesExpireAndTotalsStay(t *testing.T) {
	st, begin := &workerStats{}, statsEpoch()
	st.Observe(begin, AttemptStats{Total: time.Second, Prompt: 5, Cached: 3, Output: 7})
	st.Observe(begin.Add(statsWindow5m), AttemptStats{Outcome: AttemptFailed, TTFT: time.Millisecond})
	for _, tt := range []struct {
		after                time.Duration
		recent, totals, ttft int64
	}{{statsWindow5m, 2, 1, 1}, {2 * statsWindow5m, 1, 0, 1}, {3 * statsWindow5m, 0, 0, 0}} {
		v := st.View(begin.Add(tt.after))
		if v.Recent != tt.recent || v.Total.Count != tt.totals || v.TTFT.Count != tt.ttft {
			t.Errorf("after %v: %+v", tt.after, v)
		}
		if v.OK != 1 || v.Failed != 1 || v.Prompt != 5 || v.Cached != 3 || v.Output != 7 ||
			!v.LastSelected.Equal(begin.Add(statsWindow5m)) {
			t.Errorf("after %v the totals are %+v", tt.after, v)
		}
	}
	st.Observe(begin.Add(2*statsWindow5m), AttemptStats{Outcome: AttemptExcluded})
	st.Observe(begin, AttemptStats{Total: time.Second}) // the attempt ended in a replaced window
	if v := st.View(begin.Add(2 * statsWindow5m)); v.Recent != 3 || v.Excluded != 1 || v.OK != 2 {
		t.Errorf("with a late attempt: %+v", v)
	}
}

func TestConcurrentAttemptsAreAllCounted(t *testing.T) {
	st := &workerStats{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				st.Observe(statsEpoch(), AttemptStats{Total: time.Millisecond, Output: 1})
			}
		})
	}
	all.Wait()
	if v := st.View(statsEpoch()); v.OK != 8000 || v.Output != 8000 || v.Total.Count != 8000 || v.Recent != 8000 {
		t.Errorf("%+v", v)
	}
}

func BenchmarkWorkerStats(b *testing.B) {
	st, now := &workerStats{}, statsEpoch()
	a := AttemptStats{TTFT: 80 * time.Millisecond, Total: 2 * time.Second, Prompt: 1200, Cached: 900, Output: 300}
	for i := 0; b.Loop(); i++ {
		st.Observe(now.Add(time.Duration(i)*time.Millisecond), a)
	}
}
