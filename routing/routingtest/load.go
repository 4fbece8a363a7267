package routingtest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tierway/routing"
)

// concurrency lets 64 goroutines take and give back as fast as they can, while
// others observe and reload, and counts from outside how many hold each worker.
func concurrency(t *testing.T, policy routing.Policy) {
	const bound, goroutines, rounds = 3, 64, 100
	var members []routing.Member
	held := make([]atomic.Int64, 8)
	for i := range held {
		members = append(members, routing.Member{ID: fmt.Sprint("w", i), Weight: 1 + i%3, MaxInflight: bound, Ref: i})
	}
	pool := routing.NewPool(policy, members)
	up := func() {
		for i, m := range members {
			pool.Observe(m.ID, m.Ref, routing.Status{Up: true, Waiting: i})
		}
	}
	up()
	var wg sync.WaitGroup
	var served, broken atomic.Int64
	for g := range goroutines {
		wg.Go(func() {
			for round := range rounds {
				now := epoch().Add(time.Duration(round) * time.Millisecond)
				lease, err := take(pool, g%3 == 0, &routing.Request{
					Now: now, Rand: uint64(g*rounds + round), Stream: g%2 == 0, Wait: g%4 < 2,
					PromptTokens: 2000, OutputTokens: 10, Blocks: chain(g%4, 8+round%8, 20),
				})
				if err != nil {
					var open *routing.OpenError
					if !errors.Is(err, routing.ErrFull) && !errors.Is(err, routing.ErrHeld) && !errors.As(err, &open) {
						broken.Add(1)
					}
					continue
				}
				h := &held[lease.Ref().(int)]
				if h.Add(1) > bound {
					broken.Add(1)
				}
				served.Add(1)
				if round%10 == 0 {
					pool.Configure(policy, members)
					up()
				}
				if round%7 == 0 {
					pool.SetOpen(fmt.Sprint("w", g%8), g%8, now.Add(time.Millisecond))
					pool.SetOpen(fmt.Sprint("w", g%8), g%8, time.Time{})
					pool.Warm(fmt.Sprint("w", g%8), g%8, now)
				}
				lease.Answered(now.Add(time.Millisecond), nil)
				h.Add(-1)
				if round%3 == 0 {
					wg.Go(lease.Unbook)
				}
				// Several owners may believe that it is theirs to release.
				whole := routing.Result{At: now.Add(time.Second), PromptTokens: 2000, OutputTokens: 100, Text: true}
				wg.Go(func() { lease.Release(whole) })
				lease.Release(whole)
			}
		})
	}
	wg.Wait()
	if broken.Load() > 0 || served.Load() == 0 {
		t.Errorf("%d requests broke a bound or found no worker, %d were served", broken.Load(), served.Load())
	}
	for _, v := range pool.Snapshot(epoch()) {
		if v.Inflight != 0 || v.PendingTokens != 0 || v.OutputTokens != 0 {
			t.Errorf("after the last release the books show %+v", v)
		}
	}
}

// take acquires, alone or in a round.
func take(pool *routing.Pool, inRound bool, r *routing.Request) (routing.Lease, error) {
	if !inRound {
		return pool.Acquire(r)
	}
	round := pool.Begin(r.Now)
	lease, err := round.Offer(r, nil)
	round.End()
	if err == nil {
		err = lease.Admit()
	}
	return lease, err
}
