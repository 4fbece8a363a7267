// Package routingtest holds the laws that every routing policy must keep, as
// one call for a policy's test, and proves the pool's own promises with it.
package routingtest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tierway/routing"
)

// Laws fails t unless policies made by newPolicy keep the laws of routing:
// nobody but an eligible worker is chosen, and somebody whenever there is one;
// the choice depends on the facts and the given random number alone; bookings
// return to zero over any history; no bound is broken by any number of
// goroutines; acquiring allocates nothing. newPolicy must return a fresh policy
// at each call.
func Laws(t *testing.T, newPolicy func() routing.Policy) {
	t.Helper()
	t.Run("AnyHistoryKeepsTheBooks", rapid.MakeCheck(func(rt *rapid.T) { history(rt, newPolicy) }))
	t.Run("ChoiceDependsOnTheFactsAlone", rapid.MakeCheck(func(rt *rapid.T) { choices(rt, newPolicy) }))
	t.Run("BoundsHoldUnderConcurrency", func(t *testing.T) { concurrency(t, newPolicy()) })
	t.Run("AcquireAllocatesNothing", func(t *testing.T) { allocations(t, newPolicy()) })
}

// failer is what the laws need of *testing.T and *rapid.T.
type failer interface {
	Fatalf(format string, args ...any)
}

// witness passes each call to two policies of the same making, which must
// agree, and checks what they are given and what they answer.
type witness struct {
	t         failer
	one, twin routing.Policy
}

func newWitness(t failer, newPolicy func() routing.Policy) *witness {
	return &witness{t: t, one: newPolicy(), twin: newPolicy()}
}

// Name returns the policy's own name.
func (w *witness) Name() string { return w.one.Name() }

// Pick returns what the policy chose, once it has kept its laws.
func (w *witness) Pick(r *routing.Request, ws []routing.View) (int, routing.Reason) {
	for _, v := range ws {
		if !v.Up || v.Saturated || v.Full || v.Weight < 1 || v.Group != ws[0].Group {
			w.t.Fatalf("the policy was shown an ineligible worker: %+v", v)
		}
	}
	before, asked := slices.Clone(ws), *r
	i, reason := w.one.Pick(r, ws)
	if i < -1 || i >= len(ws) {
		w.t.Fatalf("%s picked index %d of %d workers", w.Name(), i, len(ws))
	}
	if i >= 0 && reason == "" {
		w.t.Fatalf("%s gave no reason for its choice", w.Name())
	}
	if !slices.Equal(before, ws) || !reflect.DeepEqual(asked, *r) {
		w.t.Fatalf("%s changed the facts that it was shown", w.Name())
	}
	if j, again := w.twin.Pick(r, ws); i != j || reason != again {
		w.t.Fatalf("the same facts gave %d (%s) and %d (%s)", i, reason, j, again)
	}
	return i, reason
}

// choices shows a policy arbitrary eligible workers.
func choices(rt *rapid.T, newPolicy func() routing.Policy) {
	w := newWitness(rt, newPolicy)
	for range rapid.IntRange(1, 20).Draw(rt, "calls") {
		var ws []routing.View
		for index := range 20 {
			if !rapid.Bool().Draw(rt, "eligible") {
				continue
			}
			ws = append(ws, routing.View{
				ID: fmt.Sprint("w", index), Index: index, Up: true,
				Weight:        rapid.IntRange(1, 100).Draw(rt, "weight"),
				Inflight:      rapid.IntRange(0, 1000).Draw(rt, "inflight"),
				PendingTokens: rapid.Int64Range(0, 1<<60).Draw(rt, "pending"),
				OutputTokens:  rapid.Int64Range(0, 1<<60).Draw(rt, "output"),
				Waiting:       rapid.IntRange(0, 1000).Draw(rt, "waiting"),
				KVUsage:       rapid.Float64Range(0, 1).Draw(rt, "kv usage"),
			})
		}
		if len(ws) > 0 {
			r := drawRequest(rt, epoch())
			w.Pick(&r, ws)
		}
	}
}

func drawRequest(rt *rapid.T, now time.Time) routing.Request {
	return routing.Request{
		Now: now, Rand: rapid.Uint64().Draw(rt, "rand"),
		PromptTokens: rapid.Int64().Draw(rt, "prompt tokens"),
		OutputTokens: rapid.Int64().Draw(rt, "output tokens"),
		Stream:       rapid.Bool().Draw(rt, "stream"),
	}
}

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
				lease, err := pool.Acquire(&routing.Request{Now: epoch(), Rand: uint64(g*rounds + round), PromptTokens: 10, OutputTokens: 10})
				if err != nil {
					if !errors.Is(err, routing.ErrFull) {
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
				lease.Answered(nil)
				h.Add(-1)
				// Several owners may believe that it is theirs to release.
				wg.Go(func() { lease.Release(routing.Result{}) })
				lease.Release(routing.Result{})
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

// pass is a gate that lets all through, shut one that lets nobody; neither allocates.
type (
	pass struct{}
	shut struct{}
)

func (pass) Allow() (func(error), error) { return func(error) {}, nil }
func (shut) Allow() (func(error), error) { return nil, errShut }

var errShut = errors.New("shut")

// allocations acquires and releases among 16 workers, past a gate that refuses
// and a worker that was tried.
func allocations(t *testing.T, policy routing.Policy) {
	pool := routing.NewPool(policy, nil)
	var members []routing.Member
	for i := range 16 {
		m := routing.Member{ID: fmt.Sprint("w", i), Weight: 1, MaxInflight: 100, Gate: pass{}}
		if i%4 == 0 {
			m.Gate = shut{}
		}
		members = append(members, m)
	}
	pool.Configure(policy, members)
	for _, m := range members {
		pool.Observe(m.ID, m.Ref, routing.Status{Up: true})
	}
	request := routing.Request{Now: epoch(), PromptTokens: 1000, OutputTokens: 100}
	first, err := pool.Acquire(&request)
	if err != nil {
		t.Fatalf("acquiring among 16 workers: %v", err)
	}
	tried := first.Worker()
	first.Release(routing.Result{})
	allocs := testing.AllocsPerRun(1000, func() {
		request.Rand += 0x9E3779B97F4A7C15
		lease, err := pool.Acquire(&request, tried)
		if err != nil || lease.Worker() == tried {
			t.Fatalf("acquiring beside %s: %v", tried.ID(), err)
		}
		lease.Answered(nil)
		lease.Release(routing.Result{})
	})
	if allocs != 0 {
		t.Errorf("one request costs %v allocations", allocs)
	}
}
