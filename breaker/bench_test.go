package breaker

import (
	"testing"
	"time"
)

// allocsMost is what one request may cost while closed: the function for its
// verdict, here and in gobreaker.
const allocsMost = 2

func TestARequestAllocatesLittle(t *testing.T) {
	r := newRig(t, 8, Config{})
	if got := testing.AllocsPerRun(1000, func() { r.try(0, nil) }); got > allocsMost {
		t.Errorf("%g allocations", got)
	}
	for range maxSamples {
		r.bs[1].Pace(time.Millisecond, time.Millisecond)
	}
	if got := testing.AllocsPerRun(1000, func() { r.bs[0].Pace(time.Millisecond, time.Millisecond) }); got > 0 {
		t.Errorf("%g allocations for a pace", got)
	}
}

func BenchmarkAllowDone(b *testing.B) {
	r := newRig(b, 8, Config{})
	b.ReportAllocs()
	for b.Loop() {
		r.try(0, nil)
	}
}

func BenchmarkAllowDoneParallel(b *testing.B) {
	r := newRig(b, 8, Config{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.try(0, nil)
		}
	})
}

func BenchmarkFailure(b *testing.B) {
	r := newRig(b, 16, Config{ConsecutiveFailures: 1 << 30, FailureRatio: 2})
	b.ReportAllocs()
	for b.Loop() {
		r.try(0, errFive)
	}
}

func BenchmarkPace(b *testing.B) {
	r := newRig(b, 16, Config{})
	for i := range r.bs {
		for j := range maxSamples {
			r.bs[i].Pace(time.Duration(j*37%64+1)*time.Millisecond, 30*time.Millisecond)
		}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		r.bs[0].Pace(time.Duration(i*37%64+1)*time.Microsecond, 30*time.Microsecond)
	}
}
