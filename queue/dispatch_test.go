package queue

import (
	"testing"
	"time"

	"tierway/routing"
)

// TestRejectionsHideNoRoomFromASmallerRequest: what the round knows of requests that may wait, and of large ones that
// may not, says nothing of a small one that may not wait.
func TestRejectionsHideNoRoomFromASmallerRequest(t *testing.T) {
	c := usual()
	c.MaxWait[1] = 10 * time.Second
	r := newRig(t, c, 3, 0)
	policy, err := routing.New(routing.Config{Name: "least_load"})
	if err != nil {
		t.Fatal(err)
	}
	r.pool.Configure(policy, []routing.Member{{ID: name(0), Weight: 1, MaxInflight: 9, Ref: 0},
		{ID: name(1), Weight: 1, MaxTokensInflight: 1000, Ref: 1},
		{ID: name(2), Weight: 1, MaxInflight: 1, MaxTokensInflight: 1000, Ref: 2}})
	r.pool.Observe(name(0), 0, routing.Status{})
	r.pool.Observe(name(1), 1, routing.Status{})
	r.mustWaitOrGo(r.ticket(0, "filler", 500)) // on w2, which is reserved for the large request
	r.pool.Observe(name(0), 0, routing.Status{Up: true})
	r.fill(9)
	r.mustWait(r.ticket(1, "x", 1500))
	small := r.mustWait(r.ticket(1, "x", 100))
	r.now = r.now.Add(6 * time.Second) // both are in the second half of their time
	r.mustWait(r.ticket(0, "x", 600))
	r.mustWait(r.ticket(0, "x", 90))
	r.pool.Restore(name(1), 1, r.now) // its share in slow start is one request, unless a request may not wait
	r.pool.Observe(name(1), 1, routing.Status{Up: true})
	granted := r.claim()
	if len(granted) != 2 || granted[0].Class != 0 || granted[1] != small {
		t.Errorf("%d requests are dispatched, want one that may wait and the small one that may not", len(granted))
	}
	r.check()
}
