package routing_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tierway/routing"
)

// crowd is many goroutines that use one pool, with its own books.
type crowd struct {
	pool    *routing.Pool
	policy  routing.Policy
	members []routing.Member
	bound   int64          // of each member
	counts  []atomic.Int64 // leases on each member now
	wg      sync.WaitGroup
	served  atomic.Int64
	broken  atomic.Int64
}

// concurrency lets 64 goroutines acquire and release as fast as they can, while others observe and
// reload. It counts the leases on each worker from outside.
func concurrency(t *testing.T, policy routing.Policy) {
	const goroutines, rounds = 64, 100
	c := &crowd{policy: policy, bound: 3, counts: make([]atomic.Int64, 8)}
	for i := range c.counts {
		c.members = append(c.members, routing.Member{
			ID:          fmt.Sprint("w", i),
			Weight:      1 + i%3,
			MaxInflight: int(c.bound),
			Ref:         i,
		})
	}
	c.pool = routing.NewPool(policy, c.members)
	c.up()
	for g := range goroutines {
		c.wg.Go(func() {
			for round := range rounds {
				c.sendRequest(g, round, uint64(g*rounds+round))
			}
		})
	}
	c.wg.Wait()
	if c.broken.Load() > 0 || c.served.Load() == 0 {
		t.Errorf("%d requests broke a bound or found no worker, %d were served", c.broken.Load(), c.served.Load())
	}
	for _, v := range c.pool.Snapshot(epoch()) {
		if v.Inflight != 0 || v.PendingTokens != 0 || v.OutputTokens != 0 {
			t.Errorf("after the last release the books show %+v", v)
		}
	}
}

func (c *crowd) up() {
	for i, m := range c.members {
		c.pool.Observe(m.ID, m.Ref, routing.Status{Up: true, Waiting: i})
	}
}

// sendRequest sends one request of goroutine g.
func (c *crowd) sendRequest(g, round int, rand uint64) {
	now := epoch().Add(time.Duration(round) * time.Millisecond)
	lease, err := take(c.pool, g%3 == 0, &routing.Request{
		Now: now, Rand: rand, Stream: g%2 == 0, Wait: g%4 < 2,
		PromptTokens: 2000, OutputTokens: 10, Blocks: chain(g%4, 8+round%8, 20),
	})
	if err != nil {
		var open *routing.OpenError
		if !errors.Is(err, routing.ErrFull) && !errors.Is(err, routing.ErrBestWorkerFull) && !errors.As(err, &open) {
			c.broken.Add(1)
		}
		return
	}
	h := &c.counts[lease.Ref().(int)]
	if h.Add(1) > c.bound {
		c.broken.Add(1)
	}
	c.served.Add(1)
	if round%10 == 0 {
		c.pool.Configure(c.policy, c.members)
		c.up()
	}
	if m := c.members[g%8]; round%7 == 0 {
		c.pool.SetOpen(m.ID, m.Ref, now.Add(time.Millisecond))
		c.pool.SetOpen(m.ID, m.Ref, time.Time{})
		c.pool.Restore(m.ID, m.Ref, now)
	}
	lease.Answered(now.Add(time.Millisecond), nil)
	h.Add(-1)
	if round%3 == 0 {
		c.wg.Go(lease.Unbook)
	}
	// Several goroutines may release the same lease.
	whole := routing.Result{At: now.Add(time.Second), PromptTokens: 2000, OutputTokens: 100, Text: true}
	c.wg.Go(func() { lease.Release(whole) })
	lease.Release(whole)
}

// take acquires a lease, directly or in a round.
func take(pool *routing.Pool, inRound bool, r *routing.Request) (routing.Lease, error) {
	if !inRound {
		return pool.Acquire(r)
	}
	round := pool.BeginRound(r.Now)
	lease, err := round.Offer(r, nil)
	round.End()
	if err == nil {
		err = lease.Admit()
	}
	return lease, err
}
