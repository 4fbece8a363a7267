package queue

import (
	"errors"
	"testing"
	"time"

	"tierway/routing"
)

// gated gives the only worker of a rig a breaker.
func (r *rig) gated(places int) *closing {
	gate := &closing{}
	ms := members(1, places)
	ms[0].Gate = gate
	r.configure("least_load", ms...)
	return gate
}

// TestRequestOfAFullWorkerIsNotUnroutable: after a breaker's refusal, or a moment in which its
// worker was down, a request is not evicted once the worker is up and full.
func TestRequestOfAFullWorkerIsNotUnroutable(t *testing.T) {
	t.Run("after a refusal", func(t *testing.T) {
		r := newRig(t, usual(), 1, 1)
		gate := r.gated(1)
		first := r.fill(1)[0]
		refused := r.mustWait(r.ticket(0, "a", 1))
		other := r.mustWait(r.ticket(0, "a", 1))
		gate.refuse = 1
		r.end(first) // other goes
		r.pass(10 * minWorkerWait)
		if got := r.end(other); len(got) != 1 || got[0] != refused {
			t.Errorf("%v were granted, want the one that was refused", ids(got))
		}
		r.check()
	})
	t.Run("after a failed check", func(t *testing.T) {
		r := newModelRig(t, usual(), 2)
		r.mustGo(r.of(1, 0, "a", 1))
		waits := r.mustWait(r.of(1, 0, "a", 1))
		r.pool.Observe(name(0), 0, routing.Status{})
		if len(r.queue.unroutable) != 1 {
			t.Fatalf("%d are lost while their worker is down, want 1", len(r.queue.unroutable))
		}
		r.pool.Observe(name(0), 0, routing.Status{Up: true})
		r.mustGo(r.of(2, 0, "b", 1)) // no worker is open any more
		r.pass(10 * minWorkerWait)
		if got := r.nextOf(1); got != waits || len(r.queue.unroutable) != 0 {
			t.Errorf("%s was granted and %d are lost, want %s and none", got.ID, len(r.queue.unroutable), waits.ID)
		}
		r.check()
	})
}

// TestRequestOfAWorkerInBackoffIsNotUnroutable: if its wait limit is after the end of its
// worker's backoff, a request waits for the worker, also beside a free worker that it may not
// use.
func TestRequestOfAWorkerInBackoffIsNotUnroutable(t *testing.T) {
	const cools = 5 * time.Second
	for _, may := range []time.Duration{30 * time.Second, 3 * time.Second} {
		c := usual()
		c.MaxWait[0] = may
		r := newModelRig(t, c, 2)
		first := r.mustGo(r.of(1, 0, "a", 1))
		worker := r.held[first].Worker()
		r.end(first)
		r.pool.SetBackoff(worker, r.now.Add(cools))
		tk := r.of(1, 0, "a", 1)
		if may < cools {
			var backoff *routing.BackoffError
			if err := r.enter(tk); !errors.As(err, &backoff) {
				t.Errorf("the request that may wait for %s gets %v, want the error that the backoff is longer", may, err)
			}
			continue
		}
		r.mustWait(tk)
		for at := time.Duration(0); at < cools; at += 100 * time.Millisecond {
			if got := r.pass(0); len(got) != 0 || tk.state != stateWaiting {
				t.Fatalf("after %s: granted %v, error %v, want it to wait", at, ids(got), tk.err)
			}
			r.now = r.now.Add(100 * time.Millisecond)
		}
		if got := r.pass(0); len(got) != 1 || got[0] != tk {
			t.Errorf("granted %v at the end of the backoff, want %s", ids(got), tk.ID)
		}
		r.check()
	}
}

// TestNewcomerDoesNotOvertakeAWaitForBackoff: a request that arrives at the end of the backoff,
// before any pass, is behind the waiting one.
func TestNewcomerDoesNotOvertakeAWaitForBackoff(t *testing.T) {
	r := newModelRig(t, usual(), 2)
	first := r.mustGo(r.of(1, 0, "a", 1))
	worker := r.held[first].Worker()
	r.end(first)
	r.pool.SetBackoff(worker, r.now.Add(5*time.Second))
	waits := r.mustWait(r.of(1, 0, "a", 1))
	r.pass(time.Second)
	r.now = r.now.Add(4 * time.Second)
	r.mustWait(r.of(1, 2, "b", 1))
	if got := r.claim(); len(got) != 1 || got[0] != waits {
		t.Errorf("granted %v at the end of the backoff, want %s", ids(got), waits.ID)
	}
	r.check()
}

