package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "tierway/fixedseed"
	"tierway/routing"
)

func TestRequestIsDispatchedAtOnceIfNoneWaits(t *testing.T) {
	r := newRig(t, usual(), 2, 2)
	r.fill(4)
	if got := r.inflight(); got != 4 {
		t.Errorf("%d requests in flight, want 4", got)
	}
	if v := r.queue.View(r.now); v.Classes[0].Entered != 0 {
		t.Errorf("%d requests counted as waiting, want none", v.Classes[0].Entered)
	}
}

func TestUrgentClassesAreDispatchedFirst(t *testing.T) {
	r := newRig(t, usual(), 1, 1)
	r.fill(1)
	batch := r.mustWait(r.ticket(2, "a", 10))
	background := r.mustWait(r.ticket(1, "a", 10))
	interactive := r.mustWait(r.ticket(0, "a", 10))
	for i, want := range []*Ticket{interactive, background, batch} {
		if got := r.next(); got != want {
			t.Errorf("grant %d went to %s, want %s", i, got.ID, want.ID)
		}
	}
	r.check()
}

func TestRequestsOfATenantAreDispatchedInOrder(t *testing.T) {
	r := newRig(t, usual(), 1, 1)
	r.fill(1)
	var want []*Ticket
	for i := range 20 {
		want = append(want, r.mustWait(r.ticket(1, "a", int64(1+i*7%5))))
	}
	for _, w := range want {
		if got := r.next(); got != w {
			t.Fatalf("%s was dispatched, want %s", got.ID, w.ID)
		}
	}
}

// TestRetryKeepsItsPlace: after a failed attempt, a request is dispatched before requests that
// arrived after its first attempt.
func TestRetryKeepsItsPlace(t *testing.T) {
	r := newRig(t, usual(), 1, 2)
	first := r.fill(2)[0]
	second := r.mustWait(r.ticket(0, "filler", 1))
	r.end(first) // grants second
	if _, ok := r.held[second]; !ok {
		t.Fatal("the second was not granted")
	}
	third := r.mustWait(r.ticket(0, "filler", 1))
	r.mustWait(first)
	if got := r.next(); got != first {
		t.Errorf("%s was dispatched, want the request that arrived first", got.ID)
	}
	if got := r.next(); got != third {
		t.Errorf("%s was dispatched, want %s", got.ID, third.ID)
	}
	r.check()
}

func TestRetryIsExemptFromTheBounds(t *testing.T) {
	c := usual()
	c.MaxDepth = 1
	r := newRig(t, c, 1, 1)
	tk := r.fill(1)[0]
	r.mustWait(r.ticket(0, "a", 1))
	r.end(tk)
	r.mustWait(r.ticket(0, "a", 1))
	r.mustWait(tk)
	r.check()
}

// TestWaitsCountInTheQueueOfAnotherPool: a request that has used up its wait gets a free worker there, and
// does not wait again.
func TestWaitsCountInTheQueueOfAnotherPool(t *testing.T) {
	c := usual()
	c.MaxWait[0] = 10 * time.Second
	for waited, want := range map[time.Duration]string{10 * time.Second: ShedDeadline, 4 * time.Second: ""} {
		a, b := newRig(t, c, 1, 1), newRig(t, c, 1, 1)
		a.fill(1)
		tk := a.mustWait(a.ticket(0, "t", 1))
		a.now = a.now.Add(waited)
		if waited == c.MaxWait[0] {
			if err := a.queue.Leave(tk, Late, a.now); shedFor(err) != ShedWait {
				t.Fatal(err)
			}
		} else if err := a.queue.Leave(tk, Cancelled, a.now); err != nil {
			t.Fatal(err)
		}
		move := func() *Ticket {
			to := tk.ForOtherQueue()
			to.Request, to.Tenant, to.Tokens = tk.Request, tk.Tenant, tk.Tokens
			return to
		}
		b.now = a.now
		if err := b.enter(move()); err != nil {
			t.Errorf("after %s, a free worker: %v", waited, err)
		}
		moved := move()
		if err := b.enter(moved); shedFor(err) != want {
			t.Errorf("after %s: %v, want shed for %q", waited, err, want)
		}
		if want == "" {
			if rest := b.queue.WaitUntil(moved).Sub(b.now); rest != c.MaxWait[0]-waited {
				t.Errorf("after %s it may wait for %s", waited, rest)
			}
		}
		a.check()
		b.check()
	}
}

