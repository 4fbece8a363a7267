package queue

import (
	"errors"
	"testing"
	"time"

	"tierway/routing"
)

// TestBlockedTenantDoesNotChangeTheSharesOfOthers: one tenant's request waits for a full
// worker. Of two tenants at the other worker, the one that arrives later gets no compensation
// for earlier grants.
func TestBlockedTenantDoesNotChangeTheSharesOfOthers(t *testing.T) {
	r := newModelRig(t, usual(), 2)
	r.mustGo(r.of(1, 0, "x", 100))
	r.mustWait(r.of(1, 0, "x", 100))
	r.mustGo(r.of(2, 0, "y", 100))
	for range 20 {
		r.mustWait(r.of(2, 0, "y", 100))
	}
	for range 1000 {
		r.mustWait(r.of(2, 0, r.nextOf(2).Tenant, 100))
	}
	for range 20 {
		r.mustWait(r.of(2, 0, "z", 100))
	}
	turns := map[string]int{}
	for range 20 {
		tk := r.nextOf(2)
		turns[tk.Tenant]++
		r.mustWait(r.of(2, 0, tk.Tenant, 100))
	}
	if turns["y"] < 9 || turns["z"] < 9 {
		t.Errorf("of 20 turns %v, want as many for y as for z", turns)
	}
	r.check()
}

// TestRetryIsChargedOnce: a request with several attempts counts in its tenant's share and in
// its class with the tokens that it used.
func TestRetryIsChargedOnce(t *testing.T) {
	r := newRig(t, usual(), 1, 1)
	filler := r.fill(1)[0]
	retried := r.mustWait(r.ticket(0, "a", 1000))
	r.mustWait(r.ticket(0, "a", 10))
	for range 10 {
		r.mustWait(r.ticket(0, "b", 10))
	}
	r.end(filler)
	flow := r.queue.classes[0].flows["a"]
	for attempt := range 3 {
		if r.held[retried] == nil {
			t.Fatalf("attempt %d was not granted", attempt)
		}
		if flow.tag != 1000 || flow.unsettled != 1000 {
			t.Errorf("attempt %d: its tenant is charged %v, of which %v are not settled, want 1000", attempt, flow.tag,
				flow.unsettled)
		}
		r.fail(retried)
		r.claim() // dispatches one request of b
		r.mustWait(retried)
		if flow.tag != 0 || flow.unsettled != 0 {
			t.Errorf("while it waits to be tried again its tenant is charged %v, of which %v are not settled", flow.tag,
				flow.unsettled)
		}
		for r.held[retried] == nil {
			r.nextOf(0)
		}
	}
	r.queue.SettleUsage(retried, 700)
	r.queue.SettleUsage(retried, 700) // no effect: settled already
	if flow.tag != 700 || flow.unsettled != 0 {
		t.Errorf("at the end its tenant is charged %v, of which %v are not settled, want 700 and 0", flow.tag, flow.unsettled)
	}
	r.check()
}

// TestBreakerRefusalIsNotCharged: the refused request has used nothing yet.
func TestBreakerRefusalIsNotCharged(t *testing.T) {
	r := newRig(t, usual(), 1, 1)
	gate := r.gated(1)
	filler := r.fill(1)[0]
	refused := r.mustWait(r.ticket(0, "a", 1000))
	other := r.mustWait(r.ticket(0, "b", 10))
	gate.refuse = 1
	if got := r.end(filler); len(got) != 1 || got[0] != other {
		t.Fatalf("%v were granted, want the one behind the refused", ids(got))
	}
	if f := refused.flow; f.tag != 0 || f.unsettled != 0 || refused.charged != 0 {
		t.Errorf("its tenant is charged %v, of which %v are not settled, want nothing", f.tag, f.unsettled)
	}
	r.check()
}

// TestRetryAfterIsShortAfterABurstHasLeft: thousands of requests got late retries, and all of
// them have left.
func TestRetryAfterIsShortAfterABurstHasLeft(t *testing.T) {
	c := usual()
	c.MaxDepth = 4
	r := newRig(t, c, 1, 4)
	paced(r, 2*time.Second) // 2 slots are freed per second
	crowd := func() {
		r.fill(4)
		for range 4 {
			r.mustWait(r.ticket(0, "a", 1))
		}
	}
	crowd()
	for range 10_000 {
		if got := shedFor(r.enter(r.ticket(0, "a", 1))); got != ShedDepth {
			t.Fatalf("shed for %q, want %q", got, ShedDepth)
		}
	}
	for tk := r.underWay(0); tk != nil; tk = r.underWay(0) {
		r.end(tk)
	}
	r.now = r.now.Add(longestRetryAfter)
	crowd()
	var shed *ShedError
	if err := r.enter(r.ticket(0, "a", 1)); !errors.As(err, &shed) || shed.RetryAfter > time.Second {
		t.Errorf("a minute after the storm: %v, want to come again within a second", err)
	}
}

// TestLongRequestIsNotStarvedBesideOtherOverdueRequests: others are overdue and wait for
// another worker, and another group is on standby.
func TestLongRequestIsNotStarvedBesideOtherOverdueRequests(t *testing.T) {
	bounded := routing.Member{ID: name(0), Weight: 1, MaxTokensInflight: 1000, Models: []uint64{1}, Ref: 0}
	for named, test := range map[string]struct {
		beside routing.Member
		others int // that wait for the worker beside it
	}{
		"one is overdue":       {routing.Member{ID: name(1), Weight: 1, MaxInflight: 1, Models: []uint64{2}, Ref: 1}, 1},
		"many are overdue":     {routing.Member{ID: name(1), Weight: 1, MaxInflight: 1, Models: []uint64{2}, Ref: 1}, 100},
		"a group for fallback": {routing.Member{ID: name(1), Weight: 1, Group: 1, Ref: 1}, 0},
		"another worker is full": {routing.Member{ID: name(1), Weight: 1, MaxTokensInflight: 1000, Models: []uint64{2},
			Ref: 1}, 0},
	} {
		c := usual()
		c.MaxWait[0] = 20 * time.Second
		r := newRig(t, c, 2, 0)
		r.configure("least_load", bounded, test.beside)
		if test.beside.Group == 0 {
			r.mustGo(r.of(2, 0, "x", 999))
		}
		for range test.others {
			r.mustWait(r.of(2, 0, "x", 999))
		}
		for range 9 {
			r.mustGo(r.of(1, 0, "short", 99)) // plus 1 of the answer
		}
		long := r.mustWait(r.of(1, 0, "long", 799))
		for range 30 { // a second each
			r.now = r.now.Add(time.Second)
			for range 10 {
				_ = r.enter(r.of(1, 0, "short", 99)) // shed or not
				if r.held[long] == nil {
					r.end(r.underWay(1))
				}
			}
		}
		if r.held[long] == nil {
			t.Errorf("%s: the long request did not go within 30 s", named)
		}
		r.check()
	}
}