// TestNewcomerDoesNotOvertakeAWaitForACache: nor a request that a breaker refused a second ago.
func TestNewcomerDoesNotOvertakeAWaitForACache(t *testing.T) {
	t.Run("held", func(t *testing.T) {
		c := usual()
		c.MaxWait[0] = 10 * time.Second
		r := newRig(t, c, 2, 1)
		r.configure("chwbl", members(2, 1)...)
		r.held[r.mustGo(r.chat(200))].Answered(r.now.Add(time.Second), nil)
		held := r.mustWait(r.chat(201))
		r.pass(c.MaxWait[0]/2 - time.Millisecond)
		r.now = r.now.Add(time.Millisecond)
		r.mustWait(r.ticket(2, "b", 10))
		if got := r.claim(); len(got) != 1 || got[0] != held {
			t.Errorf("granted %v after half of its wait limit, want %s", ids(got), held.ID)
		}
		r.check()
	})
	t.Run("refused", func(t *testing.T) {
		r := newRig(t, usual(), 1, 2)
		gate := r.gated(2)
		filled := r.fill(2)
		refused := r.mustWait(r.ticket(0, "a", 10))
		gate.refuse = 1
		r.end(filled[0])
		r.now = r.now.Add(breakerRefusalTTL)
		r.mustWait(r.ticket(2, "b", 10))
		if got := r.claim(); len(got) != 1 || got[0] != refused {
			t.Errorf("granted %v when its worker was offered again, want %s", ids(got), refused.ID)
		}
		r.check()
	})
}

// TestRequestOfARemovedModelGetsThePoolsError while other workers are up and serve other
// models.
func TestRequestOfARemovedModelGetsThePoolsError(t *testing.T) {
	for _, engineWait := range []time.Duration{0, time.Minute} {
		c := usual()
		c.EngineWait = engineWait
		r := newModelRig(t, c, 2)
		r.mustGo(r.of(1, 0, "a", 1))
		waits := r.mustWait(r.of(1, 0, "a", 1))
		r.pool.Observe(name(0), 0, routing.Status{})
		after := max(engineWait, minWorkerWait)
		r.pass(after - time.Millisecond)
		if waits.state != stateWaiting {
			t.Errorf("engine_wait %s: its wait was over before, with %v", engineWait, waits.err)
		}
		r.pass(time.Millisecond)
		if got := shedFor(waits.err); waits.state != stateEvicted || got != ShedEngine {
			t.Errorf("engine_wait %s: after %s it is shed for %q, want %q", engineWait, after, got, ShedEngine)
		}
		late := r.of(1, 0, "a", 1)
		if err := r.enter(late); engineWait == 0 && !errors.Is(err, routing.ErrNoWorker) ||
			engineWait > 0 && !errors.Is(err, ErrWaiting) {
			t.Errorf("engine_wait %s: a new request gets %v", engineWait, err)
		}
		r.check()
	}
}

// TestUnroutableTicketWaitsForItsWorker: with engine_wait it is granted once its worker is up,
// immediately or at the end of its worker wait.
func TestUnroutableTicketWaitsForItsWorker(t *testing.T) {
	for _, after := range []time.Duration{30 * time.Second, time.Minute} {
		c := usual()
		c.EngineWait, c.MaxWait[0] = time.Minute, 10*time.Second
		r := newModelRig(t, c, 2)
		ms := members(2, 3)
		ms[0].Models, ms[1].Models = []uint64{1}, []uint64{2}
		r.configure("least_load", ms...)
		r.pool.Observe(name(0), 0, routing.Status{})
		waits := r.mustWait(r.of(1, 0, "a", 1))
		if until := r.queue.WaitUntil(waits).Sub(r.now); until != c.EngineWait {
			t.Errorf("it may wait for %s, want engine_wait", until)
		}
		r.now = r.now.Add(after)
		r.pool.Observe(name(0), 0, routing.Status{Up: true})
		if got := r.claim(); len(got) != 1 || got[0] != waits {
			t.Errorf("%s later %v were granted, want %s", after, ids(got), waits.ID)
		}
		if got := r.inflight(); got != 1 {
			t.Errorf("%s later %d are booked for one request", after, got)
		}
		r.check()
	}
}

