package queue

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// backlog is the waiting requests of one tenant in a class, per unit of its weight.
type backlog struct{ requests, bytes float64 }

// backlogs returns the backlog of each tenant in the class.
func backlogs(q *Queue, class int) map[string]backlog {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := map[string]backlog{}
	for _, f := range q.classes[class].waiting {
		var b backlog
		for tk := f.first; tk != nil; tk = tk.links[inFlow].after {
			b.requests += 1 / f.weight
			b.bytes += float64(tk.Bytes) / f.weight
		}
		all[f.first.Tenant] = b
	}
	return all
}

// TestTenantBelowItsShareIsNotRefusedForAnotherBacklog enters random requests of four tenants.
// Only the tenant with the largest backlog per weight of the class is refused for depth or
// bytes.
func TestTenantBelowItsShareIsNotRefusedForAnotherBacklog(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := usual()
		c.Displace = true
		byDepth := rapid.Bool().Draw(rt, "by depth")
		if byDepth {
			c.MaxDepth = rapid.IntRange(1, 12).Draw(rt, "max_depth")
		} else {
			c.MaxBytes = int64(rapid.IntRange(400, 1500).Draw(rt, "max_bytes"))
		}
		weights := rapid.SliceOfN(rapid.IntRange(1, 4), 4, 4).Draw(rt, "weights")
		r := newRig(t, c, 1, 1)
		r.fill(1)
		for range rapid.IntRange(1, 60).Draw(rt, "requests") {
			tenant := rapid.IntRange(0, 3).Draw(rt, "tenant")
			tk := r.ticket(0, fmt.Sprint(tenant), 1)
			tk.Weight = weights[tenant]
			if !byDepth {
				tk.Bytes = int64(rapid.IntRange(50, 400).Draw(rt, "bytes"))
			}
			before := backlogs(r.queue, 0)
			own := before[tk.Tenant]
			own.requests += 1 / tk.weight()
			own.bytes += float64(tk.Bytes) / tk.weight()
			reason := shedFor(r.enter(tk))
			for other, b := range before {
				if other == tk.Tenant {
					continue
				}
				if reason == ShedDepth && b.requests > own.requests+0.01 || reason == ShedBytes && b.bytes > own.bytes+400 {
					rt.Fatalf("tenant %s (%+v with the request) was refused for %s beside tenant %s (%+v)",
						tk.Tenant, own, reason, other, b)
				}
			}
			r.claim()
			r.check()
		}
	})
}

// TestBytesOfOneTenantDoNotRefuseAnother fills a queue's bytes with one tenant's requests.
// Another tenant's request displaces the newest.
func TestBytesOfOneTenantDoNotRefuseAnother(t *testing.T) {
	c := usual()
	c.Displace, c.MaxBytes = true, 1000
	r := newRig(t, c, 1, 1)
	r.fill(1)
	var flood []*Ticket
	for range 10 {
		flood = append(flood, r.mustWait(r.ticket(0, "flood", 1)))
	}
	large := r.ticket(0, "other", 1)
	large.Bytes = 250
	r.mustWait(large)
	if got, want := ids(r.woken), ids(flood[7:]); !slices.Equal(got, want) {
		t.Fatalf("evicted %v, want the newest three of %v", got, want)
	}
	if got := shedFor(r.enter(r.ticket(0, "flood", 1))); got != ShedBytes {
		t.Errorf("the flooding tenant was shed for %q, want %q", got, ShedBytes)
	}
	r.claim()
	r.check()
}

// TestLessUrgentClassesGiveUpTheirBytesFirst: a batch request is evicted before one of the
// newcomer's class.
func TestLessUrgentClassesGiveUpTheirBytesFirst(t *testing.T) {
	c := usual()
	c.Displace, c.MaxBytes = true, 1000
	r := newRig(t, c, 1, 1)
	r.fill(1)
	batch := r.mustWait(r.ticket(2, "other", 1))
	var flood []*Ticket
	for range 9 {
		flood = append(flood, r.mustWait(r.ticket(0, "flood", 1)))
	}
	large := r.ticket(0, "other", 1)
	large.Bytes = 200
	r.mustWait(large)
	if len(r.woken) != 2 || r.woken[0] != batch || r.woken[1] != flood[8] {
		t.Fatalf("evicted %v, want %s and %s", ids(r.woken), batch.ID, flood[8].ID)
	}
	r.claim()
	r.check()
}
