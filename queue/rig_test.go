package queue

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"tierway/routing"
)

// start is the start of the tests' time.
func start() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// rng is xorshift64*.
type rng uint64

func (d *rng) next() uint64 {
	x := uint64(*d)
	x ^= x >> 12
	x ^= x << 25
	x ^= x >> 27
	*d = rng(x)
	return x * 2685821657736338717
}

func (d *rng) below(n int) int { return int(d.next() >> 11 % uint64(n)) }

// usual returns bounds for tests about something else.
func usual() Config {
	return Config{MaxDepth: 1_000_000, MaxWait: [Classes]time.Duration{time.Hour, time.Hour, time.Hour}, AgedShare: 0.2}
}

// rig is a queue before a pool of workers that are up, with its own time.
type rig struct {
	t     testing.TB
	pool  *routing.Pool
	queue *Queue
	now   time.Time
	rng   rng
	woken []*Ticket
	held  map[*Ticket]*routing.Lease // granted and in flight
	made  int
}

// newRig returns a pool with that number of workers and of slots per worker.
func newRig(t testing.TB, c Config, workers, places int) *rig {
	t.Helper()
	r := &rig{t: t, now: start(), rng: 7, held: map[*Ticket]*routing.Lease{}}
	r.pool = poolOf(t, "least_load", workers, places)
	r.queue = New(r.pool, c, func(tk *Ticket) { r.woken = append(r.woken, tk) })
	r.pool.Watch(func() { r.queue.Dispatch(r.now) })
	return r
}

func poolOf(t testing.TB, policy string, workers, places int) *routing.Pool {
	t.Helper()
	p, err := routing.New(routing.Config{Name: policy})
	if err != nil {
		t.Fatal(err)
	}
	pool := routing.NewPool(p, members(workers, places))
	for i := range workers {
		pool.Observe(name(i), i, routing.Status{Up: true})
	}
	return pool
}

func name(i int) string { return fmt.Sprint("w", i) }

func members(workers, places int) []routing.Member {
	ms := make([]routing.Member, workers)
	for i := range ms {
		ms[i] = routing.Member{ID: name(i), Weight: 1, MaxInflight: places, Ref: i}
	}
	return ms
}

// ticket returns a request of a tenant.
func (r *rig) ticket(class int, tenant string, tokens int64) *Ticket {
	r.made++
	return &Ticket{Class: class, Tenant: tenant, Tokens: tokens, Bytes: 100, ID: fmt.Sprint("r", r.made),
		Request: &routing.Request{Rand: r.rng.next(), PromptTokens: tokens, OutputTokens: 1, Stream: true}}
}

// enter enters a ticket and returns the result.
func (r *rig) enter(tk *Ticket) error {
	lease, err := r.queue.Enter(tk, r.now)
	if err == nil {
		r.held[tk] = &lease
	}
	return err
}

// mustWait enters a ticket that must wait.
func (r *rig) mustWait(tk *Ticket) *Ticket {
	r.t.Helper()
	if err := r.enter(tk); !errors.Is(err, ErrWaiting) {
		r.t.Fatalf("ticket %s: %v, want it to wait", tk.ID, err)
	}
	return tk
}

// mustWaitOrGo enters a ticket that must not be refused.
func (r *rig) mustWaitOrGo(tk *Ticket) {
	r.t.Helper()
	if err := r.enter(tk); err != nil && !errors.Is(err, ErrWaiting) {
		r.t.Fatalf("ticket %s: %v", tk.ID, err)
	}
}

// fill occupies all slots with requests that never waited.
func (r *rig) fill(places int) []*Ticket {
	r.t.Helper()
	filled := make([]*Ticket, places)
	for i := range filled {
		filled[i] = r.ticket(0, "filler", 1)
		if err := r.enter(filled[i]); err != nil {
			r.t.Fatalf("filling slot %d: %v", i, err)
		}
	}
	return filled
}

