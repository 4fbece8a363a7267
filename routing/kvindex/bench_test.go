package kvindex

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"tierway/workers/kvevents"
)

// filled is an index of n workers of which each has the same prompt. If sliding is set, each has a
// sliding-window group with the last 64 blocks of the prompt.
func filled(b testing.TB, n, blocks int, sliding bool) (*Index, []uint64) {
	x := New(1 << 34)
	tokens := make([]uint32, blocks*16)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	for i := range n {
		w, err := x.Add("")
		if err != nil {
			b.Fatal(err)
		}
		hashes := make([]uint64, blocks)
		for k := range hashes {
			hashes[k] = uint64(i)<<32 | uint64(k)
		}
		events := []kvevents.Event{{Kind: kvevents.Stored, BlockSize: 16, Hashes: hashes, Tokens: tokens}}
		if sliding {
			events = append(events, kvevents.Event{Kind: kvevents.Stored, Group: 1, Hashes: hashes[blocks-64:],
				Attention: kvevents.Attention{Sliding: true, Window: 64 * 16}})
		}
		w.Apply(&kvevents.Batch{Events: events})
	}
	return x, AppendKeys(nil, Root("", 16), 16, tokens, nil, 0)
}

func BenchmarkOverlap(b *testing.B) {
	const blocks = 1000
	for _, kind := range []string{"full", "sliding"} {
		for _, workers := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s attention, %d workers, %d blocks", kind, workers, blocks), func(b *testing.B) {
				x, keys := filled(b, workers, blocks, kind == "sliding")
				var m [MaxWorkers]Match
				b.ReportAllocs()
				for b.Loop() {
					x.Overlap(keys, &m)
				}
				if m[workers-1].Blocks != blocks {
					b.Fatalf("%+v", m[workers-1])
				}
			})
		}
	}
}

// turnover is a worker that stores one block behind another and removes those that are 50,000 blocks
// older.
type turnover struct {
	worker *Worker
	tokens [16]uint32
	first  uint64 // hash
	count  uint64 // blocks that were stored
}

// apply applies a batch that stores and removes so many blocks.
func (t *turnover) apply(blocks int) {
	var all kvevents.Batch
	for range blocks {
		hash := t.first + t.count
		t.tokens[0] = uint32(t.count)
		all.Events = append(all.Events, kvevents.Event{Kind: kvevents.Stored, BlockSize: len(t.tokens),
			Hashes: []uint64{hash}, Tokens: slices.Clone(t.tokens[:])})
		if t.count >= 50_000 {
			all.Events = append(all.Events, kvevents.Event{Kind: kvevents.Removed, Hashes: []uint64{hash - 50_000}})
		}
		t.count++
	}
	t.worker.Apply(&all)
}

// BenchmarkApply stores one block, and removes one.
func BenchmarkApply(b *testing.B) {
	_, w := onlyWorker(b, 1<<34)
	t := turnover{worker: w}
	b.ReportAllocs()
	for b.Loop() {
		t.apply(1)
	}
}

// BenchmarkLookupsBesideEvents looks up 1,000 blocks of 16 workers 5,000 times a second, beside 50,000
// events a second in batches of 10. The CPU shares are those of one core.
func BenchmarkLookupsBesideEvents(b *testing.B) {
	const workers, blocks, batch = 16, 1000, 10
	const eventsPerSecond, lookupsPerSecond = 50_000, 5000
	x, keys := filled(b, workers, blocks, false)
	var all [workers]turnover
	for i := range all {
		all[i].worker = x.workers[i]
		all[i].first = uint64(i+1) << 40
	}
	stop, stopped := make(chan struct{}), make(chan time.Duration)
	began, events := time.Now(), 0
	go func() {
		busy := time.Duration(0)
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-stop:
				stopped <- busy
				return
			case <-tick.C:
			}
			at := time.Now()
			for due := int(at.Sub(began).Seconds() * eventsPerSecond); events < due; events += batch {
				all[events/batch%workers].apply(batch / 2)
			}
			busy += time.Since(at)
		}
	}()
	var m [MaxWorkers]Match
	var took []time.Duration
	tick := time.NewTicker(time.Second / lookupsPerSecond)
	defer tick.Stop()
	for b.Loop() {
		for len(took) >= int(time.Since(began).Seconds()*lookupsPerSecond) {
			<-tick.C
		}
		at := time.Now()
		x.Overlap(keys, &m)
		took = append(took, time.Since(at))
	}
	elapsed := time.Since(began).Seconds()
	close(stop)
	busy, lookups := <-stopped, time.Duration(0)
	for _, d := range took {
		lookups += d
	}
	slices.Sort(took)
	b.ReportMetric(float64(events)/elapsed, "events/s")
	b.ReportMetric(float64(len(took))/elapsed, "lookups/s")
	b.ReportMetric(100*busy.Seconds()/elapsed, "events-%CPU")
	b.ReportMetric(100*lookups.Seconds()/elapsed, "lookups-%CPU")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
