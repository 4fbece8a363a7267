package queue_test

import (
	"errors"
	"fmt"
	"time"

	"tierway/queue"
	"tierway/routing"
)

// A worker with one slot serves two requests: the second one waits until the first one ends.
func Example() {
	policy, err := routing.New(routing.Config{Name: "least_load"})
	if err != nil {
		panic(err)
	}
	pool := routing.NewPool(policy, []routing.Member{{ID: "gpu-1", MaxInflight: 1, Weight: 1}})
	pool.Observe("gpu-1", nil, routing.Status{Up: true})

	woken := make(chan *queue.Ticket, 1)
	bounds := queue.Config{MaxDepth: 10, MaxWait: [queue.Classes]time.Duration{time.Minute, time.Minute, time.Hour}}
	q := queue.New(pool, bounds, func(t *queue.Ticket) { woken <- t })
	now := time.Unix(1_800_000_000, 0)
	pool.Watch(func() { q.Dispatch(now) })

	first := &queue.Ticket{Request: &routing.Request{Now: now}, Tenant: "acme", Tokens: 100}
	second := &queue.Ticket{Request: &routing.Request{Now: now}, Tenant: "acme", Tokens: 100}
	lease, err := q.Enter(first, now)
	fmt.Println("first: ", lease.Worker().ID(), err)
	_, err = q.Enter(second, now)
	fmt.Println("second:", errors.Is(err, queue.ErrWaiting), q.Waiting())

	now = now.Add(3 * time.Second)
	lease.Release(routing.Result{At: now}) // the pool reports the free slot, and the queue dispatches
	lease, err = q.Claim(<-woken, now)
	fmt.Println("second:", lease.Worker().ID(), err)
	lease.Release(routing.Result{At: now})
	q.SettleUsage(second, 80)
	// Output:
	// first:  gpu-1 <nil>
	// second: true 1
	// second: gpu-1 <nil>
}
