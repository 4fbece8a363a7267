package routing

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// BenchmarkAcquire books and releases one request at a time, while twice as many requests as
// workers are in flight.
func BenchmarkAcquire(b *testing.B) {
	for _, name := range []string{"least_load", "chwbl"} {
		for _, workers := range []int{4, 16, 64} {
			for _, blocks := range []int{0, 20, 4096} {
				b.Run(fmt.Sprintf("%s/workers=%d/blocks=%d", name, workers, blocks), func(b *testing.B) {
					benchmarkAcquire(b, name, workers, blocks, nil)
				})
			}
		}
	}
}

// BenchmarkRecordedAcquire measures Acquire with a record of each pick.
func BenchmarkRecordedAcquire(b *testing.B) {
	for _, name := range Names() {
		for _, blocks := range []int{0, 20} {
			of := fmt.Sprintf("%s/blocks=%d", name, blocks)
			b.Run(of+"/plain", func(b *testing.B) { benchmarkAcquire(b, name, 16, blocks, nil) })
			b.Run(of+"/recorded", func(b *testing.B) {
				benchmarkAcquire(b, name, 16, blocks, &Choice{Candidates: make([]Candidate, 0, MaxCandidates)})
			})
		}
	}
}

func benchmarkAcquire(b *testing.B, name string, workers, blocks int, record *Choice) {
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
		requests[i] = Request{Now: start, Rand: uint64(i) * 0x9E3779B97F4A7C15, PromptTokens: 2000, OutputTokens: 256,
			Stream: true, Record: record}
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

// BenchmarkDispatchRound256 offers 256 waiting requests to 16 workers of four places in one round, and
// reports the time of one offer. In the worst case one place is open and no request has a cache
// there, so a planner lets nearly all of them wait. Usually a third of the workers have one or two
// open places, for any of 256 chats.
func BenchmarkDispatchRound256(b *testing.B) {
	for _, name := range []string{"least_load", "chwbl"} {
		for _, blocks := range []int{0, 20, 4096} {
			for _, kind := range []string{"worst", "usual"} {
				b.Run(fmt.Sprintf("%s/blocks=%d/%s", name, blocks, kind), func(b *testing.B) {
					benchmarkRound(b, name, blocks, kind == "usual")
				})
			}
		}
	}
}

func benchmarkRound(b *testing.B, name string, blocks int, usual bool) {
	const workers, offers = 16, 256
	policy, err := New(Config{Name: name})
	if err != nil {
		b.Fatal(err)
	}
	var members []Member
	for i := range workers {
		members = append(members, Member{ID: fmt.Sprint("w", i), Weight: 1, MaxInflight: 4})
	}
	p := poolOf(members...)
	p.Configure(policy, members)
	requests := waiting(p, policy, offers, blocks, !usual && blocks > 0)
	for i := range offers { // all chats had a turn, and a quarter of them have one in flight
		l, err := p.Acquire(&Request{Now: start, PromptTokens: 2000, OutputTokens: 256, Stream: true,
			Blocks: requests[i].Blocks})
		if err != nil {
			b.Fatal(err)
		}
		if l.Answered(start, nil); i < offers-4*workers {
			l.Release(Result{})
		}
	}
	for i := range members {
		if !usual && i == 0 {
			members[i].MaxInflight++
		} else if usual {
			members[i].MaxInflight += max(0, i%6-3)
		}
	}
	p.Configure(policy, members)
	leases, granted := make([]Lease, 0, offers), 0
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		round := p.BeginRound(start.Add(time.Duration(i) * time.Millisecond))
		for k := range requests {
			if l, err := round.Offer(&requests[k], nil); err == nil {
				leases = append(leases, l)
			}
		}
		round.End()
		granted += len(leases)
		for k := range leases {
			leases[k].Unbook()
		}
		leases = leases[:0]
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/offers, "ns/offer")
	b.ReportMetric(float64(granted)/float64(b.N), "granted/round")
}

// waiting returns requests of as many chats, which share half of their blocks. On demand none of
// them has the first worker as its home.
func waiting(p *Pool, policy Policy, n, blocks int, elsewhere bool) []Request {
	var requests []Request
	views := make([]View, 0, len(p.workers))
	for _, w := range p.workers {
		views = append(views, View{ID: w.id, Index: w.index, Weight: w.weight})
	}
	for i := 0; len(requests) < n; i++ {
		r := Request{Now: start, Rand: uint64(i) * golden, PromptTokens: 2000, OutputTokens: 256, Stream: true, Wait: true}
		if blocks > 0 {
			r.Blocks = prompt(1, blocks/2, blocks)
			for k := blocks / 2; k < blocks; k++ {
				r.Blocks[k].Hash += uint64(i) << 20
			}
			r.Prefix = r.Blocks[0].Hash
		}
		home, _ := policy.Pick(&r, views)
		if trained := i >= n; trained && (!elsewhere || home > 0) || blocks == 0 {
			requests = append(requests, r)
		}
	}
	return requests
}

// BenchmarkConfigure2000 changes the weight of one of 2,000 workers, and then selects a worker. For that, a policy may
// have to change its ring. locked-µs is the part of Configure that holds the pool's lock.
func BenchmarkConfigure2000(b *testing.B) {
	for _, name := range []string{"kv_aware", "chwbl"} {
		b.Run(name, func(b *testing.B) {
			policy, err := New(Config{Name: name})
			if err != nil {
				b.Fatal(err)
			}
			members := membersOf(slices.Repeat([]int{1}, 2000)...)
			p := NewPool(policy, members)
			for _, m := range members {
				p.Observe(m.ID, m.Ref, Status{Up: true})
			}
			var prepare, locked, acquire time.Duration
			for i := range b.N {
				members[i%2000].Weight = 1 + i/2000%99 + 1
				began := time.Now()
				workers, rings := make([]*Worker, len(members)), p.grownRings(policy, members)
				prepared := time.Now()
				p.mu.Lock()
				p.configureLocked(policy, members, workers, rings)
				p.unlockChanged()
				configured := time.Now()
				lease, err := p.Acquire(&Request{Now: start, Prefix: Mix(uint64(i))})
				if err != nil {
					b.Fatal(err)
				}
				acquire += time.Since(configured)
				prepare, locked = prepare+prepared.Sub(began), locked+configured.Sub(prepared)
				lease.Release(Result{At: start, Err: ErrExcluded})
			}
			b.ReportMetric(float64(prepare.Microseconds())/float64(b.N), "prepare-µs/op")
			b.ReportMetric(float64(locked.Microseconds())/float64(b.N), "locked-µs/op")
			b.ReportMetric(float64(acquire.Microseconds())/float64(b.N), "acquire-µs/op")
		})
	}
}
