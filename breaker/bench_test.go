package breaker

import "testing"

// allocsMost is the number of allocations of one request while closed: the closure that
// gobreaker returns for the outcome.
const allocsMost = 1

func TestARequestAllocatesOnce(t *testing.T) {
	r := newRig(t, 8, Config{})
	if got := testing.AllocsPerRun(1000, func() { r.try(0, nil) }); got > allocsMost {
		t.Errorf("%g allocations", got)
	}
}

func BenchmarkAllowReport(b *testing.B) {
	r := newRig(b, 8, Config{})
	b.ReportAllocs()
	for b.Loop() {
		r.try(0, nil)
	}
}

func BenchmarkAllowReportParallel(b *testing.B) {
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