// TestAbandonedTicketIsNeverDispatched: QU-02.
func TestAbandonedTicketIsNeverDispatched(t *testing.T) {
	r := newRig(t, usual(), 1, 1)
	first := r.fill(1)[0]
	gone := r.mustWait(r.ticket(0, "a", 1))
	late := r.mustWait(r.ticket(0, "a", 1))
	stays := r.mustWait(r.ticket(0, "a", 1))
	if err := r.queue.Leave(gone, Cancelled, r.now); err != nil {
		t.Errorf("leaving: %v", err)
	}
	var shed *ShedError
	if err := r.queue.Leave(late, Late, r.now); !errors.Is(err, ErrWaiting) {
		t.Errorf("leaving before its time is over: %v, want ErrWaiting", err)
	}
	if err := r.queue.Leave(late, Late, r.queue.WaitUntil(late)); !errors.As(err, &shed) || shed.Reason != ShedWait {
		t.Errorf("leaving late: %v, want to be shed for the wait", err)
	}
	if got := r.end(first); len(got) != 1 || got[0] != stays {
		t.Errorf("granted %v, want %s", ids(got), stays.ID)
	}
	r.check()
}

func TestCancelledDispatchReturnsItsLease(t *testing.T) {
	r := newRig(t, usual(), 1, 1)
	first := r.fill(1)[0]
	gone := r.mustWait(r.ticket(0, "a", 1))
	next := r.mustWait(r.ticket(0, "a", 1))
	lease := r.held[first]
	delete(r.held, first)
	lease.Release(routing.Result{At: r.now}) // grants gone, which is not claimed yet
	if err := r.queue.Leave(gone, Cancelled, r.now); err != nil {
		t.Errorf("leaving: %v", err)
	}
	r.woken = r.woken[1:]
	if got := r.claim(); len(got) != 1 || got[0] != next {
		t.Errorf("granted %v, want %s", ids(got), next.ID)
	}
	r.check()
}

// closing refuses requests, like a half-open breaker.
type closing struct{ refuse int }

func (g *closing) Allow(time.Duration) (uint64, error) {
	if g.refuse > 0 {
		g.refuse--
		return 0, errors.New("half open")
	}
	return 0, nil
}

func (g *closing) Report(uint64, error)       {}
func (g *closing) ReportCut(time.Time, error) {}

func TestBreakerRefusalKeepsTheTicketsPlace(t *testing.T) {
	r := newRig(t, usual(), 1, 1)
	gate := &closing{}
	ms := members(1, 1)
	ms[0].Gate = gate
	policy, err := routing.New(routing.Config{Name: "least_load"})
	if err != nil {
		t.Fatal(err)
	}
	r.pool.Configure(policy, ms)
	first := r.fill(1)[0]
	refused := r.mustWait(r.ticket(0, "a", 1))
	other := r.mustWait(r.ticket(0, "a", 1))
	gate.refuse = 1
	if got := r.end(first); len(got) != 1 || got[0] != other {
		t.Fatalf("granted %v, want the one behind the refused", ids(got))
	}
	r.check()
	if got := r.pass(breakerRefusalTTL); len(got) != 0 {
		t.Fatalf("granted %v while the worker was full", ids(got))
	}
	if got := r.end(other); len(got) != 1 || got[0] != refused {
		t.Errorf("granted %v, want the refused request when its worker is offered again", ids(got))
	}
	r.check()
}

// TestReloadKeepsWaitingRequests: smaller bounds evict no request, and additional slots are
// used at once.
func TestReloadKeepsWaitingRequests(t *testing.T) {
	r := newRig(t, usual(), 1, 1)
	r.fill(1)
	for range 10 {
		r.mustWait(r.ticket(0, "a", 1))
	}
	small := usual()
	small.MaxDepth = 2
	r.queue.Configure(small, r.now)
	if got := r.queue.Waiting(); got != 10 {
		t.Errorf("%d wait after the bound was lowered, want 10", got)
	}
	policy, err := routing.New(routing.Config{Name: "least_load"})
	if err != nil {
		t.Fatal(err)
	}
	r.pool.Configure(policy, members(1, 5))
	if got := r.claim(); len(got) != 4 {
		t.Errorf("%d were granted the new places, want 4", len(got))
	}
	r.check()
}

