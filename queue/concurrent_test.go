package queue

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tierway/routing"
)

// strict is a breaker that refuses each fifth request. It counts its admitted requests that
// have not ended.
type strict struct{ asked, under atomic.Int64 }

func (g *strict) Allow(time.Duration) (uint64, error) {
	if g.asked.Add(1)%5 == 0 {
		return 0, errors.New("half open")
	}
	g.under.Add(1)
	return 0, nil
}

func (g *strict) Report(uint64, error)       { g.under.Add(-1) }
func (g *strict) ReportCut(time.Time, error) {}

// bustle is a queue with many concurrent owners. Its time advances by a hundred microseconds
// with each reading.
type bustle struct {
	pool    *routing.Pool
	queue   *Queue
	gate    strict
	looks   atomic.Int64
	granted atomic.Int64
}

func (b *bustle) now() time.Time {
	return start().Add(time.Duration(b.looks.Add(1)) * 100 * time.Microsecond)
}

// bounds returns bounds under which many requests are shed, displaced and late.
func bounds() Config {
	c := usual()
	c.MaxDepth, c.MaxBytes, c.Displace, c.EngineWait = 40, 4000, true, time.Second
	c.MaxWait = [Classes]time.Duration{300 * time.Millisecond, 300 * time.Millisecond, time.Second}
	c.Age = [Classes]time.Duration{50 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond}
	return c
}

func newBustle(t *testing.T) *bustle {
	b := &bustle{pool: poolOf(t, "chwbl", 4, 2)}
	b.configure(t, 4)
	b.queue = New(b.pool, bounds(), func(tk *Ticket) { tk.Ref.(chan struct{}) <- struct{}{} })
	b.pool.Watch(func() { b.queue.Dispatch(b.now()) })
	return b
}

// configure gives the pool the given number of its members, from the first on.
func (b *bustle) configure(t *testing.T, workers int) {
	policy, err := routing.New(routing.Config{Name: "chwbl"})
	if err != nil {
		t.Error(err)
		return
	}
	ms := members(workers, 2)
	for i := range ms {
		ms[i].Gate = &b.gate
	}
	b.pool.Configure(policy, ms)
	for i := range ms {
		b.pool.Observe(name(i), i, routing.Status{Up: true})
	}
}

// ticket returns a request of an owner.
func (b *bustle) ticket(owner int, d *rng) *Ticket {
	prefix := uint64(1 + d.below(7))
	return &Ticket{Class: d.below(Classes), Tenant: fmt.Sprint(owner % 5), Weight: 1 + owner%3,
		Tokens: int64(d.below(500)), Bytes: 100, Ref: make(chan struct{}, 16),
		Request: &routing.Request{Rand: d.next(), PromptTokens: 512, OutputTokens: 5, Stream: true,
			Prefix: prefix, Blocks: []routing.Block{{Hash: prefix, End: 2000}}}}
}

// wait waits for the end of a ticket's wait, and sometimes cancels it early.
func (b *bustle) wait(tk *Ticket, d *rng) (lease routing.Lease, err error) {
	woken := tk.Ref.(chan struct{})
	for err = ErrWaiting; errors.Is(err, ErrWaiting); {
		select {
		case <-woken:
			lease, err = b.queue.Claim(tk, b.now())
			continue
		default:
		}
		runtime.Gosched()
		why := Late
		if d.below(50) == 0 {
			why = Cancelled
		}
		switch left := b.queue.Leave(tk, why, b.now()); {
		case why == Cancelled:
			return lease, errors.Join(left, errors.New("the client is gone"))
		case left == nil:
			lease, err = b.queue.Claim(tk, b.now())
		default:
			err = left
		}
	}
	return lease, err
}

// own runs one request to its end, in up to three attempts.
func (b *bustle) own(tk *Ticket, d *rng) {
	for attempt := range 3 {
		lease, err := b.queue.Enter(tk, b.now())
		if errors.Is(err, ErrWaiting) {
			lease, err = b.wait(tk, d)
		}
		if err != nil {
			break
		}
		b.granted.Add(1)
		for range d.below(10) { // in flight, while other owners run
			runtime.Gosched()
		}
		if d.below(2) == 0 {
			lease.Answered(b.now(), nil)
		}
		again := attempt < 2 && d.below(3) == 0
		if !again {
			lease.Release(routing.Result{At: b.now()})
			break
		}
		tk.Tried = append(tk.Tried, lease.Worker())
		lease.Release(routing.Result{At: b.now(), Err: errors.New("the worker broke off")})
	}
	b.queue.SettleUsage(tk, int64(d.below(1000)))
}

// disturb changes everything that may change beside waiting requests, until it is stopped.
func (b *bustle) disturb(t *testing.T, stop <-chan struct{}) {
	d := rng(99)
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		now, worker := b.now(), d.below(4)
		switch i % 7 {
		case 0, 1, 2:
			b.pool.Observe(name(worker), worker, routing.Status{Up: d.below(4) > 0})
		case 3:
			c := bounds()
			c.MaxDepth = 20 + d.below(30)
			b.queue.Configure(c, now)
		case 4:
			b.configure(t, 2+d.below(3))
		case 5:
			b.queue.Dispatch(now)
			_ = b.queue.Preview(b.ticket(i, &d), nil, routing.ErrFull, now)
		case 6:
			b.queue.View(now)
			b.queue.List(now, 20)
		}
	}
}

// TestConcurrentOwnersLeaveNothingBehind runs 64 owners while workers come and go, breakers
// refuse and bounds change. All requests end, and nothing is left behind.
func TestConcurrentOwnersLeaveNothingBehind(t *testing.T) {
	const owners, requests = 64, 40
	b := newBustle(t)
	stop := make(chan struct{})
	var all, disturber sync.WaitGroup
	disturber.Go(func() { b.disturb(t, stop) })
	for owner := range owners {
		all.Go(func() {
			d := rng(owner + 1)
			for range requests {
				b.own(b.ticket(owner, &d), &d)
			}
		})
	}
	all.Wait()
	close(stop)
	disturber.Wait()
	b.configure(t, 4)
	r := &rig{t: t, queue: b.queue, pool: b.pool, now: b.now()}
	r.check()
	for _, v := range b.pool.Snapshot(r.now) {
		if v.Inflight != 0 || v.TokensInflight != 0 || v.PendingTokens != 0 || v.OutputTokens != 0 {
			t.Errorf("at the end there is %+v", v)
		}
	}
	if b.queue.Waiting() != 0 || len(b.queue.unroutable) != 0 || b.gate.under.Load() != 0 {
		t.Errorf("at the end %d wait, %d are lost and %d permits are held", b.queue.Waiting(), len(b.queue.unroutable),
			b.gate.under.Load())
	}
	for i, c := range b.queue.View(r.now).Classes {
		if c.Dispatched == 0 || c.Abandoned+c.Expired == 0 {
			t.Errorf("class %d: %d were granted and %d ended otherwise: the test covers too little", i, c.Dispatched,
				c.Abandoned+c.Expired)
		}
	}
	if got := b.granted.Load(); got < owners*requests/10 {
		t.Errorf("%d attempts were granted: the test covers too little", got)
	}
}
