package responsecache

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// BenchmarkNearest compares with the most answers that a group has, of 384 dimensions, of which none is near. It
// reports the mean and the 99th percentile of a look-up's CPU time, for texts with nothing in common and for those
// with the mean similarity of related texts, at the default threshold. Each look-up has another text. Before it, 256
// MiB of other data are written, more than the processor's caches hold. C8: the percentile is at most 2 ms, else the
// benchmark fails.
func BenchmarkNearest(b *testing.B) {
	for _, mean := range []float64{0, 0.5, 0.7, 0.8, 0.85, 0.88, 0.92} {
		b.Run(fmt.Sprint("mean ", mean), func(b *testing.B) {
			var m Memory
			m.SetMax(1 << 30)
			of, random := key("a", 1), rand.New(rand.NewPCG(1, 2))
			text := textsAround(random, 384, mean)
			for i := range groupMax {
				k := key("a", 0)
				k.Pool = fmt.Sprint(i)
				m.PutNear(k, of, text(), entry(1), time.Minute, 0)
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var took []time.Duration
			sum, evictions := time.Duration(0), make([]byte, 256<<20)
			for b.Loop() {
				for i := 0; i < len(evictions); i += 64 {
					evictions[i]++
				}
				v := text()
				before := threadTime(b)
				m.Nearest(of, v, 0.97, at(0))
				took = append(took, threadTime(b)-before)
				sum += took[len(took)-1]
			}
			slices.Sort(took)
			p99 := took[len(took)*99/100]
			b.ReportMetric(float64(sum.Microseconds())/float64(b.N), "cpu-µs/op")
			b.ReportMetric(float64(p99.Microseconds()), "p99-cpu-µs")
			if p99 > 2*time.Millisecond {
				b.Errorf("C8: 1 %% of the look-ups take %v of CPU time or more", p99)
			}
		})
	}
}

// threadTime returns the CPU time of the thread. Getrusage is exact to 4 ms only.
func threadTime(b *testing.B) time.Duration {
	b.Helper()
	const threadClock = 3 // CLOCK_THREAD_CPUTIME_ID
	var t syscall.Timespec
	if _, _, e := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&t)), 0); e != 0 {
		b.Fatal(e)
	}
	return time.Duration(t.Nano())
}
