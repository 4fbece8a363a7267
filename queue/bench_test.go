package queue

import (
	"errors"
	"fmt"
	"testing"

	"tierway/routing"
)

// benchDepths are the numbers of requests that already wait.
func benchDepths() []int { return []int{1000, 100_000} }

// crowd fills a queue with n waiting requests of 40 tenants in all classes.
func crowd(b *testing.B, n int) *rig {
	b.Helper()
	r := newRig(b, usual(), 16, 4)
	r.fill(64)
	for range n {
		r.mustWait(r.ticket(r.rng.below(3), fmt.Sprint("t", r.rng.below(40)), int64(100+r.rng.below(4000))))
	}
	return r
}

// BenchmarkEnterAndLeave measures a request that enters a full pool's queue and leaves it,
// without the pass of a freed slot.
func BenchmarkEnterAndLeave(b *testing.B) {
	for _, n := range benchDepths() {
		b.Run(fmt.Sprint("waiting=", n), func(b *testing.B) {
			r := crowd(b, n)
			tk := r.ticket(1, "t7", 1000)
			b.ReportAllocs()
			for b.Loop() {
				tk.seq = 0
				if _, err := r.queue.Enter(tk, r.now); !errors.Is(err, ErrWaiting) {
					b.Fatal(err)
				}
				_ = r.queue.Leave(tk, Cancelled, r.now)
			}
		})
	}
}

// BenchmarkDispatch measures the dispatch of the next request to a freed slot, and one request
// that enters.
func BenchmarkDispatch(b *testing.B) {
	for _, n := range benchDepths() {
		b.Run(fmt.Sprint("waiting=", n), func(b *testing.B) {
			r := crowd(b, n)
			var under []*Ticket
			for tk := range r.held {
				under = append(under, tk)
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				tk := under[i%len(under)]
				lease := r.held[tk]
				lease.Release(routing.Result{At: r.now})
				delete(r.held, tk)
				granted := r.woken[0]
				r.woken = r.woken[:0]
				*lease, _ = r.queue.Claim(granted, r.now)
				r.held[granted], under[i%len(under)] = lease, granted
				i++
				tk.seq = 0
				if _, err := r.queue.Enter(tk, r.now); !errors.Is(err, ErrWaiting) {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAllLeave measures 20,000 waiting requests that their clients cancel at once.
func BenchmarkAllLeave(b *testing.B) {
	const many = 20_000
	for b.Loop() {
		b.StopTimer()
		r := crowd(b, 0)
		tickets := make([]*Ticket, many)
		for i := range tickets {
			tickets[i] = r.mustWait(r.ticket(i%3, fmt.Sprint("t", i%40), 1000))
		}
		b.StartTimer()
		for _, tk := range tickets {
			_ = r.queue.Leave(tk, Cancelled, r.now)
		}
		if r.queue.Waiting() != 0 {
			b.Fatalf("%d wait", r.queue.Waiting())
		}
	}
}
