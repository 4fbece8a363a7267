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
	shown     func(*routing.Request, []routing.View) // looks at the facts too, unless nil
	last      []routing.View                         // shown at the last call
}

// overlap is what the last call was told of the worker of that ID.
func (w *witness) overlap(id string) int64 {
	return w.last[slices.IndexFunc(w.last, func(v routing.View) bool { return v.ID == id })].Overlap
}

func newWitness(t failer, newPolicy func() routing.Policy) *witness {
	return &witness{t: t, one: newPolicy(), twin: newPolicy()}
}

// Name returns the policy's own name.
func (w *witness) Name() string { return w.one.Name() }

// Pick returns what the policy chose, once it has kept its laws.
func (w *witness) Pick(r *routing.Request, ws []routing.View) (int, routing.Reason) {
	for _, v := range ws {
		if !v.Up || v.Saturated || v.Full || v.Weight < 1 || v.Group != ws[0].Group || !(v.Rate > 0) {
			w.t.Fatalf("the policy was shown an ineligible worker: %+v", v)
		}
	}
	before, asked := slices.Clone(ws), *r
	asked.Blocks = slices.Clone(r.Blocks)
	if w.shown != nil {
		w.shown(r, ws)
	}
	w.last = before
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
	var weights [20]int // steady, as between two reloads
	for i := range weights {
		weights[i] = rapid.SampledFrom([]int{1, 1, 1, 2, 3, 10}).Draw(rt, "weight")
	}
	for range rapid.IntRange(1, 20).Draw(rt, "calls") {
		var ws []routing.View
		for index := range weights {
			if !rapid.Bool().Draw(rt, "eligible") {
				continue
			}
			ws = append(ws, routing.View{
				ID: fmt.Sprint("w", index), Index: index, Up: true,
				Weight:        weights[index],
				Inflight:      rapid.IntRange(0, 1000).Draw(rt, "inflight"),
				PendingTokens: rapid.Int64Range(0, 1<<60).Draw(rt, "pending"),
				OutputTokens:  rapid.Int64Range(0, 1<<60).Draw(rt, "output"),
				Waiting:       rapid.IntRange(0, 1000).Draw(rt, "waiting"),
				KVUsage:       rapid.Float64Range(0, 1).Draw(rt, "kv usage"),
				Overlap:       rapid.Int64Range(0, 1<<40).Draw(rt, "overlap"),
				Rate:          rapid.Float64Range(50, 1e6).Draw(rt, "rate"),
			})
		}
		if len(ws) > 0 {
			r := drawRequest(rt, epoch())
			w.Pick(&r, ws)
		}
	}
}

func drawRequest(rt *rapid.T, now time.Time) routing.Request {
	r := routing.Request{
		Now: now, Rand: rapid.Uint64().Draw(rt, "rand"),
		Model:        rapid.Uint64Range(0, 2).Draw(rt, "model"),
		PromptTokens: rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, 20000)).Draw(rt, "prompt tokens"),
		OutputTokens: rapid.Int64().Draw(rt, "output tokens"),
		Stream:       rapid.Bool().Draw(rt, "stream"),
	}
	r.Blocks = chain(rapid.IntRange(0, 1).Draw(rt, "chat"), rapid.IntRange(0, 40).Draw(rt, "branch"), rapid.IntRange(0, 60).Draw(rt, "blocks"))
	if len(r.Blocks) > 0 {
		r.Prefix = r.Blocks[0].Hash
	}
	return r
}

// chain is a prompt of n blocks of 64 characters that says the same as all
// others of its chat up to the branch.
func chain(chat, branch, n int) []routing.Block {
	blocks := make([]routing.Block, n)
	hash := uint64(chat + 1)
	for i := range blocks {
		if i == branch {
			hash += uint64(branch+1) << 32
		}
		hash = (hash ^ uint64(i)<<8) * 0x9E3779B97F4A7C15
		blocks[i] = routing.Block{Hash: hash, End: int64(i+1) * 64}
	}
	return blocks
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
				now := epoch().Add(time.Duration(round) * time.Millisecond)
				lease, err := pool.Acquire(&routing.Request{
					Now: now, Rand: uint64(g*rounds + round), Stream: g%2 == 0,
					PromptTokens: 2000, OutputTokens: 10, Blocks: chain(g%4, 8+round%8, 20),
				})
				if err != nil {
					var open *routing.OpenError
					if !errors.Is(err, routing.ErrFull) && !errors.As(err, &open) {
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
	request := routing.Request{Now: epoch(), PromptTokens: 100000, OutputTokens: 100, Stream: true, Blocks: chain(0, 100, 4096)}
	other := chain(0, 200, 4096)
	first, err := pool.Acquire(&request)
	if err != nil {
		t.Fatalf("acquiring among 16 workers: %v", err)
	}
	tried := first.Worker()
	first.Release(routing.Result{})
	allocs := testing.AllocsPerRun(1000, func() {
		request.Rand += 0x9E3779B97F4A7C15
		request.Now = request.Now.Add(time.Millisecond)
		request.Blocks, other = other, request.Blocks
		lease, err := pool.Acquire(&request, tried)
		if err != nil || lease.Worker() == tried {
			t.Fatalf("acquiring beside %s: %v", tried.ID(), err)
		}
		lease.Answered(request.Now.Add(time.Second), nil)
		lease.Release(routing.Result{At: request.Now.Add(2 * time.Second), PromptTokens: 90000, OutputTokens: 100, Text: true})
	})
	if allocs != 0 {
		t.Errorf("one request costs %v allocations", allocs)
	}
}
