package queue

import (
	"errors"
	"slices"
	"testing"
	"time"

	"tierway/routing"
)

// shedFor returns why a ticket was shed, "" if it was not.
func shedFor(err error) string {
	var e *ShedError
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// TestFullClassDoesNotRefuseOtherClasses: QU-01.
func TestFullClassDoesNotRefuseOtherClasses(t *testing.T) {
	c := usual()
	c.MaxDepth = 3
	r := newRig(t, c, 1, 1)
	r.fill(1)
	for range 3 {
		r.mustWait(r.ticket(2, "a", 1))
	}
	if got := shedFor(r.enter(r.ticket(2, "a", 1))); got != ShedDepth {
		t.Errorf("the fourth batch request was shed for %q, want %q", got, ShedDepth)
	}
	r.mustWait(r.ticket(0, "a", 1))
	v := r.queue.View(r.now)
	if v.Classes[2].Shed[slices.Index(shedReasons[:], ShedDepth)] != 1 || v.Classes[2].Depth != 3 ||
		v.Classes[0].Depth != 1 {
		t.Errorf("the view is %+v", v)
	}
	r.check()
}

func TestBytesOfWaitingBodiesAreBounded(t *testing.T) {
	c := usual()
	c.MaxBytes = 250
	r := newRig(t, c, 1, 1)
	r.fill(1)
	first := r.mustWait(r.ticket(1, "a", 1))
	r.mustWait(r.ticket(2, "a", 1))
	if got := shedFor(r.enter(r.ticket(1, "a", 1))); got != ShedBytes {
		t.Errorf("shed for %q, want %q", got, ShedBytes)
	}
	smaller := r.ticket(1, "a", 1)
	smaller.Bytes = 50
	r.mustWait(smaller)
	if err := r.queue.Leave(first, Cancelled, r.now); err != nil {
		t.Error(err)
	}
	r.mustWait(r.ticket(1, "a", 1))
	r.check()
}

func TestNoRequestWaitsWithoutDepthOrWait(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"max_depth 0": func(c *Config) { c.MaxDepth = 0 },
		"max_wait 0":  func(c *Config) { c.MaxWait[0] = 0 },
	} {
		c := usual()
		change(&c)
		r := newRig(t, c, 1, 1)
		r.fill(1)
		if got := shedFor(r.enter(r.ticket(0, "a", 1))); got != ShedDepth {
			t.Errorf("%s: shed for %q, want %q", name, got, ShedDepth)
		}
	}
}

func TestDisplacementMakesRoom(t *testing.T) {
	t.Run("for a more urgent request if bytes are short", func(t *testing.T) {
		c := usual()
		c.Displace, c.MaxBytes = true, 300
		r := newRig(t, c, 1, 1)
		r.fill(1)
		r.mustWait(r.ticket(1, "a", 1))
		old := r.mustWait(r.ticket(2, "a", 1))
		newest := r.mustWait(r.ticket(2, "b", 1))
		r.mustWait(r.ticket(0, "a", 1))
		if len(r.woken) != 1 || r.woken[0] != newest {
			t.Fatalf("evicted %v, want %s", ids(r.woken), newest.ID)
		}
		_, err := r.queue.Claim(newest, r.now)
		if got := shedFor(err); got != ShedDisplaced {
			t.Errorf("shed for %q, want %q", got, ShedDisplaced)
		}
		if got := shedFor(r.enter(r.ticket(2, "c", 1))); got != ShedBytes {
			t.Errorf("the least urgent newcomer was shed for %q, want %q", got, ShedBytes)
		}
		if old.state != stateWaiting {
			t.Error("the older batch request was evicted")
		}
		r.claim()
		r.check()
	})
	t.Run("for a tenant with fewer waiting requests", func(t *testing.T) {
		c := usual()
		c.Displace, c.MaxDepth = true, 4
		r := newRig(t, c, 1, 1)
		r.fill(1)
		var flood []*Ticket
		for range 4 {
			flood = append(flood, r.mustWait(r.ticket(0, "flood", 1)))
		}
		r.mustWait(r.ticket(0, "other", 1))
		if len(r.woken) != 1 || r.woken[0] != flood[3] {
			t.Fatalf("evicted %v, want the newest of the flooding tenant", ids(r.woken))
		}
		if got := shedFor(r.enter(r.ticket(0, "flood", 1))); got != ShedDepth {
			t.Errorf("the flooding tenant's request was shed for %q, want %q", got, ShedDepth)
		}
		r.claim()
		r.check()
	})
	t.Run("never without Displace", func(t *testing.T) {
		c := usual()
		c.MaxDepth = 1
		r := newRig(t, c, 1, 1)
		r.fill(1)
		r.mustWait(r.ticket(0, "flood", 1))
		if got := shedFor(r.enter(r.ticket(0, "other", 1))); got != ShedDepth {
			t.Errorf("shed for %q, want %q", got, ShedDepth)
		}
	})
}

