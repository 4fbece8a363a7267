package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/routing"
)

// inside is the state that decides the order of dispatch and the next Retry-After.
type inside struct {
	Tally   string
	Order   []Waiter
	Tags    [Classes]map[string]float64
	Virtual [Classes]float64
	Credit  [Classes]float64
	BackAt  [Classes]time.Time
	Lost    int
}

func (r *rig) inside() inside {
	r.check()
	is := inside{Tally: fmt.Sprintf("%+v", r.tally()), Order: r.queue.List(r.now, 1000), Lost: len(r.queue.unroutable)}
	for i := range r.queue.classes {
		c := &r.queue.classes[i]
		is.Virtual[i], is.Credit[i], is.BackAt[i] = c.virtual, c.credit, c.nextRetryAt
		is.Tags[i] = map[string]float64{}
		for tenant, f := range c.flows {
			is.Tags[i][tenant] = f.tag
		}
	}
	return is
}

// TestPreviewAgreesWithEnter for a request that no worker takes. A preview changes nothing,
// however often it is called.
func TestPreviewAgreesWithEnter(t *testing.T) {
	seen := map[string]int{}
	for seed := range 40 {
		c := usual()
		c.Age = [Classes]time.Duration{2: time.Second}
		c.MaxDepth, c.MaxBytes, c.MaxWait, c.Displace = 12, 2000,
			[Classes]time.Duration{8 * time.Second, 16 * time.Second, 0}, seed%2 == 0
		if seed%4 < 2 {
			c.MaxWait[2] = 20 * time.Second
		}
		r := newRig(t, c, 1, 2)
		r.rng = rng(seed + 1)
		paced(r, time.Second)
		r.fill(2)
		for range 60 {
			tenant, class := fmt.Sprint(r.rng.below(4)), r.rng.below(Classes)
			asks := r.ticket(class, tenant, int64(1+r.rng.below(300)))
			asks.Bytes = int64(r.rng.below(300))
			if r.rng.below(4) == 0 {
				asks.Deadline = r.now.Add(time.Duration(r.rng.below(10)) * time.Second)
			}
			enters := *asks
			before := r.inside()
			said := shedFor(r.queue.Preview(asks, nil, routing.ErrFull, r.now).Err)
			if again := shedFor(r.queue.Preview(asks, nil, routing.ErrFull, r.now).Err); again != said {
				t.Fatalf("the first preview is %q, the second %q", said, again)
			}
			if diff := cmp.Diff(before, r.inside()); diff != "" {
				t.Fatalf("the preview has changed the queue (-before +after):\n%s", diff)
			}
			if did := shedFor(r.enter(&enters)); did != said {
				t.Fatalf("Enter shed it for %q, but Preview predicted %q", did, said)
			}
			seen[said]++
			r.claim()
			if r.rng.below(3) == 0 {
				r.now = r.now.Add(500 * time.Millisecond)
				if len(r.end(r.underWay(0))) == 0 {
					r.fill(1)
				}
			}
		}
	}
	for _, reason := range []string{"", ShedDepth, ShedBytes, ShedDeadline} {
		if seen[reason] < 20 {
			t.Errorf("only %d were shed for %q: the test does not cover it", seen[reason], reason)
		}
	}
}

// TestPreviewUnderOtherBoundsAgreesWithEnterAfterAReload previews a busy queue under random
// bounds, applies them, and enters.
func TestPreviewUnderOtherBoundsAgreesWithEnterAfterAReload(t *testing.T) {
	seen := map[string]int{}
	for seed := range 300 {
		c := usual()
		r := newRig(t, c, 1, 2)
		r.rng = rng(seed + 1)
		paced(r, time.Second)
		r.fill(2)
		for range r.rng.below(60) {
			r.mustWaitOrGo(r.ticket(r.rng.below(Classes), fmt.Sprint(r.rng.below(4)), 10))
		}
		draft := c
		draft.MaxDepth, draft.MaxBytes, draft.Displace = r.rng.below(20), int64(r.rng.below(6000)), r.rng.below(2) == 0
		for class := range draft.MaxWait {
			draft.MaxWait[class] = time.Duration(r.rng.below(30)) * time.Second
		}
		asks := r.ticket(r.rng.below(Classes), fmt.Sprint(r.rng.below(4)), int64(1+r.rng.below(300)))
		if r.rng.below(4) == 0 {
			asks.Deadline = r.now.Add(time.Duration(r.rng.below(10)) * time.Second)
		}
		enters := *asks
		before := r.inside()
		said := shedFor(r.queue.Preview(asks, &draft, routing.ErrFull, r.now).Err)
		if diff := cmp.Diff(before, r.inside()); diff != "" {
			t.Fatalf("seed %d: the preview has changed the queue (-before +after):\n%s", seed, diff)
		}
		r.queue.Configure(draft, r.now)
		if did := shedFor(r.enter(&enters)); did != said {
			t.Fatalf("seed %d: Enter shed it for %q, but Preview predicted %q under %+v", seed, did, said, draft)
		}
		seen[said]++
	}
	for _, reason := range []string{"", ShedDepth, ShedBytes, ShedDeadline} {
		if seen[reason] < 20 {
			t.Errorf("only %d were shed for %q", seen[reason], reason)
		}
	}
}

