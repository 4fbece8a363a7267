package spool

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	_ "tierway/fixedseed"
)

// TestEveryValueIsWrittenOrCounted: through outages and overflows values come once and
// in order, batches keep their bound, and nothing that fits is lost.
func TestEveryValueIsWrittenOrCounted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			limit, batch := rapid.IntRange(1, 300).Draw(rt, "max"), rapid.IntRange(1, 100).Draw(rt, "batch")
			var mu sync.Mutex
			var down error
			var written []int
			s := New(Config[int]{Max: limit, Batch: batch, Delay: time.Second,
				Write: func(_ context.Context, values []int) (int, error) {
					mu.Lock()
					defer mu.Unlock()
					if len(values) > batch {
						rt.Fatalf("a batch of %d", len(values))
					}
					if down == nil {
						written = append(written, values...)
					}
					return 0, down
				}})
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { s.Run(ctx) })
			added, overflown := 0, 0
			for range rapid.IntRange(1, 20).Draw(rt, "steps") {
				n := rapid.SampledFrom([]int{0, 1, 5, 63, 64, 65, 200}).Draw(rt, "values")
				waiting := s.Stats().Waiting
				for range n {
					s.Add(added)
					added++
				}
				overflown += max(0, waiting+n-limit)
				mu.Lock()
				down = rapid.SampledFrom([]error{nil, nil, errors.New("down")}).Draw(rt, "down")
				mu.Unlock()
				time.Sleep(rapid.SampledFrom([]time.Duration{0, time.Second, 3 * time.Second}).Draw(rt, "pause"))
				synctest.Wait()
			}
			mu.Lock()
			down = nil
			mu.Unlock()
			stop()
			running.Wait()
			got := s.Stats()
			if got.Waiting != 0 || got.Err != nil || got.Written != int64(len(written)) ||
				got.Written+got.Dropped != int64(added) || got.Dropped > int64(overflown) {
				rt.Fatalf("of %d values, %d more than fit: %+v", added, overflown, got)
			}
			if !slices.IsSorted(written) || len(slices.Compact(slices.Clone(written))) != len(written) {
				rt.Fatalf("they came as %v", written)
			}
		})
	})
}

// TestRunEndsFiveSecondsAfterItsContext: five seconds after the end of its context Run returns, with
// what could not be written still counted as waiting.
func TestRunEndsFiveSecondsAfterItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config[int]{Max: 10, Batch: 5, Write: func(context.Context, []int) (int, error) {
			return 0, errors.New("down")
		}})
		s.Add(1)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		began := time.Now()
		if s.Run(ctx); time.Since(began) != lastFlush || s.Stats().Waiting != 1 {
			t.Errorf("after %v: %+v", time.Since(began), s.Stats())
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	s := New(Config[*int]{Max: 8192, Batch: 1024, Delay: time.Second, Write: func(context.Context, []*int) (int, error) {
		return 0, nil
	}})
	go s.Run(b.Context())
	v := new(int)
	b.ReportAllocs()
	for b.Loop() {
		s.Add(v)
	}
}

// TestTryAddRefusesInsteadOfDropping: what TryAdd accepts is written, and what it refuses is counted.
func TestTryAddRefusesInsteadOfDropping(t *testing.T) {
	var written []int
	s := New(Config[int]{Max: 3, Batch: 2, Write: func(_ context.Context, values []int) (int, error) {
		written = append(written, values...)
		return 0, nil
	}})
	var accepted []int
	for i := range 5 {
		if s.TryAdd(i) {
			accepted = append(accepted, i)
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []int{0, 1, 2}; !slices.Equal(accepted, want) || !slices.Equal(written, want) || s.Stats().Dropped != 2 {
		t.Errorf("accepted %v, written %v, %+v; want %v and 2 dropped", accepted, written, s.Stats(), want)
	}
	if !s.TryAdd(5) {
		t.Error("an empty spool refuses a value")
	}
	if !s.TryAdd(6, 7) {
		t.Error("values are refused that fit")
	}
	s = New(s.config)
	if s.TryAdd(0); !s.TryAdd(1) || s.TryAdd(2, 3) || s.Stats().Waiting != 2 || s.Stats().Dropped != 2 {
		t.Errorf("a part of two values is added: %+v", s.Stats())
	}
}