// paced teaches the pool how long a request occupies its slot.
func paced(r *rig, d time.Duration) {
	for range 200 {
		tk := r.fill(1)[0]
		r.now = r.now.Add(d)
		r.end(tk)
	}
}

// TestRetriesOfShedRequestsAreSpaced: the Retry-After values of requests that are shed together
// follow the pool's dispatch rate. No two are equal, and none is longer than the SDKs obey.
func TestRetriesOfShedRequestsAreSpaced(t *testing.T) {
	c := usual()
	c.MaxDepth = 4
	r := newRig(t, c, 1, 4)
	paced(r, 2*time.Second)
	r.fill(4) // each occupies its slot for 2 s: 2 slots are freed per second
	for range 4 {
		r.mustWait(r.ticket(0, "a", 1))
	}
	last := time.Duration(0)
	for i := range 300 {
		var shed *ShedError
		if err := r.enter(r.ticket(0, "a", 1)); !errors.As(err, &shed) {
			t.Fatalf("shed %d: %v", i, err)
		}
		step := shed.RetryAfter - last
		switch {
		case shed.RetryAfter > longestRetryAfter || shed.RetryAfter <= 0:
			t.Fatalf("shed request %d is to retry in %s", i, shed.RetryAfter)
		case i > 0 && i < 60 && (step < 600*time.Millisecond || step > 900*time.Millisecond):
			t.Fatalf("shed request %d is to retry %s after the previous one, want about 0.75 s", i, step)
		case i > 100 && shed.RetryAfter < longestRetryAfter*3/4:
			t.Fatalf("request %d is to retry in %s, before requests that were shed earlier", i, shed.RetryAfter)
		}
		last = shed.RetryAfter
	}
}

// TestRetryAfterOfAFreshGatewayIsNoLongerThanAnAnswer: the prior predicts a long answer on a slow engine. The first
// answers replace it.
func TestRetryAfterOfAFreshGatewayIsNoLongerThanAnAnswer(t *testing.T) {
	c := usual()
	c.MaxDepth = 1
	r := newRig(t, c, 1, 1)
	shed := func() time.Duration {
		var e *ShedError
		if err := r.enter(r.ticket(0, "a", 2000)); !errors.As(err, &e) {
			t.Fatalf("shed: %v", err)
		}
		return e.RetryAfter
	}
	busy := r.ticket(0, "a", 2000)
	if err := r.enter(busy); err != nil {
		t.Fatal(err)
	}
	waiting := r.mustWait(r.ticket(0, "a", 2000))
	rate, sure := r.pool.Throughput(r.now)
	answer := seconds(1 / rate)
	if got := shed(); sure || got > answer {
		t.Errorf("the first retry is due after %s, want at most the predicted answer of %s", got, answer)
	}
	for range 4 {
		r.now = r.now.Add(answer / 10) // the engine is ten times as fast
		r.end(busy)
		busy, waiting = waiting, r.mustWait(r.ticket(0, "a", 2000))
	}
	r.now = r.now.Add(answer) // the retry that was planned is past
	if got := shed(); got > answer/2 {
		t.Errorf("after four answers of %s a retry is due after %s", answer/10, got)
	}
}

// TestRequestThatWouldBeLateIsShedAtOnce: a request does not wait if its dispatch is expected
// long after its deadline or its class's wait limit.
func TestRequestThatWouldBeLateIsShedAtOnce(t *testing.T) {
	c := usual()
	c.MaxWait[0] = 10 * time.Second
	r := newRig(t, c, 1, 4)
	paced(r, 2*time.Second)
	r.fill(4)
	var err error
	waiting := -1
	for ; err == nil || errors.Is(err, ErrWaiting); waiting++ {
		err = r.enter(r.ticket(0, "a", 1))
	}
	// 2 requests are dispatched per second, 20 within the wait limit. The pool
	// does not fully trust its samples.
	if got := shedFor(err); got != ShedDeadline || waiting < 18 || waiting > 26 {
		t.Errorf("after %d waiting one was shed for %q, want %q after about 20", waiting, got, ShedDeadline)
	}
	r.mustWait(r.ticket(0, "b", 1)) // two requests are ahead of it
	tk := r.ticket(1, "a", 1)
	tk.Deadline = r.now.Add(5 * time.Second)
	if got := shedFor(r.enter(tk)); got != ShedDeadline {
		t.Errorf("the request with a deadline in 5 s was shed for %q, want %q", got, ShedDeadline)
	}
	gone := r.ticket(0, "c", 1)
	gone.Deadline = r.now
	if got := shedFor(r.enter(gone)); got != ShedDeadline {
		t.Errorf("the request past its deadline was shed for %q, want %q", got, ShedDeadline)
	}
}

func TestUnknownThroughputShedsNoRequestAsLate(t *testing.T) {
	c := usual()
	c.MaxWait[0] = time.Second
	r := newRig(t, c, 1, 1)
	r.fill(1)
	for range 100 {
		r.mustWait(r.ticket(0, "a", 1))
	}
}

