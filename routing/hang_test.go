package routing

import (
	"testing"
	"time"
)

// silentRig books requests on the workers a and b of one pool. Times are in seconds.
type silentRig struct {
	t      *testing.T
	pool   *Pool
	leases []*Lease // on a
}

func newSilentRig(t *testing.T) *silentRig {
	p := NewPool(leastLoad{}, []Member{{ID: "a", Weight: 1, Ref: "a"}, {ID: "b", Weight: 1, Ref: "b"}})
	for _, id := range []string{"a", "b"} {
		p.Observe(id, id, Status{Up: true})
	}
	return &silentRig{t: t, pool: p}
}

func at(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

// timed returns a request that counts when its worker is silent.
func timed(tenant string, prompt uint64, began float64) Request {
	return Request{Now: at(began), Tenant: HashText(tenant), Blocks: []Block{{Hash: prompt, End: 1}}, Stream: true,
		Timed: true}
}

// book books a request on a worker.
func (r *silentRig) book(worker string, q Request) *Lease {
	r.t.Helper()
	q.Only = worker
	l, err := r.pool.Acquire(&q)
	if err != nil {
		r.t.Fatal(err)
	}
	return &l
}

// send books streams on a, which answers none.
func (r *silentRig) send(tenant string, began float64, prompts ...uint64) {
	r.t.Helper()
	for _, prompt := range prompts {
		r.leases = append(r.leases, r.book("a", timed(tenant, prompt, began)))
	}
}

// cutAll ends all requests of a after their clients have left.
func (r *silentRig) cutAll(s float64) {
	for _, l := range r.leases {
		l.Cut(at(s))
		l.Release(Result{At: at(s), Err: ErrExcluded})
	}
}

// refuseAll makes a answer all requests with an error.
func (r *silentRig) refuseAll(s float64) {
	for _, l := range r.leases {
		l.Answered(at(s), ErrExcluded)
		l.Release(Result{At: at(s), Err: ErrExcluded})
	}
}

// answer makes b answer streams that began at the given times.
func (r *silentRig) answer(tenant string, prompt uint64, began ...float64) {
	r.t.Helper()
	for _, s := range began {
		l := r.book("b", timed(tenant, prompt, s))
		l.Answered(at(s+0.01), nil)
		l.Release(Result{At: at(s + 0.02)})
	}
}

// sendWhole books a request for an answer that is not a stream, of at most that many tokens, on a.
func (r *silentRig) sendWhole(began float64, prompt uint64, most int64) {
	r.t.Helper()
	q := timed("t", prompt, began)
	q.Stream, q.MaxTokens = false, most
	r.leases = append(r.leases, r.book("a", q))
}

// hung returns whether the workers count as hung.
func (r *silentRig) hung(s float64) (a, b bool) {
	r.pool.DetectHangs(at(s))
	views := r.pool.Snapshot(at(s))
	return !views[0].HungAt.IsZero(), !views[1].HungAt.IsZero()
}

// TestSilentWorkerIsHungIfPeersAnswerLaterRequests: several of its requests must be overdue without a byte.
func TestSilentWorkerIsHungIfPeersAnswerLaterRequests(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*silentRig)
		at   float64
		hung bool
	}{
		"overdue, and a peer answers": {func(r *silentRig) {
			r.send("t", 0, 1, 2, 3)
			r.answer("t", 9, 1, 2, 3)
		}, 3.1, true},
		"not overdue yet": {func(r *silentRig) {
			r.send("t", 0, 1, 2, 3)
			r.answer("t", 9, 1, 2, 3)
		}, 2.9, false},
		"the peers answered requests of then": {func(r *silentRig) {
			r.send("t", 0, 1, 2, 3)
			r.answer("t", 9, .1, .2, .3)
		}, 30, false},
		"too few of the peers' answers": {func(r *silentRig) {
			r.send("t", 0, 1, 2, 3)
			r.answer("t", 9, 1, 2)
		}, 60, false},
		"one slow stream": {func(r *silentRig) {
			r.send("t", 0, 1)
			r.answer("t", 9, 1, 2, 3)
		}, 60, false},
		"older than the window": {func(r *silentRig) {
			r.send("t", 0, 1, 2, 3)
			r.answer("t", 9, 1, 2, 3)
		}, 301, false},

		"the peers are silent too":            {func(r *silentRig) { r.send("t", 0, 1, 2, 3) }, 32, false},
		"the peers are silent too, for long":  {func(r *silentRig) { r.send("t", 0, 1, 2, 3) }, 34, true},
		"one prompt, and no answer of a peer": {func(r *silentRig) { r.send("t", 0, 1, 1, 1) }, 200, false},

		"a byte of any answer": {func(r *silentRig) {
			r.send("t", 0, 1, 2, 3)
			r.leases[0].Received(at(2))
			r.answer("t", 9, 1, 2, 3, 4)
		}, 4.9, false},
		"silent again after a byte": {func(r *silentRig) {
			r.send("t", 0, 1, 2, 3)
			r.leases[0].Received(at(1))
			r.answer("t", 9, 2, 3, 3.5)
		}, 4.1, true},

		"clients that disconnect after the deadline": {func(r *silentRig) {
			r.send("t", 0, 1, 2, 3)
			r.cutAll(6)
			r.answer("t", 9, 1, 2, 3)
		}, 7, true},
		"clients that disconnect before the deadline": {func(r *silentRig) {
			r.send("t", 0, 1, 2, 3)
			r.cutAll(2)
			r.answer("t", 9, 1, 2, 3)
		}, 60, false},
		"a late answer with an error": {func(r *silentRig) {
			r.send("t", 0, 1, 2, 3)
			r.refuseAll(6)
			r.answer("t", 9, 1, 2, 3)
		}, 7, false},
		"a byte after clients disconnected": {func(r *silentRig) {
			r.send("t", 0, 1, 2, 3)
			r.cutAll(6)
			r.leases[0].Received(at(7))
			r.answer("t", 9, 1, 2, 3)
		}, 60, false},

		"one prompt, repeated": {func(r *silentRig) {
			r.send("t", 0, 1, 1, 1)
			r.answer("t", 9, 1, 2, 3)
		}, 60, false},
		"one prompt that a peer answers": {func(r *silentRig) {
			r.send("t", 0, 1, 1, 1)
			r.answer("t", 1, 1, 2, 3)
		}, 60, true},

		"one tenant beside others": {func(r *silentRig) { r.send("t", 0, 1, 2, 3); r.answer("u", 9, 1, 2, 3) }, 59, false},
		"one tenant beside others, for a minute": {func(r *silentRig) { r.send("t", 0, 1, 2, 3); r.answer("u", 9, 1, 2, 3) },
			60, true},
		"one tenant's many, beside others, for a minute": {func(r *silentRig) {
			for i := range 200 {
				r.send("t", .3*float64(i), uint64(i))
				r.leases[i].Cut(at(.3*float64(i) + 5))
				r.leases[i].Release(Result{At: at(.3*float64(i) + 5), Err: ErrExcluded})
			}
			r.answer("u", 9, 55, 56, 57)
		}, 65, true},
		"one tenant beside others, hidden by its own answers": {func(r *silentRig) {
			r.send("t", 0, 1, 2, 3)
			r.answer("u", 9, 1)
			r.answer("t", 9, 1, 2, 3, 4, 5)
		}, 59, false},
		"one tenant after others": {func(r *silentRig) {
			r.answer("u", 9, -1, -2, -3)
			r.send("t", 0, 1, 2, 3)
			r.answer("t", 9, 1, 2, 3)
		}, 60, true},
		"two tenants beside others": {func(r *silentRig) {
			r.send("t", 0, 1, 2, 3)
			r.send("v", 0, 7)
			r.answer("u", 9, 1, 2, 3)
		}, 60, true},
		"a second tenant among many of the first": {func(r *silentRig) {
			r.send("v", 0, 7)
			for i := range 20 {
				r.send("t", .1*float64(i), uint64(i))
			}
			r.cutAll(6)
			r.answer("u", 9, 1, 2, 3)
		}, 60, true},
		"a long prompt in the same engine": {func(r *silentRig) {
			r.send("t", 0, 1, 2, 3)
			q := timed("t", 4, 1)
			q.PromptTokens = 479_800 // 60 s, overdue after 120 s
			r.book("a", q)
			r.answer("t", 9, 1, 2, 3)
		}, 120, false},
		"a long prompt that is overdue too": {func(r *silentRig) {
			r.send("t", 0, 1, 2, 3)
			q := timed("t", 4, 1)
			q.PromptTokens = 479_800
			r.book("a", q)
			r.answer("t", 9, 1, 2, 3)
		}, 122, true},
		"a whole answer on an engine without counters": {func(r *silentRig) {
			r.sendWhole(0, 1, 100) // overdue after 8 s
			r.send("t", 1, 2, 3, 4)
			r.answer("t", 9, 2, 3, 4)
		}, 7.9, false},
		"a whole answer that is overdue too": {func(r *silentRig) {
			r.sendWhole(0, 1, 100)
			r.send("t", 1, 2, 3, 4)
			r.answer("t", 9, 2, 3, 4)
		}, 8.1, true},
		"a whole answer on an engine whose counters stand still": {func(r *silentRig) {
			r.pool.Observe("a", "a", Status{Up: true, SteppedAt: at(-60), LoadAt: at(0)})
			r.sendWhole(0, 1, 100)
			r.send("t", 1, 2, 3, 4)
			r.answer("t", 9, 2, 3, 4)
		}, 4.1, true},
		"requests whose time cannot be predicted": {func(r *silentRig) {
			for i := range 3 {
				q := timed("t", uint64(i), 0)
				q.Timed = false
				r.book("a", q)
			}
			r.answer("t", 9, 1, 2, 3)
		}, 60, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newSilentRig(t)
			c.do(r)
			a, b := r.hung(c.at)
			if a != c.hung {
				t.Errorf("hung: %v, want %v", a, c.hung)
			}
			if b {
				t.Error("the peer counts as hung")
			}
		})
	}
}

