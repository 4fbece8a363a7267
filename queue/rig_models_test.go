package queue

import (
	"errors"
	"testing"

	"tierway/routing"
)

// configure gives the pool that policy and those members, all of them up.
func (r *rig) configure(policy string, ms ...routing.Member) {
	r.t.Helper()
	p, err := routing.New(routing.Config{Name: policy})
	if err != nil {
		r.t.Fatal(err)
	}
	r.pool.Configure(p, ms)
	for _, m := range ms {
		r.pool.Observe(m.ID, m.Ref, routing.Status{Up: true})
	}
}

// newModelRig returns a pool of workers with one slot and one model each: worker 0
// serves model 1.
func newModelRig(t testing.TB, c Config, workers int) *rig {
	t.Helper()
	r := newRig(t, c, workers, 1)
	ms := members(workers, 1)
	for i := range ms {
		ms[i].Models = []uint64{uint64(i + 1)}
	}
	r.configure("least_load", ms...)
	return r
}

// of returns a tenant's request for a model.
func (r *rig) of(model uint64, class int, tenant string, tokens int64) *Ticket {
	tk := r.ticket(class, tenant, tokens)
	tk.Request.Model = model
	return tk
}

// mustGo enters a ticket that must be dispatched at once.
func (r *rig) mustGo(tk *Ticket) *Ticket {
	r.t.Helper()
	if err := r.enter(tk); err != nil {
		r.t.Fatalf("ticket %s: %v, want it to go at once", tk.ID, err)
	}
	return tk
}

// underWay returns the oldest request in flight for a model; model 0 is any.
func (r *rig) underWay(model uint64) *Ticket {
	var first *Ticket
	for tk := range r.held {
		if (model == 0 || tk.Request.Model == model) && (first == nil || tk.seq < first.seq) {
			first = tk
		}
	}
	return first
}

// nextOf ends the oldest request in flight for a model and returns the request that gets its
// slot.
func (r *rig) nextOf(model uint64) *Ticket {
	r.t.Helper()
	granted := r.end(r.underWay(model))
	if len(granted) != 1 {
		r.t.Fatalf("%d requests for model %d were granted one free slot, want 1", len(granted), model)
	}
	return granted[0]
}

// fail ends an attempt of a request that is to be retried.
func (r *rig) fail(tk *Ticket) {
	r.t.Helper()
	lease := r.held[tk]
	delete(r.held, tk)
	lease.Release(routing.Result{At: r.now, Err: errors.New("the worker broke off")})
}

// tally is the sum of all counters of a queue.
type tally struct {
	waiting int
	bytes   int64
	counts  [Classes]ClassView
}

func (r *rig) tally() (all tally) {
	q := r.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	all.waiting, all.bytes = q.Waiting(), q.bytes
	for i := range q.classes {
		all.counts[i] = q.classes[i].counts
	}
	return all
}

// chat returns a turn of a chat with that number of blocks of 256 tokens.
func (r *rig) chat(blocks int) *Ticket {
	tk := r.ticket(0, "a", int64(blocks)*256)
	for i := range blocks {
		tk.Request.Blocks = append(tk.Request.Blocks, routing.Block{Hash: uint64(1000 + i), End: int64(i+1) * 1024})
	}
	tk.Request.Prefix = 1000
	return tk
}
