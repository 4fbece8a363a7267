package routing_test

import (
	"fmt"
	"time"

	"tierway/routing"
)

// A pool of two workers, of which the first runs one request at a time.
func Example() {
	policy, err := routing.New(routing.Config{Name: "least_load"})
	if err != nil {
		fmt.Println(err)
		return
	}
	pool := routing.NewPool(policy, []routing.Member{
		{ID: "gpu-a", Weight: 3, MaxInflight: 1},
		{ID: "gpu-b", Weight: 1},
	})
	for _, id := range []string{"gpu-a", "gpu-b"} {
		pool.Observe(id, nil, routing.Status{Up: true})
	}

	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	request := routing.Request{
		Now: now, PromptTokens: 1200, OutputTokens: 300, Stream: true,
		Rand: 2, // breaks the tie between two idle workers by weight
	}

	first, _ := pool.Acquire(&request)
	second, _ := pool.Acquire(&request) // gpu-a is full now
	fmt.Println(first.Worker().ID(), second.Worker().ID(), second.Reason())

	for _, w := range pool.Snapshot(now) {
		fmt.Printf("%s: %d in flight, %d prompt and %d output tokens booked\n",
			w.ID, w.Inflight, w.PendingTokens, w.OutputTokens)
	}

	first.Answered(now.Add(200*time.Millisecond), nil)
	first.Release(routing.Result{At: now.Add(5 * time.Second), PromptTokens: 1180, OutputTokens: 270, Text: true})
	fmt.Println(pool.Snapshot(now)[0].Inflight, "in flight on gpu-a after its release")

	_, err = pool.Acquire(&request, first.Worker(), second.Worker()) // both were tried
	fmt.Println(err)
	second.Release(routing.Result{At: now.Add(6 * time.Second)})
	// Output:
	// gpu-a gpu-b least_load
	// gpu-a: 1 in flight, 1200 prompt and 300 output tokens booked
	// gpu-b: 1 in flight, 1200 prompt and 300 output tokens booked
	// 0 in flight on gpu-a after its release
	// no worker is up
}
