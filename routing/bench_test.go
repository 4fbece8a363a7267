package routing

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkAcquire books and releases one request at a time while twice as
// many as there are workers are in flight.
func BenchmarkAcquire(b *testing.B) {
	for _, name := range []string{"least_load", "chwbl"} {
		for _, workers := range []int{4, 16, 64} {
			for _, blocks := range []int{0, 20, 4096} {
				b.Run(fmt.Sprintf("%s/workers=%d/blocks=%d", name, workers, blocks), func(b *testing.B) {
					benchmarkAcquire(b, name, workers, blocks)
				})
			}
		}
	}
}

func benchmarkAcquire(b *testing.B, name string, workers, blocks int) {
	policy, err := New(Config{Name: name})
	if err != nil {
		b.Fatal(err)
	}
	members := make([]Member, workers)
	for i := range members {
		members[i] = Member{ID: fmt.Sprint("w", i), Weight: 1 + i%4, MaxInflight: 64}
	}
	p := poolOf(members...)
	p.Configure(policy, members)
	requests := make([]Request, 64) // half of the blocks are all requests' own
	for i := range requests {
		requests[i] = Request{Now: start, Rand: uint64(i) * 0x9E3779B97F4A7C15, PromptTokens: 2000, OutputTokens: 256, Stream: true}
		if blocks > 0 {
			requests[i].Blocks = prompt(1, blocks/2, blocks)
			for j := blocks / 2; j < blocks; j++ {
				requests[i].Blocks[j].Hash += uint64(i) << 20
			}
			requests[i].Prefix = requests[i].Blocks[0].Hash
		}
	}
	flying := make([]Lease, 2*workers)
	for i := range flying {
		if flying[i], err = p.Acquire(&requests[i%len(requests)]); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := &requests[i%len(requests)]
		r.Now = start.Add(time.Duration(i) * time.Microsecond)
		r.Rand += 0x9E3779B97F4A7C15
		l, err := p.Acquire(r)
		if err != nil {
			b.Fatal(err)
		}
		oldest := &flying[i%len(flying)]
		oldest.Release(Result{})
		*oldest = l
	}
}
