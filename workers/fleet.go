package workers

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
)

// Options is what a Fleet needs of its maker.
type Options struct {
	// Log gets one line when a worker goes up or down. Nil: nothing is logged.
	Log *slog.Logger
	// OnStatus is called after a worker's first check, and when Up, the load
	// or what is known of the engine has changed; never twice at once for one
	// worker, and never for a worker after the Sync that removed it. It must
	// return soon and must not call Sync or Close. A worker's first check can
	// end before Sync's caller knows of the worker: such a caller reads Status
	// once itself.
	OnStatus func(w *Worker, s Status)
	// Rand spreads the checks; it must be safe for concurrent use. Nil:
	// math/rand/v2.
	Rand func() uint64

	send func(Spec) Sender // newSender, or a test's
}

// Fleet keeps the workers of one gateway over every reload. It is safe for
// concurrent use.
type Fleet struct {
	options Options
	changed chan struct{} // holds one when Run should look at the workers again

	mu      sync.Mutex
	workers []*Worker // in the order of the last Sync; the slice is never written, only replaced
}

// Diff is what a Sync did. The slices are the caller's.
type Diff struct {
	Kept    []*Worker // the same worker as before; weight, bound and models may be new
	Added   []*Worker
	Removed []*Worker // their exchanges under way go on to their end
}

// NewFleet makes a Fleet without workers. Run checks those that Sync adds.
func NewFleet(o Options) *Fleet {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Rand == nil {
		o.Rand = rand.Uint64
	}
	if o.send == nil {
		o.send = newSender
	}
	return &Fleet{options: o, changed: make(chan struct{}, 1)}
}

// Sync makes specs, whose names must be unique, the fleet's workers. A worker
// whose Spec is equal, or differs only in what routing reads, stays the same
// *Worker, with its status and connections; every other one is new, and what
// is not in specs is removed. A new worker counts as up until its first check.
func (f *Fleet) Sync(specs []Spec) Diff {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := make(map[string]*Worker, len(f.workers))
	for _, w := range f.workers {
		before[w.Name()] = w
	}
	var diff Diff
	now := make([]*Worker, 0, len(specs))
	for _, spec := range specs {
		w := before[spec.Name]
		if w != nil && w.Spec().sameWorker(spec) {
			w.adopt(spec)
			delete(before, spec.Name)
			diff.Kept = append(diff.Kept, w)
		} else {
			w = newWorker(spec, f.options.send)
			diff.Added = append(diff.Added, w)
		}
		now = append(now, w)
	}
	for _, w := range f.workers {
		if before[w.Name()] == w {
			w.retire()
			diff.Removed = append(diff.Removed, w)
		}
	}
	f.workers = now
	f.wake()
	return diff
}

// Workers returns the workers in the order of the last Sync. The slice is the
// caller's.
func (f *Fleet) Workers() []*Worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.workers)
}

// Get returns the worker of that name, or nil.
func (f *Fleet) Get(name string) *Worker {
	for _, w := range f.Workers() {
		if w.Name() == name {
			return w
		}
	}
	return nil
}

// Run checks every worker, those of a later Sync too, until ctx ends. It
// returns when the last check has ended. It may run once at a time.
func (f *Fleet) Run(ctx context.Context) {
	var loops sync.WaitGroup
	defer loops.Wait()
	stops := make(map[*Worker]context.CancelFunc)
	for {
		now := f.Workers()
		for w, stop := range stops {
			if !slices.Contains(now, w) {
				stop()
				delete(stops, w)
			}
		}
		for _, w := range now {
			if stops[w] != nil {
				continue
			}
			one, stop := context.WithCancel(ctx)
			stops[w] = stop
			loops.Go(func() {
				defer stop()
				newChecker(w, f.options).run(one)
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
		}
	}
}

// Close removes every worker. Exchanges under way go on to their end.
func (f *Fleet) Close() { f.Sync(nil) }

// wake makes Run look at the workers again.
func (f *Fleet) wake() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}
