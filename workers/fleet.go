package workers

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
)

// Options configures a Fleet.
type Options struct {
	// Log receives one line for each change of a worker's state. Nil: no log.
	Log *slog.Logger
	// OnStatus is called after a worker's first check, after a check that Worker.Suspect has
	// requested, and when Up, the load or the knowledge of the engine has changed. Calls for one
	// worker never overlap, and none follows the Sync that removes the worker. OnStatus must not
	// block and must not call Sync or Close. A first check can end before Sync returns, so the
	// caller of Sync must read Status once itself.
	OnStatus func(w *Worker, s Status)
	// Rand spreads the checks. It must be safe for concurrent use. Nil: math/rand/v2.
	Rand func() uint64
	// Via is added to the Via header of every request to a worker, so that a gateway recognises its
	// own requests. Empty: no header.
	Via string
	// Recover runs a step that reads an engine's answer. work names the step for a log. Recover
	// returns the step's error, or an error if the step panics. Nil: a panic ends the process.
	Recover func(work string, step func() error) error
	// Dial opens the connections to workers, except Unix sockets. Tests set it; addresses of metadata
	// services are then not rejected. Nil: net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	send func(Spec) Sender // newSender, or a replacement in tests
}

// Fleet manages the workers of one gateway over all reloads. It is safe for concurrent use.
type Fleet struct {
	options Options
	via     []string      // from Options.Via; immutable
	changed chan struct{} // holds one if the checks of Run may differ

	mu      sync.Mutex
	workers []*Worker          // in the order of the last Sync; the slice is replaced, never changed
	named   map[string]*Worker // the same by name; replaced, never changed
}

// NewFleet returns a Fleet without workers. Run checks the workers that Sync adds.
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
		o.send = func(s Spec) Sender { return newSender(s, o.Dial, o.Log) }
	}
	f := &Fleet{options: o, changed: make(chan struct{}, 1)}
	if o.Via != "" {
		f.via = []string{o.Via}
	}
	return f
}

// Sync replaces the fleet's workers by specs, whose names must be unique. A worker with the same
// name, pool, URL, rank, engine and model stays the same *Worker, with its status. Every other spec
// becomes a new worker, and workers without a spec are removed.
//
// A new worker counts as up until its first check. If a worker's key, headers or health settings change, it
// is checked at once. If it is up, it stays up until DownAfter checks have failed. If it is down,
// one good check brings it up. Exchanges of a removed worker continue to their end.
func (f *Fleet) Sync(specs []Spec) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, named := make([]*Worker, 0, len(specs)), make(map[string]*Worker, len(specs))
	checksKept := true
	for i := range specs {
		spec := &specs[i]
		w := f.named[spec.Name]
		if w != nil && w.isSame(spec) {
			checksKept = w.applySpec(spec, f.options.send, f.options.Log) && checksKept
		} else {
			w = newWorker(*spec, f.options.send, f.options.Log)
			w.via = f.via
		}
		now, named[spec.Name] = append(now, w), w
	}
	checksKept = checksKept && slices.Equal(now, f.workers)
	for _, w := range f.workers {
		if named[w.name] != w {
			w.retire()
		}
	}
	f.workers, f.named = now, named
	if checksKept {
		return
	}
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// Workers returns the workers in the order of the last Sync. The caller owns the slice.
func (f *Fleet) Workers() []*Worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.workers)
}

// Get returns the worker with the given name, or nil.
func (f *Fleet) Get(name string) *Worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.named[name]
}

// Run checks every worker, including those of a later Sync, until ctx ends. A server that backs
// several workers is checked once for all of them. Run returns when the last check has ended. Calls
// must not overlap.
func (f *Fleet) Run(ctx context.Context) {
	var loops sync.WaitGroup
	defer loops.Wait()
	running := map[*Worker]*checkLoop{} // the checks of each worker
	for {
		checked := map[*Worker]*checkLoop{}
		for _, c := range loopsByServer(f.Workers()) {
			before := loopsCovering(running, c)
			if len(before) == 1 && before[0].server == c.server && slices.Equal(before[0].workers, c.workers) {
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

// server identifies the target of a check: a URL with its key, headers, the header of the key and health settings.
type server struct {
	url, key  string
	keyFile   string
	headers   string // their identity
	tls       TLS
	anthropic bool
	health    Health
}

// checkLoop is the goroutine that checks one server. It sends its requests through the first of the
// server's workers.
type checkLoop struct {
	server  server
	workers []*Worker
	stop    context.CancelFunc
	ended   chan struct{}
}

// loopsByServer returns one loop per server, not yet started.
func loopsByServer(workers []*Worker) (all []*checkLoop) {
	at := map[server]*checkLoop{}
	for _, w := range workers {
		spec := w.Spec()
		url, err := Canonical(spec.URL)
		if err != nil {
			url = spec.Name // its own loop: its Sender returns the cause
		}
		s := server{url: url, key: spec.Key, keyFile: spec.APIKeyFile, headers: spec.Headers.identity(), tls: spec.tls(),
			anthropic: spec.anthropic(), health: spec.health()}
		if s.keyFile != "" {
			s.key = "" // it may change at any time
		}
		if at[s] == nil {
			at[s] = &checkLoop{server: s, ended: make(chan struct{})}
			all = append(all, at[s])
		}
		at[s].workers = append(at[s].workers, w)
	}
	return all
}

// loopsCovering returns the running loops that check a worker of c.
func loopsCovering(running map[*Worker]*checkLoop, c *checkLoop) (before []*checkLoop) {
	for _, w := range c.workers {
		if b := running[w]; b != nil && !slices.Contains(before, b) {
			before = append(before, b)
		}
	}
	return before
}

func (f *Fleet) start(ctx context.Context, loops *sync.WaitGroup, c *checkLoop, before []*checkLoop) {
	for _, b := range before {
		b.stop()
	}
	one, stop := context.WithCancel(ctx)
	c.stop = stop
	loops.Go(func() {
		defer close(c.ended)
		defer stop()
		for _, b := range before {
			<-b.ended // otherwise the older loop could report last
		}
		newChecker(c.workers, f.options).run(one)
	})
}

// Close removes every worker. Exchanges in flight continue to their end.
func (f *Fleet) Close() { f.Sync(nil) }
