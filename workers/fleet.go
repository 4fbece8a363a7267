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
	// Via is added to the Via header of every request to a worker, so that a gateway
	// recognises its own; empty: nothing is.
	Via string
	// Recover runs a step that reads what an engine sent. It returns the step's
	// error, and an error instead of a panic. Nil: a panic ends the process.
	Recover func(work string, step func() error) error

	send func(Spec) Sender // newSender, or a test's
}

// Fleet keeps the workers of one gateway over every reload. It is safe for
// concurrent use.
type Fleet struct {
	options Options
	via     []string      // of Options.Via; never written
	changed chan struct{} // holds one when Run should look at the workers again

	mu      sync.Mutex
	workers []*Worker // in the order of the last Sync; the slice is never written, only replaced
}

// NewFleet makes a Fleet without workers. Run checks those that Sync adds.
func NewFleet(o Options) *Fleet {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Rand == nil {
		o.Rand = rand.Uint64
	}
	if o.Recover == nil {
		o.Recover = func(_ string, step func() error) error { return step() }
	}
	if o.send == nil {
		o.send = func(s Spec) Sender { return newSender(s, o.Log) }
	}
	f := &Fleet{options: o, changed: make(chan struct{}, 1)}
	if o.Via != "" {
		f.via = []string{o.Via}
	}
	return f
}

// Sync makes specs, whose names must be unique, the fleet's workers. A worker of
// the same name, pool, URL, engine and model stays the same *Worker, with its
// status; every other one is new, and what is not in specs is removed. A new
// worker counts as up until its first check. A worker whose key or health settings
// changed is checked at once: one that is up stays up until DownAfter checks have
// failed, one that is down is up again after one good check. Exchanges of a removed
// worker go on to their end.
func (f *Fleet) Sync(specs []Spec) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := make(map[string]*Worker, len(f.workers))
	for _, w := range f.workers {
		before[w.Name()] = w
	}
	now := make([]*Worker, 0, len(specs))
	for _, spec := range specs {
		w := before[spec.Name]
		if w != nil && w.Spec().SameWorker(spec) {
			w.adopt(spec, f.options.send)
			delete(before, spec.Name)
		} else {
			w = newWorker(spec, f.options.send)
			w.via = f.via
		}
		now = append(now, w)
	}
	for _, w := range before {
		w.retire()
	}
	f.workers = now
	select {
	case f.changed <- struct{}{}:
	default:
	}
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

// Run checks every worker, those of a later Sync too, until ctx ends. A server that
// backs several workers is checked once for all of them. It returns when the last
// check has ended. It may run once at a time.
func (f *Fleet) Run(ctx context.Context) {
	var loops sync.WaitGroup
	defer loops.Wait()
	running := map[*Worker]*checking{} // what checks each worker
	for {
		checked := map[*Worker]*checking{}
		for _, c := range byServer(f.Workers()) {
			before := covering(running, c)
			if len(before) == 1 && before[0].same(c) {
				c = before[0]
			} else {
				f.start(ctx, &loops, c, before)
			}
			for _, w := range c.workers {
				checked[w] = c
			}
		}
		for w, c := range running {
			if checked[w] != c {
				c.stop()
			}
		}
		running = checked
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
		}
	}
}

// server is what one check covers: a URL, by the same key and health settings.
type server struct {
	url, key string
	health   Health
}

// checking is the goroutine that checks one server. The first of its workers is the
// one that is asked.
type checking struct {
	server  server
	workers []*Worker
	stop    context.CancelFunc
	ended   chan struct{}
}

// byServer returns a checking of each server, none of which has begun.
func byServer(workers []*Worker) (all []*checking) {
	at := map[server]*checking{}
	for _, w := range workers {
		spec := w.Spec()
		url, err := Canonical(spec.URL)
		if err != nil {
			url = spec.Name // alone: its Sender says what is wrong
		}
		s := server{url, spec.Key, spec.health()}
		if at[s] == nil {
			at[s] = &checking{server: s, ended: make(chan struct{})}
			all = append(all, at[s])
		}
		at[s].workers = append(at[s].workers, w)
	}
	return all
}

func (c *checking) same(o *checking) bool {
	return c.server == o.server && slices.Equal(c.workers, o.workers)
}

// covering returns the checkings that cover a worker of c.
func covering(running map[*Worker]*checking, c *checking) (before []*checking) {
	for _, w := range c.workers {
		if b := running[w]; b != nil && !slices.Contains(before, b) {
			before = append(before, b)
		}
	}
	return before
}

func (f *Fleet) start(ctx context.Context, loops *sync.WaitGroup, c *checking, before []*checking) {
	for _, b := range before {
		b.stop()
	}
	one, stop := context.WithCancel(ctx)
	c.stop = stop
	loops.Go(func() {
		defer close(c.ended)
		defer stop()
		for _, b := range before {
			<-b.ended // of two checkers at once the first could report last
		}
		newChecker(c.workers, f.options).run(one)
	})
}

// Close removes every worker. Exchanges under way go on to their end.
func (f *Fleet) Close() { f.Sync(nil) }