// TestPredictionExtendsPatience: a long prompt is overdue after four times its prediction, and at most a minute
// after it. An answer that is not a stream has the time of the longest recent answer in addition.
func TestPredictionExtendsPatience(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(r *silentRig, q *Request)
		from float64 // when the requests are overdue
	}{
		"a short prompt":    {func(*silentRig, *Request) {}, 3},
		"10 s of prefill":   {func(_ *silentRig, q *Request) { q.PromptTokens = 79_800 }, 40},
		"60 s of prefill":   {func(_ *silentRig, q *Request) { q.PromptTokens = 479_800 }, 120},
		"an unknown length": {func(_ *silentRig, q *Request) { q.Stream = false }, 3 + 2*4096*.025},
		"a bounded length":  {func(_ *silentRig, q *Request) { q.Stream, q.MaxTokens = false, 40 }, 3 + 2*40*.025},
		"a length that is known from streams": {func(r *silentRig, q *Request) {
			r.answerWhole(0, 0, true, 80)
			q.Stream = false
		}, 3 + 2*80*.025},
		"a time that is known from whole answers": {func(r *silentRig, q *Request) {
			r.answerWhole(0, 5, false, 80)
			q.Stream = false
		}, 3 + 2*5},
		"a time that grows slowly": {func(r *silentRig, q *Request) {
			r.answerWhole(0, 1, false, 80)
			r.answerWhole(0, 500, false, 80)
			q.Stream = false
		}, 3 + 2*12},
	} {
		t.Run(name, func(t *testing.T) {
			r := newSilentRig(t)
			q := timed("t", 1, 1000)
			c.do(r, &q)
			r.book("a", q)
			q.PromptTokens = 0 // behind the first
			for _, prompt := range []uint64{2, 3} {
				q.Blocks = []Block{{Hash: prompt, End: 1}}
				r.book("a", q)
			}
			r.answer("t", 9, 1001, 1002, 1003)
			if a, _ := r.hung(1000 + c.from - .1); a {
				t.Error("it counts as hung too early")
			}
			if a, _ := r.hung(1000 + c.from + .1); !a {
				t.Error("it does not count as hung")
			}
		})
	}
}

