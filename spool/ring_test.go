package spool

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// ringNumber is the value n of one producer.
type ringNumber struct{ producer, n int }

// TestRingPassesEachValueOnceInTheOrderOfItsProducer: also while it is full, with and without a goroutine in Run, and
// while readers flush.
func TestRingPassesEachValueOnceInTheOrderOfItsProducer(t *testing.T) {
	const producers, values = 8, 2000
	for _, running := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var next [producers]int
			r := NewRing(RingConfig[ringNumber]{Size: 16, Batch: 5, Delay: time.Millisecond, Consume: func(batch []ringNumber) {
				if len(batch) == 0 || len(batch) > 5 {
					t.Errorf("a batch of %d", len(batch))
				}
				for _, v := range batch {
					if v.n != next[v.producer] {
						t.Errorf("producer %d: value %d, want %d", v.producer, v.n, next[v.producer])
					}
					next[v.producer] = v.n + 1
				}
			}})
			ctx, stop := context.WithCancel(t.Context())
			var owned, adding sync.WaitGroup
			if running {
				owned.Go(func() { r.Run(ctx) })
			}
			for p := range producers {
				adding.Go(func() {
					for n := range values {
						r.Add(ringNumber{p, n})
						if n%100 == 99 {
							r.Flush()
						}
					}
				})
			}
			adding.Wait()
			stop()
			owned.Wait()
			r.Flush()
			for p, n := range next {
				if n != values {
					t.Errorf("running %v: producer %d: %d values, want %d", running, p, n, values)
				}
			}
		})
	}
}

// TestRingPassesAValueOnAfterItsDelay, or at once when half of the ring is full, or at the end.
func TestRingPassesAValueOnAfterItsDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got atomic.Int64
		r := NewRing(RingConfig[int]{Size: 8, Batch: 8, Delay: time.Second, Consume: func(batch []int) {
			got.Add(int64(len(batch)))
		}})
		ctx, stop := context.WithCancel(t.Context())
		var owned sync.WaitGroup
		owned.Go(func() { r.Run(ctx) })
		want := func(n int64, what string) {
			t.Helper()
			synctest.Wait()
			if got.Load() != n {
				t.Errorf("%s: %d values, want %d", what, got.Load(), n)
			}
		}
		r.Add(0)
		want(0, "at once")
		time.Sleep(time.Second)
		want(1, "after the delay")
		for n := range 3 {
			r.Add(n)
		}
		want(4, "half of the ring")
		r.Add(4)
		want(4, "before the end")
		stop()
		owned.Wait()
		want(5, "after the end")
	})
}

// TestFlushedRingKeepsNoValue: a record in it would stay in memory until its slot is used again.
func TestFlushedRingKeepsNoValue(t *testing.T) {
	r := NewRing(RingConfig[*int]{Size: 4, Batch: 2, Consume: func([]*int) {}})
	for range 7 {
		r.Add(new(int))
	}
	r.Flush()
	for i := range r.slots {
		if r.slots[i].value != nil {
			t.Errorf("slot %d has a value", i)
		}
	}
	for _, v := range r.batch[:cap(r.batch)] {
		if v != nil {
			t.Error("the batch has a value")
		}
	}
}

func BenchmarkRing(b *testing.B) {
	r := NewRing(RingConfig[int]{Size: 1024, Batch: 128, Consume: func([]int) {}})
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.Add(1)
		}
	})
}
