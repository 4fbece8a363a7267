package routing

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// free is a policy that must be called while its pool is not locked.
type free struct {
	Policy
	t     *testing.T
	pool  *Pool
	asked *int
}

func (f free) Pick(r *Request, ws []View) (int, Reason) {
	if !f.pool.mu.TryLock() {
		f.t.Errorf("%s is called under the pool's lock", f.Name())
	} else {
		f.pool.mu.Unlock()
	}
	*f.asked++
	return f.Policy.Pick(r, ws)
}

func (f free) clone(r *Request) Policy {
	f.Policy = policyCopy(f.Policy, r)
	return f
}

// TestPreviewPicksOutsideTheLock: a slow pick, such as one that makes a ring of a million points, delays
// no request. A policy with memory picks by a clone.
func TestPreviewPicksOutsideTheLock(t *testing.T) {
	members := []Member{{ID: "a", Weight: 1}, {ID: "b", Weight: 2}}
	for _, name := range Names() {
		policy, err := New(Config{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		p, asked := poolOf(members...), 0
		is := free{policy, t, p, &asked}
		p.Configure(is, members)
		other := append([]Member{{ID: "new", Weight: 100}}, members...)
		for _, draft := range []*Draft{nil, {Policy: is, Members: other},
			{Policy: free{leastLoad{}, t, p, &asked}, Members: other}} {
			r := ask()
			r.Blocks, r.Prefix = prompt(1, 0, 8), 1
			first, err := p.Preview(r, draft)
			if again, _ := p.Preview(r, draft); err != nil || again.Worker != first.Worker {
				t.Errorf("%s: it would go to %s, then to %s (%v)", name, first.Worker, again.Worker, err)
			}
		}
		if asked != 6 {
			t.Errorf("%s was called %d times", name, asked)
		}
	}
}

// TestConcurrentPreviewsChangeNothing: requests go to the same workers with and without them.
func TestConcurrentPreviewsChangeNothing(t *testing.T) {
	const requests = 600
	for _, name := range []string{"chwbl", "round_robin", "weighted_round_robin"} {
		members := make([]Member, 6)
		for i := range members {
			members[i] = Member{ID: fmt.Sprint("w", i), Weight: 1 + i%3, MaxInflight: 9}
		}
		policies := [2]Policy{}
		pools := [2]*Pool{}
		for i := range pools {
			var err error
			if policies[i], err = New(Config{Name: name}); err != nil {
				t.Fatal(err)
			}
			pools[i] = poolOf(members...)
			pools[i].Configure(policies[i], members)
		}
		request := func(d *rng, i int) *Request {
			blocks := prompt(d.below(5), 4+d.below(3), 12)
			return &Request{Now: start.Add(time.Duration(i) * time.Second), Rand: d.next(), Blocks: blocks,
				Prefix: blocks[0].Hash, PromptTokens: int64(1 + d.below(9000)), Stream: true}
		}
		var beside sync.WaitGroup
		done := make(chan struct{})
		beside.Go(func() {
			d := rng(9)
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				var draft *Draft
				if i%2 == 0 {
					draft = &Draft{Policy: policies[0], Members: append([]Member{{ID: fmt.Sprint("new", i), Weight: 5}},
						members[i%3:]...)}
				}
				if o, err := pools[0].Preview(request(&d, i%requests), draft); err != nil || o.Worker == "" {
					t.Errorf("%s: the preview is %+v (%v)", name, o, err)
				}
			}
		})
		dices := [2]rng{4, 4}
		for i := range requests {
			var at [2]string
			for k, p := range pools {
				l, err := p.Acquire(request(&dices[k], i))
				if err != nil {
					t.Fatal(err)
				}
				at[k] = l.worker.id
				l.Answered(start.Add(time.Duration(i)*time.Second), nil)
				l.Release(Result{At: start.Add(time.Duration(i) * time.Second)})
			}
			if at[0] != at[1] {
				t.Errorf("%s: request %d went to %s beside previews, and to %s without any", name, i, at[0], at[1])
				break
			}
		}
		close(done)
		beside.Wait()
	}
}

// unlockedPlanner is a Planner that must be called while its pool is not locked.
type unlockedPlanner struct {
	leastLoad
	t     *testing.T
	pool  *Pool
	calls *int
}

func (p unlockedPlanner) Plans(*Request) bool {
	if !p.pool.mu.TryLock() {
		p.t.Error("a draft's workers are examined under the pool's lock")
	} else {
		p.pool.mu.Unlock()
	}
	*p.calls++
	return true
}

// TestDraftIsExaminedOutsideTheLock: a draft with thousands of workers delays no request. Full workers are
// examined twice, for the candidates and for the excluded ones.
func TestDraftIsExaminedOutsideTheLock(t *testing.T) {
	p, calls := poolOf(Member{ID: "a", Weight: 1, MaxInflight: 1}, Member{ID: "b", Weight: 1}), 0
	p.workers[0].inflight = 1
	p.SetSaturation(Saturation{Waiting: 1})
	p.Observe("b", nil, Status{Up: true, Waiting: 1, LoadAt: start})
	members := []Member{{ID: "a", Weight: 1, MaxInflight: 1}, {ID: "b", Weight: 1}, {ID: "new", Weight: 1}}
	draft := &Draft{Policy: unlockedPlanner{leastLoad{}, t, p, &calls}, Members: members, Limit: p.saturation}
	r := ask()
	r.Wait = true
	if o, err := p.Preview(r, draft); err != nil || o.Worker != "new" || excludedText(&o) != "b saturated" {
		t.Errorf("the preview is %+v (%v)", o, err)
	}
	if calls == 0 {
		t.Error("the draft's policy was not called")
	}
}
