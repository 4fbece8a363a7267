// Package routing chooses a worker for a request and books the request on it.
// Choosing and booking are one operation under one short mutex a pool, so that
// a bound is exact however many requests come at once, and a policy is plain
// code that a literal table can test. The package knows no clock, no network
// and no chance: time and randomness come with the request.
package routing

import (
	"sync"
	"time"
)

// Member is one worker of a pool as the configuration has it.
type Member struct {
	ID          string // unique in the pool
	Weight      int    // its share; 0 or less takes no new requests
	Group       int    // priority: a higher group is used only when nobody in the lower ones can be
	MaxInflight int    // requests at once; 0 is no bound
	Gate        Gate   // asked before each request; nil lets all pass
	Ref         any    // what the caller sends with; must be comparable. The pool never looks inside
}

// Gate has a last word on a worker that the pool chose: a circuit breaker. It
// is asked outside the pool's lock and must be safe for concurrent use.
type Gate interface {
	// Allow returns an error when the worker may not be used now, else a
	// function for the verdict on this one request. The pool calls it exactly
	// once, with nil for success.
	Allow() (done func(error), err error)
}

// Status is what is observed of a worker from outside.
type Status struct {
	Up        bool
	Saturated bool    // it should get nothing more until it says otherwise
	Waiting   int     // requests in its own queue
	KVUsage   float64 // share of its KV cache in use, 0 to 1
}

// Worker is one member of a pool with the load booked on it. It stays the same
// object as long as its ID and Ref do, so that it may be compared by pointer.
type Worker struct {
	id  string
	ref any

	// The rest is guarded by the pool's lock.
	index, weight, group, maxInflight int
	gate                              Gate
	status                            Status
	coolUntil                         time.Time
	inflight                          int
	pending, output                   int64
}

// ID returns the member's ID.
func (w *Worker) ID() string { return w.id }

// Ref returns what the member was configured with.
func (w *Worker) Ref() any { return w.ref }

// viewLocked returns the worker as a policy sees it.
func (w *Worker) viewLocked() View {
	return View{
		ID: w.id, Index: w.index, Weight: w.weight, Group: w.group,
		Up: w.status.Up, Saturated: w.status.Saturated,
		Inflight: w.inflight, MaxInflight: w.maxInflight, Full: w.fullLocked(),
		PendingTokens: w.pending, OutputTokens: w.output,
		Waiting: w.status.Waiting, KVUsage: w.status.KVUsage,
	}
}

func (w *Worker) fullLocked() bool { return w.maxInflight > 0 && w.inflight >= w.maxInflight }

// Pool is the workers that share one kind of request, the load booked on them
// and the policy that chooses among them. It is safe for concurrent use and
// lives as long as its configuration names it: a reload goes through Configure.
type Pool struct {
	mu      sync.Mutex
	policy  Policy
	workers []*Worker // in the order of the members
	views   []View    // room for one decision, reused by the next
}

// NewPool makes a pool. Its workers are down until Observe says otherwise.
func NewPool(policy Policy, members []Member) *Pool {
	p := &Pool{}
	p.Configure(policy, members)
	return p
}

// Configure replaces policy and members. A member that keeps its ID and its
// Ref keeps its load, its status and its cooling; one with another Ref is a new
// worker with no load, and leases of the old one are released on the old one. A
// policy that shall keep its memory is passed again. Leases stay valid whatever
// happens to their worker.
func (p *Pool) Configure(policy Policy, members []Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	workers := make([]*Worker, len(members))
	for i, m := range members {
		w := p.findLocked(m.ID, m.Ref)
		if w == nil {
			w = &Worker{id: m.ID, ref: m.Ref}
		}
		w.index, w.weight, w.group, w.maxInflight, w.gate = i, m.Weight, m.Group, m.MaxInflight, m.Gate
		workers[i] = w
	}
	p.policy, p.workers = policy, workers
	p.views = make([]View, 0, len(members))
}

// findLocked returns the worker of that ID and Ref, or nil.
func (p *Pool) findLocked(id string, ref any) *Worker {
	for _, w := range p.workers {
		if w.id == id && w.ref == ref {
			return w
		}
	}
	return nil
}

// Observe records what was seen of the worker with that ID and Ref. What comes
// late about a worker that is gone, or was replaced, is dropped.
func (p *Pool) Observe(id string, ref any, s Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.findLocked(id, ref); w != nil {
		w.status = s
	}
}

// Cool keeps new requests from a worker until then, because it asked for less.
// It never shortens a cooling under way.
func (p *Pool) Cool(w *Worker, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until.After(w.coolUntil) {
		w.coolUntil = until
	}
}

// WorkerView is one worker as metrics, readiness and the admin API show it.
type WorkerView struct {
	ID            string
	Weight, Group int
	Up, Saturated bool
	Inflight      int
	MaxInflight   int // 0 is no bound
	PendingTokens int64
	OutputTokens  int64
	Waiting       int
	KVUsage       float64
	Cooling       time.Duration // how long it gets nothing yet; 0 when it is not cooling
}

// Snapshot returns all members in their order, as they are now.
func (p *Pool) Snapshot(now time.Time) []WorkerView {
	p.mu.Lock()
	defer p.mu.Unlock()
	views := make([]WorkerView, len(p.workers))
	for i, w := range p.workers {
		views[i] = WorkerView{
			ID: w.id, Weight: w.weight, Group: w.group,
			Up: w.status.Up, Saturated: w.status.Saturated,
			Inflight: w.inflight, MaxInflight: w.maxInflight,
			PendingTokens: w.pending, OutputTokens: w.output,
			Waiting: w.status.Waiting, KVUsage: w.status.KVUsage,
			Cooling: max(0, w.coolUntil.Sub(now)),
		}
	}
	return views
}

// Except returns all workers but the one with that Ref. Given to Acquire as
// tried, they leave only that one to be chosen: for a request that must go
// where an earlier one went.
func (p *Pool) Except(ref any) []*Worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	others := make([]*Worker, 0, len(p.workers))
	for _, w := range p.workers {
		if w.ref != ref {
			others = append(others, w)
		}
	}
	return others
}