// TestRequestsDoNotWaitForWorkersWithoutEngineWait: QU-07. Without engine_wait, a request does
// not wait for a worker that is down. Requests that already wait are evicted after
// minWorkerWait.
func TestRequestsDoNotWaitForWorkersWithoutEngineWait(t *testing.T) {
	r := newRig(t, usual(), 1, 1)
	r.fill(1)
	waits := r.mustWait(r.ticket(0, "a", 1))
	r.pool.Observe(name(0), 0, routing.Status{})
	if err := r.enter(r.ticket(0, "a", 1)); !errors.Is(err, routing.ErrNoWorker) {
		t.Errorf("a newcomer got %v, want ErrNoWorker", err)
	}
	r.pass(minWorkerWait - time.Millisecond)
	if waits.state != stateWaiting {
		t.Fatal("the waiting request was evicted before the minimum wait was over")
	}
	r.pass(time.Millisecond)
	_, err := r.queue.Claim(waits, r.now)
	if got := shedFor(err); got != ShedEngine {
		t.Errorf("the waiting request was shed for %q, want %q", got, ShedEngine)
	}
	r.check()
}

func TestRequestWaitsForAWorkerWithEngineWait(t *testing.T) {
	c := usual()
	c.EngineWait, c.MaxWait[0] = time.Minute, 10*time.Second
	r := newRig(t, c, 1, 1)
	r.pool.Observe(name(0), 0, routing.Status{})
	served := r.mustWait(r.ticket(0, "a", 1))
	if got := r.queue.WaitUntil(served).Sub(r.now); got != time.Minute {
		t.Errorf("it may wait for %s, want engine_wait", got)
	}
	r.pass(59 * time.Second)
	r.pool.Observe(name(0), 0, routing.Status{Up: true})
	if got := r.claim(); len(got) != 1 || got[0] != served {
		t.Fatalf("granted %v when the worker came up, want %s", ids(got), served.ID)
	}
	r.pool.Observe(name(0), 0, routing.Status{})
	r.end(served)
	vain := r.mustWait(r.ticket(0, "a", 1))
	r.pass(59 * time.Second)
	r.pass(time.Second)
	_, err := r.queue.Claim(vain, r.now)
	if got := shedFor(err); got != ShedEngine {
		t.Errorf("after engine_wait it was shed for %q, want %q", got, ShedEngine)
	}
	r.check()
}

// TestRetryDoesNotWaitForEngineWait: the wait of a retry for a worker is short, also behind requests that wait longer.
func TestRetryDoesNotWaitForEngineWait(t *testing.T) {
	c := usual()
	c.EngineWait, c.MaxWait[0] = time.Minute, time.Minute
	r := newRig(t, c, 2, 1)
	filled := r.fill(2)
	first := r.mustWait(r.ticket(0, "a", 1))
	retry := r.ticket(0, "b", 1)
	retry.Tried = []*routing.Worker{r.held[filled[0]].Worker()}
	r.mustWait(retry)
	last := r.mustWait(r.ticket(0, "c", 1))
	for i := range 2 {
		r.pool.Observe(name(i), i, routing.Status{})
	}
	r.pass(minWorkerWait - time.Millisecond)
	if retry.state != stateWaiting {
		t.Fatal("the retry was evicted before its wait was over")
	}
	r.pass(time.Millisecond)
	if _, err := r.queue.Claim(retry, r.now); shedFor(err) != ShedEngine {
		t.Errorf("the retry got %v, want %q", err, ShedEngine)
	}
	r.pass(time.Minute - minWorkerWait - time.Millisecond)
	if first.state != stateWaiting || last.state != stateWaiting {
		t.Error("a request was evicted before engine_wait was over")
	}
	r.pass(time.Millisecond)
	if first.state != stateEvicted || last.state != stateEvicted {
		t.Error("a request waits on after engine_wait")
	}
	r.check()
}

// TestRequestWaitsForAWorkerInBackoff: a request waits for the end of a worker's backoff unless
// its own wait limit is earlier.
func TestRequestWaitsForAWorkerInBackoff(t *testing.T) {
	c := usual()
	c.MaxWait[0] = 10 * time.Second
	r := newRig(t, c, 1, 1)
	first := r.fill(1)[0]
	w := r.held[first].Worker()
	r.end(first)
	r.pool.SetBackoff(w, r.now.Add(5*time.Second))
	waits := r.mustWait(r.ticket(0, "a", 1))
	if got := r.pass(5 * time.Second); len(got) != 1 || got[0] != waits {
		t.Errorf("granted %v at the end of the backoff", ids(got))
	}
	r.end(waits)
	r.pool.SetBackoff(w, r.now.Add(11*time.Second))
	var backoff *routing.BackoffError
	if err := r.enter(r.ticket(0, "a", 1)); !errors.As(err, &backoff) {
		t.Errorf("%v, want a retry at the end of the backoff", err)
	}
}