// TestPreviewAgreesWithEnterWithoutAUsableWorker has workers that are full, down or in backoff,
// under random bounds. Enter and Preview agree whether the request waits, is shed or gets the
// pool's error.
func TestPreviewAgreesWithEnterWithoutAUsableWorker(t *testing.T) {
	seen := map[string]int{}
	for seed := range 400 {
		rng := rng(seed + 1)
		c := usual()
		c.MaxDepth = rng.below(3)
		c.MaxWait = [Classes]time.Duration{time.Duration(rng.below(3)) * 10 * time.Second}
		c.EngineWait = time.Duration(rng.below(3)) * 10 * time.Second
		r := newRig(t, c, 2, 1)
		r.fill(2)
		for i := range 2 {
			switch rng.below(3) {
			case 0:
				r.pool.Observe(name(i), i, routing.Status{})
			case 1:
				r.pool.SetOpen(name(i), i, r.now.Add(time.Duration(rng.below(30))*time.Second))
			}
		}
		asks := r.ticket(0, "a", 10)
		if rng.below(3) == 0 {
			asks.Deadline = r.now.Add(time.Duration(rng.below(20)) * time.Second)
		}
		asks.Request.Now, asks.Request.Wait = r.now, c.Waits(0)
		_, said := r.pool.Preview(asks.Request, nil)
		if said == nil {
			continue
		}
		enters, request := *asks, *asks.Request
		enters.Request = &request
		before := r.inside()
		kind := kindOf(r.queue.Preview(asks, nil, said, r.now).Err)
		if diff := cmp.Diff(before, r.inside()); diff != "" {
			t.Fatalf("seed %d: the preview has changed the queue (-before +after):\n%s", seed, diff)
		}
		if did := kindOf(r.enter(&enters)); did != kind {
			t.Errorf("seed %d: %v: Enter %q, Preview %q under %+v", seed, said, did, kind, c)
		}
		seen[kind]++
	}
	for _, kind := range []string{"waits", ShedDepth, "no worker"} {
		if seen[kind] < 20 {
			t.Errorf("only %d of %q: %v", seen[kind], kind, seen)
		}
	}
}

// kindOf names the outcome of a ticket.
func kindOf(err error) string {
	switch {
	case err == nil, errors.Is(err, ErrWaiting):
		return "waits"
	case shedFor(err) != "":
		return shedFor(err)
	}
	return "no worker"
}

// bursting is a policy that panics after a set number of choices.
type bursting struct{ after int }

func (*bursting) Name() string { return "bursting" }

func (p *bursting) Pick(_ *routing.Request, _ []routing.View) (int, routing.Reason) {
	p.after--
	if p.after == 0 {
		panic("a policy has a fault")
	}
	return 0, routing.ReasonRandom
}

// TestPanicOfAPolicyAffectsNoOtherRequest: leases that were booked before the panic are
// granted, no lock stays locked, and the next pass continues.
func TestPanicOfAPolicyAffectsNoOtherRequest(t *testing.T) {
	r := newRig(t, usual(), 1, 3)
	policy := &bursting{}
	r.pool.Configure(policy, members(1, 3))
	filled := r.fill(3)
	r.pool.Watch(nil)
	var waiting []*Ticket
	for range 5 {
		waiting = append(waiting, r.mustWait(r.ticket(0, "a", 10)))
	}
	for _, tk := range filled {
		r.end(tk)
	}
	panics := func(f func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Error("the fault was swallowed")
			}
		}()
		policy.after = 2
		f()
	}
	panics(func() { r.queue.Dispatch(r.now) })
	r.check()
	if got := r.claim(); len(got) != 1 || got[0] != waiting[0] || r.inflight() != 1 {
		t.Errorf("%v were granted before the fault, and %d are booked, want %s", ids(got), r.inflight(), waiting[0].ID)
	}
	r.pool.Observe(name(0), 0, routing.Status{Up: true})
	for class, tenant := range []string{"b", "a"} { // one is dispatched first, the other last
		newcomer, booked := r.ticket(2*class, tenant, 10), r.inflight()
		panics(func() { _, _ = r.queue.Enter(newcomer, r.now) })
		if got := len(r.claim()); newcomer.state != stateNew || r.inflight() != booked+got {
			t.Errorf("a newcomer without its owner has state %d, and %d are booked for %d granted requests", newcomer.state,
				r.inflight(), booked+got)
		}
		r.check()
	}
	for len(r.held) > 0 || r.queue.Waiting() > 0 {
		r.queue.Dispatch(r.now)
		r.claim()
		for tk := r.underWay(0); tk != nil; tk = r.underWay(0) {
			r.end(tk)
		}
	}
	if got := r.inflight(); got != 0 {
		t.Errorf("%d are booked at the end", got)
	}
	r.check()
	r.mustGo(r.ticket(0, "c", 10))
}