// end ends a request and claims the tickets that are granted by it.
func (r *rig) end(tk *Ticket) []*Ticket {
	r.t.Helper()
	lease := r.held[tk]
	delete(r.held, tk)
	lease.Release(routing.Result{At: r.now})
	r.queue.SettleUsage(tk, tk.Tokens) // no effect if the test has settled it
	return r.claim()
}

// claim claims all tickets that were woken, and returns the granted ones.
func (r *rig) claim() []*Ticket {
	r.t.Helper()
	var granted []*Ticket
	for len(r.woken) > 0 {
		tk := r.woken[0]
		r.woken = r.woken[1:]
		lease, err := r.queue.Claim(tk, r.now)
		if err == nil {
			r.held[tk] = &lease
			granted = append(granted, tk)
		}
	}
	return granted
}

// next ends the oldest request in flight and returns the request that gets its slot.
func (r *rig) next() *Ticket {
	r.t.Helper()
	var first *Ticket
	for tk := range r.held {
		if first == nil || tk.seq < first.seq {
			first = tk
		}
	}
	granted := r.end(first)
	if len(granted) != 1 {
		r.t.Fatalf("%d requests were granted one free slot, want 1", len(granted))
	}
	return granted[0]
}

// pass advances the time.
func (r *rig) pass(d time.Duration) []*Ticket {
	r.now = r.now.Add(d)
	r.queue.Dispatch(r.now)
	return r.claim()
}

// check compares everything that the queue stores twice.
func (r *rig) check() {
	r.t.Helper()
	q := r.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting, bytes := 0, int64(0)
	for i := range q.classes {
		c := &q.classes[i]
		depth, tokens := 0, int64(0)
		for at, f := range c.waiting {
			if f.at != at || f.first == nil || at > 0 && c.waiting.Less(at, (at-1)/2) {
				r.t.Fatalf("class %d: the heap of flows is not one at %d", i, at)
			}
			n, before := 0, uint64(0)
			for tk := f.first; tk != nil; tk = tk.links[inFlow].after {
				if tk.seq <= before || tk.state != stateWaiting || tk.flow != f {
					r.t.Fatalf("class %d: flow %s is out of order", i, f.first.Tenant)
				}
				n, before, tokens, bytes = n+1, tk.seq, tokens+tk.Tokens, bytes+tk.Bytes
			}
			if n != f.depth {
				r.t.Fatalf("class %d: flow %s has %d tickets, and its depth is %d", i, f.first.Tenant, n, f.depth)
			}
			depth += n
		}
		listed := 0
		for tk := c.all.first; tk != nil; tk = tk.links[inClass].after {
			listed++
		}
		for tk := c.all.last; tk != nil; tk = tk.links[inClass].before {
			listed--
		}
		if listed != 0 {
			r.t.Fatalf("class %d: its list is %d longer forwards than backwards", i, listed)
		}
		for tk := c.all.first; tk != nil; tk = tk.links[inClass].after {
			listed++
		}
		if depth != c.depth || listed != depth || tokens != c.tokens {
			r.t.Fatalf("class %d: %d tickets of %d tokens in flows and %d in the list, counted %d of %d", i, depth, tokens,
				listed, c.depth, c.tokens)
		}
		if k := c.counts; k.Entered != k.Dispatched+k.Abandoned+k.Expired+k.Moved+int64(depth) {
			r.t.Fatalf("class %d: entered %d, dispatched %d + abandoned %d + expired %d + moved %d + waiting %d", i,
				k.Entered, k.Dispatched, k.Abandoned, k.Expired, k.Moved, depth)
		}
		waiting += depth
	}
	if waiting != q.Waiting() || bytes != q.bytes {
		r.t.Fatalf("%d tickets of %d bytes, counted %d of %d", waiting, bytes, q.Waiting(), q.bytes)
	}
}

// inflight returns how many requests are booked on the pool.
func (r *rig) inflight() int {
	n := 0
	for _, v := range r.pool.Snapshot(r.now) {
		n += v.Inflight
	}
	return n
}

func ids(ts []*Ticket) []string {
	names := make([]string, len(ts))
	for i, t := range ts {
		names[i] = t.ID
	}
	slices.Sort(names)
	return names
}
