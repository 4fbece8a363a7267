package routing

import (
	"errors"
	"testing"
	"time"
)

// TestRequestForOneWorkerWaitsForThatWorker: no other member takes it, idle or new.
func TestRequestForOneWorkerWaitsForThatWorker(t *testing.T) {
	one, two, three := new(int), new(int), new(int)
	members := []Member{
		{ID: "a", Weight: 1, Ref: one, MaxInflight: 9}, {ID: "b", Weight: 1, Ref: two, MaxInflight: 3},
		{ID: "c", Weight: 1, Group: 1, Ref: three, MaxTokensInflight: 150},
	}
	p := poolOf(members...)
	only := func(ref any) *Request { r := ask(); r.Only = ref; return r }
	for range 3 { // even as its load grows
		if l, err := p.Acquire(only(two)); err != nil || l.Ref() != any(two) {
			t.Fatalf("%v was chosen: %v", l.Ref(), err)
		}
	}
	waits := func(ref any, tried ...*Worker) error {
		t.Helper()
		_, err := p.Acquire(only(ref), tried...)
		round := p.BeginRound(start)
		if _, again := round.Offer(only(ref), tried); (again == nil) != (err == nil) ||
			err != nil && again.Error() != err.Error() {
			t.Errorf("an offer ends with %v, not with %v", again, err)
		}
		round.End()
		return err
	}
	if err := waits(two); !errors.Is(err, ErrFull) {
		t.Errorf("it is full: %v", err)
	}
	if l, err := p.Acquire(only(three)); err != nil || l.Ref() != any(three) {
		t.Errorf("of a higher group %v was chosen: %v", l.Ref(), err)
	}
	round := p.BeginRound(start)
	if round.Reserve(only(two), nil) || !round.Reserve(only(three), nil) {
		t.Error("the worker reserved for it is another one")
	}
	round.End()
	p.Configure(leastLoad{}, append(members, Member{ID: "d", Weight: 1, Ref: new(int)}))
	p.Observe("d", p.workers[3].ref, Status{Up: true})
	if err := waits(two); !errors.Is(err, ErrFull) {
		t.Errorf("a worker was added: %v", err)
	}
	var backoff *BackoffError
	p.SetBackoff(p.workers[1], start.Add(time.Second))
	if err := waits(two); !errors.As(err, &backoff) {
		t.Errorf("it is in backoff: %v", err)
	}
	for what, err := range map[string]error{"gone": waits(new(int)), "tried": waits(one, p.workers[0])} {
		if !errors.Is(err, ErrNoWorker) {
			t.Errorf("it is %s: %v", what, err)
		}
	}
	p.Observe("a", one, Status{})
	if err := waits(one); !errors.Is(err, ErrNoWorker) || !p.Up(start) {
		t.Errorf("it is down: %v, and the pool is up: %v", err, p.Up(start))
	}
}
