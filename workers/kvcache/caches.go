package kvcache

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tierway/routing/kvindex"
	"tierway/workers/kvstream"
	"tierway/workers/zmtp"
)

// DefaultMemory is the default memory of all indexes, in bytes: 29 million tokens in blocks of 16.
// That is the cache of 29 workers with a million tokens each.
const DefaultMemory = 512 << 20

// retryAfter is the pause after a panic of a reader, and between attempts to listen.
const retryAfter = 5 * time.Second

// Options configures a Caches.
type Options struct {
	// Log receives one line for each change of a stream. Nil: no log.
	Log *slog.Logger
	// Listen is the address, host:port, for publishers that connect to the gateway. Empty: none.
	Listen string
	// Network has the endpoints of the engines and the address of Listen.
	Network zmtp.Network
	// Recover runs a step that reads data of engines. It returns the step's error, or an error if the step
	// panics. Nil: a panic ends the process.
	Recover func(work string, step func() error) error
}

// Caches has the cached blocks of all workers of a gateway. It is safe for concurrent use.
type Caches struct {
	options Options
	changed chan struct{}                               // has an element if Run must start streams
	byTopic atomic.Pointer[map[string]*kvstream.Stream] // of publishers that connect to the gateway

	mu      sync.Mutex // guards the rest, and the sources and ranks of all workers
	memory  int
	added   int // number of calls of Add
	workers map[*Worker]bool
}

// New returns a Caches without workers. Run reads the streams of the workers that are added.
func New(o Options) *Caches {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Recover == nil {
		o.Recover = func(_ string, step func() error) error { return step() }
	}
	c := &Caches{options: o, changed: make(chan struct{}, 1), memory: DefaultMemory, workers: map[*Worker]bool{}}
	c.byTopic.Store(&map[string]*kvstream.Stream{})
	return c
}

// NewPool returns a pool without workers.
func (c *Caches) NewPool() *Pool {
	p := &Pool{caches: c, index: kvindex.New(0)}
	p.entries.Store(new([]entry))
	return p
}

// SetMemory sets the memory of all indexes together, in bytes.
func (c *Caches) SetMemory(bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memory = bytes
	c.divideLocked()
}

// Memory returns an upper bound of the memory that the indexes use now, and their limit, in bytes.
func (c *Caches) Memory() (used, limit int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.workers {
		for _, r := range w.ranks {
			used += r.index.Len() * kvindex.BlockBytes
		}
	}
	return used, c.memory
}

// divideLocked sets the budgets of the indexes: each stream has the same share of the memory.
func (c *Caches) divideLocked() {
	streams, byPool := 0, map[*Pool]int{}
	for w := range c.workers {
		streams += len(w.ranks)
		byPool[w.pool] += len(w.ranks)
	}
	for p, n := range byPool {
		p.index.SetBudget(c.memory / max(1, streams) * n)
	}
}

// Run reads the streams of all workers until ctx ends, and returns when the last reader has ended.
// Calls must not overlap.
func (c *Caches) Run(ctx context.Context) {
	var readers sync.WaitGroup
	defer readers.Wait()
	if c.options.Listen != "" {
		readers.Go(func() { c.listen(ctx) })
	}
	defer c.stop()
	for {
		c.start(ctx, &readers)
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
		}
	}
}

func (c *Caches) start(ctx context.Context, readers *sync.WaitGroup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.workers {
		for _, r := range w.ranks {
			if r.cancel != nil || r.source.Address == "" {
				continue
			}
			var own context.Context
			own, r.cancel = context.WithCancel(ctx)
			readers.Go(func() { c.follow(own, r) })
		}
	}
}

// stop marks all streams as ended, so that a later Run starts them again.
func (c *Caches) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.workers {
		for _, r := range w.ranks {
			if r.cancel != nil {
				r.cancel()
				r.cancel = nil
			}
			r.live.Store(false)
		}
	}
}

// follow reads one stream until ctx ends.
func (c *Caches) follow(ctx context.Context, r *rank) {
	for ctx.Err() == nil {
		err := c.options.Recover("reading the KV events of the worker "+r.worker.name, func() error {
			r.stream.Follow(ctx, r.source.Address)
			return nil
		})
		if err != nil {
			r.live.Store(false)
			pause(ctx)
		}
	}
}

// listen accepts publishers until ctx ends.
func (c *Caches) listen(ctx context.Context) {
	address, failed := "tcp://"+c.options.Listen, false
	for ctx.Err() == nil {
		err := c.options.Recover("accepting publishers of KV events", func() error {
			l, err := c.options.Network.Listen(ctx, address)
			if err != nil {
				return err
			}
			c.options.Log.Info("listening for publishers of KV events", "address", l.Addr().String())
			failed = false
			return kvstream.Serve(ctx, l, func(topic []byte) *kvstream.Stream { return (*c.byTopic.Load())[string(topic)] })
		})
		if err != nil && ctx.Err() == nil {
			if !failed {
				c.options.Log.Error("the address for publishers of KV events cannot be opened; it is tried again",
					"address", c.options.Listen, "cause", err.Error())
			}
			failed = true
			pause(ctx)
		}
	}
}

// pause waits before a reader is started again.
func pause(ctx context.Context) {
	t := time.NewTimer(retryAfter)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// publishLocked applies a change of a worker's ranks to the entries of its pool, the topics and the memory
// of the indexes. It makes Run start the new streams.
func (c *Caches) publishLocked(p *Pool) {
	var entries []entry
	topics := map[string]*kvstream.Stream{}
	for w := range c.workers {
		if w.pool == p && len(w.ranks) > 0 {
			entries = append(entries, entry{worker: w, ranks: slices.Clone(w.ranks)})
		}
		for _, r := range w.ranks {
			if r.source.Address == "" {
				topics[r.source.Topic] = r.stream
			}
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return a.worker.number - b.worker.number })
	p.entries.Store(&entries)
	c.byTopic.Store(&topics)
	c.divideLocked()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}