// answerWhole makes b answer a request of that many seconds and output tokens.
func (r *silentRig) answerWhole(began, took float64, stream bool, output int64) {
	q := timed("t", 8, began)
	q.Stream = stream
	l := r.book("b", q)
	l.Answered(at(began+took), nil)
	l.Release(Result{At: at(began + took), OutputTokens: output})
}

// TestHungWorkerStaysHungUntilItMoves, whatever its peers and its clients do.
func TestHungWorkerStaysHungUntilItMoves(t *testing.T) {
	for name, move := range map[string]func(*silentRig){
		"a byte":  func(r *silentRig) { r.leases[0].Received(at(1001)) },
		"a probe": func(r *silentRig) { r.pool.RestartSilence("a", "a", at(1001)) },
		"a step of its engine": func(r *silentRig) {
			r.pool.Observe("a", "a", Status{Up: true, SteppedAt: at(1001), LoadAt: at(1001)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newSilentRig(t)
			r.send("t", 0, 1, 2, 3)
			r.answer("t", 9, 1, 2, 3)
			if a, _ := r.hung(4); !a {
				t.Fatal("the worker does not count as hung")
			}
			r.cutAll(6)
			r.answer("u", 9, 7, 8, 9)
			if a, _ := r.hung(1000); !a {
				t.Error("the worker no longer counts as hung although it has sent nothing")
			}
			move(r)
			if a, _ := r.hung(1002); a {
				t.Error("the worker still counts as hung")
			}
		})
	}
}

// TestStoppedCountersAreAHangOnlyWithoutAnswers: an engine that sends parts of answers has stale counters. An
// engine whose report says that nothing runs hangs if a request is older than the report.
func TestStoppedCountersAreAHangOnlyWithoutAnswers(t *testing.T) {
	busy := func(read float64) Status {
		return Status{Up: true, StalledSince: at(0), SteppedAt: at(0), LoadAt: at(read)}
	}
	idle := func(read float64) Status { return Status{Up: true, SteppedAt: at(-100), LoadAt: at(read)} }
	for name, c := range map[string]struct {
		status  Status
		do      func(*silentRig)
		stalled bool
	}{
		"requests run":         {busy(10), func(*silentRig) {}, true},
		"not for long enough":  {busy(9.9), func(*silentRig) {}, false},
		"moving counters":      {Status{Up: true, SteppedAt: at(50), LoadAt: at(50)}, func(*silentRig) {}, false},
		"no counters":          {Status{Up: true, LoadAt: at(50)}, func(r *silentRig) { r.send("t", 0, 1) }, false},
		"bytes before":         {busy(10), func(r *silentRig) { r.sendByte(-60) }, true},
		"bytes of the last":    {busy(10), func(r *silentRig) { r.sendByte(.5) }, true},
		"bytes while they are": {busy(10), func(r *silentRig) { r.sendByte(9) }, false},
		"bytes once while":     {busy(3600), func(r *silentRig) { r.sendByte(2) }, false},
		"a long prompt": {busy(10), func(r *silentRig) {
			q := timed("t", 1, 0)
			q.PromptTokens = 479_800 // 60 s
			r.book("a", q)
		}, false},
		"two old requests while nothing runs": {idle(10), func(r *silentRig) { r.send("t", 0, 1, 2) }, true},
		"two young ones":                      {idle(9.9), func(r *silentRig) { r.send("t", 0, 1, 2) }, false},
		"an old one and a young one":          {idle(10), func(r *silentRig) { r.send("t", 0, 1); r.send("t", 1, 2) }, false},
		"one old request while nothing runs":  {idle(100), func(r *silentRig) { r.send("t", 0, 1) }, false},
		"one prompt twice while nothing runs": {idle(100), func(r *silentRig) { r.send("t", 0, 1, 1) }, false},
		"no request while nothing runs":       {idle(100), func(*silentRig) {}, false},
		"two old requests after a byte":       {idle(10), func(r *silentRig) { r.send("t", 0, 1, 2); r.sendByte(1) }, false},
		"two old requests in steps": {Status{Up: true, SteppedAt: at(5), LoadAt: at(10)},
			func(r *silentRig) { r.send("t", 0, 1, 2) }, false},
		"a probe": {busy(10),
			func(r *silentRig) { r.pool.Eject("a", "a", Ejection{At: at(0)}) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newSilentRig(t)
			c.do(r)
			r.pool.Observe("a", "a", c.status)
			if a, _ := r.hung(c.status.LoadAt.Sub(start).Seconds()); a != c.stalled {
				t.Errorf("stalled: %v, want %v", a, c.stalled)
			}
		})
	}
}

// sendByte makes a send a part of an answer.
func (r *silentRig) sendByte(s float64) {
	l := r.book("a", Request{Now: at(s)})
	l.Received(at(s))
	l.Release(Result{})
}

// TestPauseOfTheGatewayIsNoHang: what the workers sent meanwhile has not been read.
func TestPauseOfTheGatewayIsNoHang(t *testing.T) {
	r := newSilentRig(t)
	r.pool.DetectHangs(at(0))
	r.send("t", 0, 1, 2, 3)
	r.answer("t", 9, 1, 1.1, 1.2)
	if a, _ := r.hung(20); a {
		t.Error("it counts as hung after a pause of 20 s")
	}
	r.answer("t", 9, 21, 22, 23)
	for s := 21.0; s <= 24; s++ {
		if a, _ := r.hung(s); a != (s >= 23) {
			t.Errorf("%v s after the pause it counts as hung: %v", s-20, a)
		}
	}
}

// TestOtherWorkerMustServeTheRequest: it is up, open to requests, not late, and has the model.
func TestOtherWorkerMustServeTheRequest(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *Pool, q *Request)
		want   bool
	}{
		"a peer":              {func(*Pool, *Request) {}, true},
		"it is down":          {func(p *Pool, _ *Request) { p.Observe("b", "b", Status{}) }, false},
		"it is open":          {func(p *Pool, _ *Request) { p.SetOpen("b", "b", at(60)) }, false},
		"another model":       {func(_ *Pool, q *Request) { q.Model = 7 }, false},
		"for one worker only": {func(_ *Pool, q *Request) { q.Only = "a" }, false},
		"it is late":          {func(p *Pool, _ *Request) { mustBookOn(p, "b", timed("t", 5, -10)) }, false},
		"it has no weight":    {func(p *Pool, _ *Request) { p.workers[1].weight = 0 }, false},
		"it is full for now": {func(p *Pool, _ *Request) {
			p.workers[1].maxInflight = 1
			mustBookOn(p, "b", timed("t", 5, 0))
		}, true},
		"it is in backoff too": {func(p *Pool, _ *Request) { p.SetBackoff(p.workers[1], at(9)) }, false},
	} {
		p := NewPool(leastLoad{}, []Member{{ID: "a", Weight: 1, Ref: "a", Models: []uint64{1, 7}},
			{ID: "b", Weight: 1, Ref: "b", Models: []uint64{1}}})
		p.Observe("a", "a", Status{Up: true})
		p.Observe("b", "b", Status{Up: true})
		q := timed("t", 1, 0)
		q.Model = 1
		c.change(p, &q)
		if q.Only == nil {
			q.Only = "a"
		}
		l, err := p.Acquire(&q)
		if err != nil {
			t.Fatal(name, err)
		}
		if name != "for one worker only" {
			l.only = nil // it was only booked there
		}
		if got := l.HasOtherWorker(at(1)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// mustBookOn books a request on a worker.
func mustBookOn(p *Pool, worker string, q Request) {
	q.Only = worker
	if _, err := p.Acquire(&q); err != nil {
		panic(err)
	}
}

// TestSilenceEndsAtZero after all requests have ended.
func TestSilenceEndsAtZero(t *testing.T) {
	r := newSilentRig(t)
	for i := range uint64(2 * endedKept) {
		r.send("t", 0, i)
	}
	l := &r.pool.workers[0].silences
	for i, lease := range r.leases[:4] {
		lease.Cut(at(float64(i) * 2)) // two in time, two overdue
	}
	if n := len(r.pool.workers[0].overdueRequestsLocked(at(60), l.fromLocked())); n != 2*endedKept-2 {
		t.Errorf("%d are overdue, want %d", n, 2*endedKept-2)
	}
	r.cutAll(60)
	if len(l.waiting) != 0 || len(l.hang.ended) != endedKept {
		t.Errorf("left: %d waiting, %d ended", len(l.waiting), len(l.hang.ended))
	}
	r.pool.RestartSilence("a", "a", at(61))
	if len(l.hang.ended) != 0 || r.pool.anyLateLocked(at(62)) {
		t.Errorf("left: %d ended", len(l.hang.ended))
	}
}

// TestOverdueRequestMayMoveWithoutAProofOfAHang: after 8 s of silence, if a peer's answers show that requests of
// then can be answered, or if the worker has answered others shortly before.
func TestOverdueRequestMayMoveWithoutAProofOfAHang(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*silentRig)
		at   float64
		want bool
	}{
		"the peer answers":        {func(r *silentRig) { r.send("t", 0, 1); r.answer("t", 9, 1, 2, 3) }, 8, true},
		"not long enough":         {func(r *silentRig) { r.send("t", 0, 1); r.answer("t", 9, 1, 2, 3) }, 7.9, false},
		"it answered before":      {func(r *silentRig) { r.sendByte(-200); r.send("t", 0, 1) }, 8, true},
		"it was idle for long":    {func(r *silentRig) { r.sendByte(-400); r.send("t", 0, 1) }, 100, false},
		"it has answered nothing": {func(r *silentRig) { r.send("t", 0, 1) }, 100, false},
		"it makes steps": {func(r *silentRig) {
			r.sendByte(-1)
			r.send("t", 0, 1)
			r.pool.Observe("a", "a", Status{Up: true, SteppedAt: at(7), LoadAt: at(7)})
		}, 8, false},
		"a long prompt": {func(r *silentRig) {
			r.sendByte(-1)
			r.send("t", 0, 1)
			q := timed("t", 2, 0)
			q.PromptTokens = 479_800
			r.book("a", q)
		}, 100, false},
		"its client has left": {func(r *silentRig) { r.send("t", 0, 1); r.cutAll(5); r.answer("t", 9, 1, 2, 3) }, 9, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newSilentRig(t)
			c.do(r)
			r.pool.DetectHangs(at(c.at))
			if got := r.pool.Snapshot(at(c.at))[0].Unanswered; got != c.want {
				t.Errorf("unanswered: %v, want %v", got, c.want)
			}
			if a, _ := r.hung(c.at); a {
				t.Error("it counts as hung")
			}
			if got, want := r.leases[0].Overdue(at(c.at)), c.want && name != "its client has left"; want && !got {
				t.Error("its request is not overdue")
			}
		})
	}
}
