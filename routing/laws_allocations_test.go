package routing_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"tierway/routing"
)

// openGate admits every request, refusingGate none; neither allocates.
type (
	openGate     struct{}
	refusingGate struct{}
)

func (openGate) Allow(time.Duration) (uint64, error)     { return 0, nil }
func (openGate) Report(uint64, error)                    {}
func (openGate) ReportCut(time.Time, error)              {}
func (refusingGate) Allow(time.Duration) (uint64, error) { return 0, errShut }
func (refusingGate) Report(uint64, error)                {}
func (refusingGate) ReportCut(time.Time, error)          {}

var errShut = errors.New("shut")

// allocations acquires and releases among 16 workers, with gates that refuse and a worker that was
// tried, and fails if that allocates.
func allocations(t *testing.T, policy routing.Policy, record func() *routing.Choice) {
	pool := routing.NewPool(policy, nil)
	var members []routing.Member
	for i := range 16 {
		m := routing.Member{ID: fmt.Sprint("w", i), Weight: 1, MaxInflight: 100, Gate: openGate{}}
		if i%4 == 0 {
			m.Gate = refusingGate{}
		}
		members = append(members, m)
	}
	pool.Configure(policy, members)
	for _, m := range members {
		pool.Observe(m.ID, m.Ref, routing.Status{Up: true})
	}
	request := routing.Request{
		Now:          epoch(),
		PromptTokens: 100000,
		OutputTokens: 100,
		Stream:       true,
		Blocks:       chain(0, 100, 4096),
		Record:       record(),
	}
	other := chain(0, 200, 4096)
	first, err := pool.Acquire(&request)
	if err != nil {
		t.Fatalf("acquiring among 16 workers: %v", err)
	}
	tried := first.Worker()
	first.Release(routing.Result{})
	allocs := testing.AllocsPerRun(200, func() {
		request.Rand += 0x9E3779B97F4A7C15
		request.Now = request.Now.Add(time.Millisecond)
		request.Blocks, other = other, request.Blocks
		lease, err := pool.Acquire(&request, tried)
		if err != nil || lease.Worker() == tried {
			t.Fatalf("acquiring beside %s: %v", tried.ID(), err)
		}
		lease.Answered(request.Now.Add(time.Second), nil)
		lease.Release(routing.Result{
			At:           request.Now.Add(2 * time.Second),
			PromptTokens: 90000,
			OutputTokens: 100,
			Text:         true,
		})
	})
	if allocs != 0 {
		t.Errorf("one request costs %v allocations", allocs)
	}
}

// roundAllocations offers 64 requests per round to 16 workers with places for 32, releases the leases,
// and fails if that allocates.
func roundAllocations(t *testing.T, policy routing.Policy, record func() *routing.Choice) {
	var members []routing.Member
	for i := range 16 {
		members = append(members, routing.Member{ID: fmt.Sprint("w", i), Weight: 1, MaxInflight: 2, Gate: openGate{}})
	}
	pool := routing.NewPool(policy, members)
	for _, m := range members {
		pool.Observe(m.ID, m.Ref, routing.Status{Up: true})
	}
	requests := make([]routing.Request, 64)
	for i := range requests {
		requests[i] = routing.Request{
			PromptTokens: 2000,
			OutputTokens: 100,
			Stream:       true,
			Wait:         i%8 > 0,
			Blocks:       chain(i%4, 10+i%3, 40),
			Record:       record(),
		}
	}
	now, leases, granted, kept := epoch(), make([]routing.Lease, 0, len(requests)), 0, 0
	round := func() {
		now = now.Add(time.Second)
		round := pool.BeginRound(now)
		for i := range requests {
			requests[i].Rand += 0x9E3779B97F4A7C15
			lease, err := round.Offer(&requests[i], nil)
			switch {
			case err == nil:
				leases = append(leases, lease)
			case errors.Is(err, routing.ErrBestWorkerFull), errors.Is(err, routing.ErrFull):
				kept++
			default:
				t.Fatalf("offering to 16 workers: %v", err)
			}
		}
		round.End()
		granted += len(leases)
		for i := range leases {
			if err := leases[i].Admit(); err != nil {
				t.Fatalf("admitting: %v", err)
			}
			leases[i].Answered(now.Add(time.Millisecond), nil)
			leases[i].Release(routing.Result{At: now.Add(2 * time.Millisecond)})
		}
		leases = leases[:0]
	}
	for range 300 { // until a policy has learned the traffic
		round()
	}
	allocs := testing.AllocsPerRun(50, round)
	if allocs != 0 {
		t.Errorf("a round of 64 offers costs %v allocations", allocs)
	}
	if kept == 0 {
		t.Errorf("of %d requests none had to wait", granted)
	}
}
