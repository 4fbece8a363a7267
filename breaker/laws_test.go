package breaker

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestNothingLeaksAndTheCapHolds whatever happens in whatever order.
func TestNothingLeaksAndTheCapHolds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// rapid ends a case by a panic, which must not leave the bubble.
		var ended any
		synctest.Test(t, func(*testing.T) {
			defer func() { ended = recover() }()
			sequence(rt)
		})
		if ended != nil {
			panic(ended)
		}
	})
}

func sequence(t *rapid.T) {
	n := rapid.IntRange(1, 5).Draw(t, "workers")
	c := Config{
		ConsecutiveFailures: rapid.IntRange(1, 4).Draw(t, "row"),
		Probes:              rapid.IntRange(1, 3).Draw(t, "probes"),
		OpenFor:             20 * time.Second, ProbeTimeout: 5 * time.Second,
		MinRequests: 3, Window: 30 * time.Second,
	}
	states := make([]State, n)
	r := &rig{down: map[string]bool{}}
	r.Group = NewGroup(c, Options{
		Excluded: func(err error) bool { return err == errClient },
		Hard:     func(err error) bool { return err == errRefused },
		Usable:   func(id string, _ any) bool { return !r.down[id] },
		OnChange: func(c Change) {
			i := c.Ref.(int)
			r.mu.Lock()
			defer r.mu.Unlock()
			if states[i] != c.From || c.From == c.To {
				t.Errorf("%s turned from %s to %s, and was %s", c.ID, c.From, c.To, states[i])
			}
			if (c.To == Open) == c.Until.IsZero() {
				t.Errorf("%s is %s until %s", c.ID, c.To, c.Until)
			}
			states[i] = c.To
		},
	})
	r.Configure(c, members(n))
	for i := range n {
		r.bs = append(r.bs, r.Breaker(name(i), i))
	}
	type open struct {
		worker int
		done   func(error)
		at     State
	}
	var under []open // requests without a verdict
	worker := rapid.IntRange(0, n-1)
	ends := rapid.SampledFrom([]error{nil, nil, errFive, errFive, errFive, errRefused, errClient, ErrSlow})
	t.Repeat(map[string]func(*rapid.T){
		"allow": func(t *rapid.T) {
			i := worker.Draw(t, "worker")
			if done, err := r.bs[i].Allow(); err == nil {
				under = append(under, open{i, done, r.bs[i].State()})
			}
		},
		"done": func(t *rapid.T) {
			if len(under) == 0 {
				t.Skip("nothing is under way")
			}
			i := rapid.IntRange(0, len(under)-1).Draw(t, "request")
			under[i].done(ends.Draw(t, "end"))
			if rapid.Bool().Draw(t, "forget") { // else it may be called again
				under = append(under[:i], under[i+1:]...)
			}
		},
		"fail": func(t *rapid.T) { r.try(worker.Draw(t, "worker"), ends.Draw(t, "end")) },
		"pass": func(t *rapid.T) {
			time.Sleep(time.Duration(rapid.IntRange(1, 25).Draw(t, "seconds")) * time.Second)
			synctest.Wait()
		},
		"healthy": func(t *rapid.T) {
			r.bs[worker.Draw(t, "worker")].Healthy(time.Now().Add(-time.Duration(rapid.IntRange(0, 30).Draw(t, "ago")) * time.Second))
		},
		"poll": func(t *rapid.T) { r.Poll() },
		"down": func(t *rapid.T) {
			id := name(worker.Draw(t, "worker"))
			r.down[id] = !r.down[id]
			r.Poll() // which is at most a second late
		},
		"": func(t *rapid.T) {
			if out := r.softOut(); out > n/2 {
				t.Fatalf("%d of %d are out for soft reasons", out, n)
			}
			left, out := 0, 0
			for i, b := range r.bs {
				v := b.View()
				if v.Probes > c.Probes || v.Probes > 0 && v.State != HalfOpen {
					t.Fatalf("%d probes under way while %s", v.Probes, v.State)
				}
				r.mu.Lock()
				told := states[i]
				r.mu.Unlock()
				if v.State != told {
					t.Fatalf("%s is %s and told %s", b.id, v.State, told)
				}
				if v.State == Closed && !r.down[b.id] {
					left++
				} else if r.outing(b) == soft && !r.down[b.id] {
					out++
				}
				if (r.outing(b) == in) != (v.State == Closed) {
					t.Fatalf("%s is %s and has the seat %d", b.id, v.State, r.outing(b))
				}
			}
			if left == 0 && out > 0 {
				t.Fatalf("the last usable worker is out for soft reasons")
			}
		},
	})
	time.Sleep(5 * time.Second)
	synctest.Wait()
	for _, b := range r.bs {
		if v := b.View(); v.Probes != 0 {
			t.Fatalf("%d probes are under way after their timeout", v.Probes)
		}
	}
	for id := range r.down {
		delete(r.down, id)
	}
	time.Sleep(25 * time.Second)
	r.Poll()
	for i, b := range r.bs {
		r.fails(i, c.Probes, nil)
		if b.State() != Closed {
			t.Fatalf("successes leave it %s", b.State())
		}
	}
}
