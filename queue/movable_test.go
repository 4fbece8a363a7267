package queue

import (
	"errors"
	"testing"
	"time"

	"tierway/routing"
)

// movable enters a ticket that must wait and that may leave for another queue.
func (r *rig) movable(tenant string) *Ticket {
	r.t.Helper()
	tk := r.ticket(0, tenant, 1)
	tk.Movable = true
	return r.mustWait(tk)
}

// TestMovableTicketIsWokenWhileNoWorkerIsUp, again and again, and keeps its place until it leaves.
func TestMovableTicketIsWokenWhileNoWorkerIsUp(t *testing.T) {
	c := usual()
	c.EngineWait = time.Minute
	r := newRig(t, c, 1, 1)
	held := r.fill(1)
	first, second := r.movable("a"), r.movable("a")
	fixed := r.mustWait(r.ticket(0, "a", 1))
	r.pass(time.Second)
	if len(r.woken) > 0 {
		t.Fatal("a ticket was woken while the worker was up")
	}
	r.pool.Observe(name(0), 0, routing.Status{})
	for i := range 4 {
		if i > 0 { // the loss of the worker is a change of the pool, which wakes them at once
			r.now = r.now.Add(wakeMovableEvery)
			r.queue.Dispatch(r.now)
		}
		if len(r.woken) != 2 || r.woken[0] != first || r.woken[1] != second {
			t.Fatalf("woken: %v, want the movable tickets", ids(r.woken))
		}
		if got := r.claim(); len(got) > 0 {
			t.Fatalf("granted: %v", ids(got))
		}
		r.queue.Dispatch(r.now)
		if len(r.woken) > 0 {
			t.Fatal("the tickets were woken before their interval was over")
		}
	}
	if err := r.queue.Leave(second, Moved, r.now); !errors.Is(err, ErrMoved) {
		t.Errorf("leaving: %v, want ErrMoved", err)
	}
	if got := r.queue.View(r.now).Classes[0]; got.Moved != 1 || got.Depth != 2 {
		t.Errorf("the class is %+v", got)
	}
	other := second.ForOtherQueue()
	other.startWait(r.now)
	if waited := r.now.Sub(other.entered); waited != time.Second+3*wakeMovableEvery {
		t.Errorf("in the next queue it has waited for %s", waited)
	}
	r.pool.Observe(name(0), 0, routing.Status{Up: true})
	for _, want := range []*Ticket{first, fixed} {
		held = append(held, want)
		if got := r.end(held[0]); len(got) != 1 || got[0] != want {
			t.Fatalf("granted %v, want %s", ids(got), want.ID)
		}
		held = held[1:]
	}
	r.check()
}

// TestDispatchedTicketCannotMove: its owner claims it.
func TestDispatchedTicketCannotMove(t *testing.T) {
	r := newRig(t, usual(), 1, 1)
	held := r.fill(1)
	waits := r.movable("a")
	lease := r.held[held[0]]
	delete(r.held, held[0])
	lease.Release(routing.Result{At: r.now})
	if err := r.queue.Leave(waits, Moved, r.now); err != nil {
		t.Errorf("leaving: %v", err)
	}
	if got := r.claim(); len(got) != 1 {
		t.Errorf("granted %v, want the ticket", ids(got))
	}
	r.check()
}
