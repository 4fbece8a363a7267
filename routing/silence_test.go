package routing

import (
	"fmt"
	"slices"
	"testing"
)

// pick returns the worker of a new request at that time, and releases it.
func pick(t *testing.T, p *Pool, q Request) string {
	t.Helper()
	l, err := p.Acquire(&q)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release(Result{Err: ErrExcluded})
	return l.Worker().ID()
}

// TestLateWorkerGetsNoRequestsBesideAPeer by any policy, until it sends something.
func TestLateWorkerGetsNoRequestsBesideAPeer(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			policy, err := New(Config{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			p := NewPool(policy, []Member{{ID: "a", Weight: 1}, {ID: "b", Weight: 1}})
			p.Observe("a", nil, Status{Up: true})
			p.Observe("b", nil, Status{Up: true})
			home, silent := "", (*Lease)(nil)
			q := timed("t", 1, 0)
			q.Key, q.KeyOf, q.Prefix = 5, KeySession, 5
			if l, err := p.Acquire(&q); err != nil {
				t.Fatal(err)
			} else {
				home, silent = l.Worker().ID(), &l
			}
			for i := range 40 { // at a random policy's choice, too
				q.Now, q.Rand = at(3.1+float64(i)/10), Draw(uint64(i))
				if got := pick(t, p, q); got == home {
					t.Fatalf("request %d goes to the worker that is silent", i)
				}
			}
			silent.Answered(at(8), nil)
			silent.Release(Result{At: at(8)})
			var back []string
			for i := range uint64(40) { // of other sessions: the present one may stay where it went
				q := timed("t", 100+i, 8.1)
				q.Key, q.KeyOf, q.Prefix, q.Rand = Draw(i), KeySession, Draw(i), Draw(i)
				l := mustBook(t, p, q)
				back = append(back, l.Worker().ID())
			}
			if !slices.Contains(back, home) {
				t.Error("the worker gets no requests after it has sent something")
			}
		})
	}
}

// TestLateWorkersTakeRequestsIfAllAreLate: a pause of the gateway must not end in errors. The same holds for a
// peer that cannot take the request.
func TestLateWorkersTakeRequestsIfAllAreLate(t *testing.T) {
	for name, other := range map[string]func(r *silentRig){
		"the peer is late": func(r *silentRig) { r.book("b", timed("t", 2, 0)) },
		"the peer is down": func(r *silentRig) { r.pool.Observe("b", "b", Status{}) },
		"the peer is open": func(r *silentRig) { r.pool.SetOpen("b", "b", at(100)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newSilentRig(t)
			r.send("t", 0, 1)
			other(r)
			if got := pick(t, r.pool, timed("t", 3, 10)); got != "a" && name != "the peer is late" {
				t.Errorf("the request goes to %s", got)
			}
		})
	}
}

// TestOverdueWorkerIsLeftForTheNextGroup once its requests may go elsewhere. A group with a lower priority may cost
// more.
func TestOverdueWorkerIsLeftForTheNextGroup(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1}, Member{ID: "b", Weight: 1, Group: 1})
	q := timed("t", 1, -10)
	l := mustBook(t, p, q)
	l.Answered(at(-9), nil)
	l.Release(Result{At: at(-9)})
	q.Now = at(0)
	mustBook(t, p, q)
	for _, c := range []struct {
		at   float64
		want string
	}{{2.9, "a"}, {3.1, "a"}, {6, "a"}, {8.1, "b"}} {
		q.Now = at(c.at)
		p.DetectHangs(q.Now)
		if got := pick(t, p, q); got != c.want {
			t.Errorf("after %v s the request goes to %s, want %s", c.at, got, c.want)
		}
	}
}

func mustBook(t *testing.T, p *Pool, q Request) *Lease {
	t.Helper()
	l, err := p.Acquire(&q)
	if err != nil {
		t.Fatal(err)
	}
	return &l
}

// TestLatenessIsAChange: a request that waits for a worker may be dispatched elsewhere once that worker is late,
// although the pool notifies of nothing.
func TestLatenessIsAChange(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1}, Member{ID: "b", Weight: 1})
	l := mustBook(t, p, timed("t", 1, 0))
	for _, c := range []struct {
		at   float64
		sure bool
	}{{.9, true}, {1.1, false}, {15, false}} {
		round := p.BeginRound(at(c.at))
		if _, sure := round.Changes(); sure != c.sure {
			t.Errorf("after %v s a refusal is sure: %v, want %v", c.at, sure, c.sure)
		}
		round.End()
	}
	l.Received(at(16))
	round := p.BeginRound(at(16.1))
	defer round.End()
	if _, sure := round.Changes(); !sure {
		t.Error("no refusal is sure after a byte")
	}
}

// TestLatenessRaisesTheCostBeforeRequestsAreOverdue: requests move to a peer that has to compute the prompt as
// soon as that takes less time than the late worker.
func TestLatenessRaisesTheCostBeforeRequestsAreOverdue(t *testing.T) {
	p := NewPool(newKVAware(), []Member{{ID: "a", Weight: 1}, {ID: "b", Weight: 1}})
	p.Observe("a", nil, Status{Up: true})
	p.Observe("b", nil, Status{Up: true})
	q := timed("t", 1, 0)
	q.PromptTokens = 4000 // half a second
	l := mustBook(t, p, q)
	l.Answered(at(.5), nil)
	l.Release(Result{At: at(1), PromptTokens: 4000, OutputTokens: 10})
	home := l.Worker()
	q.Now = at(10)
	mustBook(t, p, q)
	var choices []string
	for _, s := range []float64{10.5, 11, 12.9} {
		var c Choice
		q.Now, q.Record = at(s), &c
		pick(t, p, q)
		for _, w := range c.Candidates {
			if w.Worker == home.ID() {
				choices = append(choices, fmt.Sprintf("%.1f s late", w.Cost.Late))
			}
		}
	}
	if want := []string{"0.0 s late", "0.0 s late", "1.9 s late"}; !slices.Equal(choices, want) {
		t.Errorf("the costs are %q, want %q", choices, want)
	}
	q.Record = nil // no request is overdue yet
	if pick(t, p, q) == home.ID() {
		t.Error("the request goes to the late worker")
	}
}

// TestWorkerStaysLateAfterACut: a client that leaves does not make the silent worker a good one.
func TestWorkerStaysLateAfterACut(t *testing.T) {
	r := newSilentRig(t)
	r.send("t", 0, 1)
	r.cutAll(12)
	b := r.book("b", timed("t", 2, 12)) // the load would bring the next request to a
	for _, c := range []struct {
		at   float64
		want string
	}{{13, "b"}, {41, "b"}, {42.1, "a"}} {
		b.Received(at(c.at - .1)) // b is not late
		if got := pick(t, r.pool, timed("t", 3, c.at)); got != c.want {
			t.Errorf("after %v s the request goes to %s, want %s", c.at, got, c.want)
		}
	}
}

// TestExplanationNamesALateWorker among those that the policy is not shown.
func TestExplanationNamesALateWorker(t *testing.T) {
	r := newSilentRig(t)
	r.send("t", 0, 1)
	q := timed("t", 2, 4)
	o, err := r.pool.Preview(&q, nil)
	late := Excluded{Worker: "a", Why: ExcludedOverdue}
	if err != nil || o.Worker != "b" || len(o.Excluded) != 1 || o.Excluded[0] != late {
		t.Errorf("the preview is %+v, %v", o, err)
	}
}