// TestRetryDoesNotWaitForAWorkerToComeUp: only a first attempt does.
func TestRetryDoesNotWaitForAWorkerToComeUp(t *testing.T) {
	c := usual()
	c.EngineWait = time.Minute
	t.Run("all are tried", func(t *testing.T) {
		r := newRig(t, c, 1, 1)
		tk := r.fill(1)[0]
		tk.Tried = []*routing.Worker{r.held[tk].Worker()}
		r.fail(tk)
		if err := r.enter(tk); !errors.Is(err, routing.ErrNoWorker) {
			t.Errorf("a retry whose only worker was tried gets %v, want the error that none is left", err)
		}
		r.check()
	})
	t.Run("the others go down", func(t *testing.T) {
		r := newRig(t, c, 2, 1)
		tk := r.fill(2)[0]
		tk.Tried = []*routing.Worker{r.held[tk].Worker()}
		tried := r.held[tk].Ref().(int)
		r.fail(tk)
		r.mustWait(tk)
		other := 1 - tried
		r.pool.Observe(name(other), other, routing.Status{})
		r.pass(minWorkerWait)
		if got := shedFor(tk.err); tk.state != stateEvicted || got != ShedEngine {
			t.Errorf("after the grace it is shed for %q, want %q", got, ShedEngine)
		}
		r.check()
	})
}

// TestRetryWaitsForTheRestOfItsTime: the time of an attempt does not count as waiting.
func TestRetryWaitsForTheRestOfItsTime(t *testing.T) {
	c := usual()
	c.MaxWait[0] = 10 * time.Second
	r := newRig(t, c, 1, 1)
	first := r.fill(1)[0]
	tk := r.mustWait(r.ticket(0, "a", 1))
	r.now = r.now.Add(4 * time.Second)
	r.end(first)
	other := r.mustWait(r.ticket(0, "b", 1))
	r.now = r.now.Add(5 * time.Second)
	r.fail(tk)
	r.claim() // other goes
	r.mustWait(tk)
	if got, waited := r.queue.WaitUntil(tk).Sub(r.now), r.queue.List(r.now, 1)[0].Waited; got != 6*time.Second ||
		waited != 4*time.Second {
		t.Errorf("it has waited for %s and may wait for %s more, want 4 s and 6 s", waited, got)
	}
	if err := r.queue.Leave(tk, Late, r.now.Add(6*time.Second)); shedFor(err) != ShedWait {
		t.Errorf("when its time is over: %v, want to be shed for the wait", err)
	}
	r.end(other)
	r.check()
}

// TestBreakerRefusalAfterTheWaitLimitSheds: the owner's timer has fired by then.
func TestBreakerRefusalAfterTheWaitLimitSheds(t *testing.T) {
	c := usual()
	c.MaxWait[0] = 10 * time.Second
	r := newRig(t, c, 1, 1)
	gate := r.gated(1)
	first := r.fill(1)[0]
	tk := r.mustWait(r.ticket(0, "a", 1))
	r.now = r.now.Add(c.MaxWait[0])
	gate.refuse = 1
	r.fail(first) // tk is granted as its time is over
	if err := r.queue.Leave(tk, Late, r.now); err != nil {
		t.Fatalf("leaving late when granted: %v", err)
	}
	if _, err := r.queue.Claim(tk, r.now); !errors.Is(err, ErrWaiting) {
		t.Fatalf("claiming what the breaker refuses: %v", err)
	}
	if until := r.queue.WaitUntil(tk); until.After(r.now) {
		t.Errorf("it may wait for %s more, want no more", until.Sub(r.now))
	}
	if err := r.queue.Leave(tk, Late, r.now); shedFor(err) == "" {
		t.Errorf("leaving late: %v, want to be shed", err)
	}
	r.check()
}