// TestListIsTheOrderOfDispatch while no request enters, ages or settles.
func TestListIsTheOrderOfDispatch(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := usual()
		c.Age = [Classes]time.Duration{1: 10 * time.Second, 2: 30 * time.Second}
		r := newRig(t, c, 1, 1)
		r.rng = rng(rapid.Uint64Min(1).Draw(rt, "seed"))
		r.fill(1)
		for range rapid.IntRange(1, 60).Draw(rt, "tickets") {
			tk := r.ticket(r.rng.below(3), fmt.Sprint(r.rng.below(5)), int64(1+r.rng.below(1000)))
			tk.Weight = 1 + len(tk.Tenant)*int(tk.Tenant[0]-'0')
			r.mustWait(tk)
		}
		r.pass(time.Duration(rapid.IntRange(0, 40).Draw(rt, "aged")) * time.Second)
		for r.queue.Waiting() > 0 {
			first := r.queue.List(r.now, 1)[0]
			if got := r.next(); got.ID != first.ID {
				rt.Fatalf("%s was dispatched, but %s was listed first", got.ID, first.ID)
			}
		}
		r.check()
	})
}

// TestEachTicketIsDispatchedOrLeaves runs random schedules of everything that can happen. The
// totals agree at each step and are zero at the end.
func TestEachTicketIsDispatchedOrLeaves(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := usual()
		c.Age = [Classes]time.Duration{0: time.Second, 1: 2 * time.Second, 2: 3 * time.Second}
		c.MaxDepth, c.MaxBytes, c.Displace = 8, 1500, rapid.Bool().Draw(rt, "displace")
		r := newRig(t, c, 3, 2)
		r.rng = rng(rapid.Uint64Min(1).Draw(rt, "seed"))
		waiting := map[*Ticket]bool{}
		settle := func() {
			for _, tk := range r.woken {
				delete(waiting, tk)
			}
			r.claim()
		}
		for range 200 {
			switch r.rng.below(8) {
			case 0, 1, 2:
				tk := r.ticket(r.rng.below(3), fmt.Sprint(r.rng.below(4)), int64(r.rng.below(500)))
				if errors.Is(r.enter(tk), ErrWaiting) {
					waiting[tk] = true
				}
			case 3, 4, 5:
				for tk, lease := range r.held {
					delete(r.held, tk)
					lease.Release(routing.Result{At: r.now})
					r.queue.SettleUsage(tk, int64(r.rng.below(1000)))
					break
				}
			case 6:
				for tk := range waiting {
					delete(waiting, tk)
					_ = r.queue.Leave(tk, LeaveReason(r.rng.below(2)), r.now)
					break
				}
			case 7:
				r.now = r.now.Add(time.Duration(r.rng.below(1500)) * time.Millisecond)
				i := r.rng.below(3)
				r.pool.Observe(name(i), i, routing.Status{Up: r.rng.below(4) > 0})
				r.queue.Dispatch(r.now)
			}
			settle()
			r.check()
			for _, v := range r.pool.Snapshot(r.now) {
				if v.Inflight > 2 {
					rt.Fatalf("%s has %d in flight, and 2 places", v.ID, v.Inflight)
				}
			}
		}
		for i := range 3 {
			r.pool.Observe(name(i), i, routing.Status{Up: true})
		}
		settle()
		for len(r.held) > 0 || r.queue.Waiting() > 0 {
			for tk, lease := range r.held {
				delete(r.held, tk)
				lease.Release(routing.Result{At: r.now})
			}
			r.queue.Dispatch(r.now)
			settle()
		}
		r.check()
		if got := r.inflight(); got != 0 {
			rt.Fatalf("%d requests are in flight at the end", got)
		}
	})
}

// TestLongRequestIsNotStarvedByShortOnes: the free tokens of a worker that is bounded by tokens
// come in small pieces, which short requests would always take.
func TestLongRequestIsNotStarvedByShortOnes(t *testing.T) {
	c := usual()
	c.MaxWait[0] = 20 * time.Second
	r := newRig(t, c, 1, 0)
	policy, err := routing.New(routing.Config{Name: "least_load"})
	if err != nil {
		t.Fatal(err)
	}
	r.pool.Configure(policy, []routing.Member{{ID: name(0), Weight: 1, MaxTokensInflight: 1000, Ref: 0}})
	for range 9 {
		if err := r.enter(r.ticket(0, "short", 99)); err != nil { // plus 1 of the answer
			t.Fatal(err)
		}
	}
	r.mustWait(r.ticket(0, "long", 799))
	for range 100 {
		r.now = r.now.Add(time.Second)
		r.mustWaitOrGo(r.ticket(0, "short", 99))
		for tk := range r.held { // any request
			for _, granted := range r.end(tk) {
				if granted.Tenant == "long" {
					return
				}
			}
			break
		}
	}
	t.Error("the long request did not go within 100 s")
}
