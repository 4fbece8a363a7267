package sim

import (
	"fmt"
	"time"

	"tierway/queue"
	"tierway/routing"
)

// Admission is the kind of admission between clients and engines.
type Admission int

// The kinds of admission.
const (
	Queued Admission = iota // the gateway's queue
	Direct                  // none: each request goes at once to the worker that the policy picks, regardless of its load
	FIFO                    // one queue for all requests; the first request goes to any worker with a free slot
)

// String returns the admission's name in tables.
func (a Admission) String() string { return [...]string{"queue", "direct", "fifo"}[a] }

// Load is a source of requests.
type Load interface {
	// Start is called once, at the beginning. It plans events with the
	// World's At and After, and calls Submit. The RNG belongs to the load.
	Start(w *Simulation, d *RNG)
}

// Config is a whole simulation.
type Config struct {
	Seed    uint64 // any value, including 0
	Engines []Engine
	Policy  routing.Config
	// NewPolicy, unless nil, makes the policy instead of Policy, with the state of the simulation. It needs
	// Admission Direct and one gateway.
	NewPolicy func(w *Simulation) (routing.Policy, error)
	// UnstreamedShare is the share of the answers that are not streamed.
	UnstreamedShare float64
	// DirectShare is the share of the requests that go past the gateway, to the engines in turn.
	DirectShare float64
	// HideCachedTokens stops the engines' reports of cached tokens.
	HideCachedTokens bool
	// Events gives the policy the content of the engines' caches, 10 ms late, as their events do.
	Events bool
	// Gateways is the number of gateways in front of the engines, to which a load balancer sends the requests
	// at random; 0: 1. Each has its own pool and admission, and its share of the engines' bounds.
	Gateways int
	// ShareEvery is the interval at which each gateway exchanges its load and journal with the others;
	// 0: ShareEvery; negative: they know only their number.
	ShareEvery time.Duration
	// Handover, unless nil, is how engines compute prompts for each other.
	Handover  *Handover
	Admission Admission
	Queue     queue.Config // FIFO uses only MaxWait
	Loads     []Load       // each gets its own RNG, by its index
	// Tokens of a block in the engines' caches, which the chains of all loads must have; 0: BlockTokens.
	BlockTokens int64
	Scrape      time.Duration      // interval at which the engines' metrics are observed; 0: never
	Saturation  routing.Saturation // limits of these metrics that exclude an engine
	Until       time.Duration      // end of the simulation, even with requests in flight; 0: when all requests have ended

	// Choices records the policy's choice for each request.
	Choices bool

	// Observer, unless nil, is called for each dispatched request, at the same moment
	// of virtual time, after the pass that dispatched it.
	Observer func(w *Simulation, granted *Record)
}

// ShareEvery is the default of Config.ShareEvery. With 100 ms, the mean time to first token of three gateways is up to
// a tenth longer than that of one, because other gateways choose the same idle engine in the meantime.
const ShareEvery = 25 * time.Millisecond

// tickEach is the interval of dispatches without an event, as in the server.
const tickEach = 100 * time.Millisecond

// Simulation is a simulation in progress. It belongs to one goroutine, like everything that it
// calls.
type Simulation struct {
	config    Config
	now       time.Duration
	ticked    time.Duration
	events    events
	repeated  int // planned events that other events keep alive
	gateways  []*gateway
	engines   []*engineState
	byID      map[string]*engineState
	numbers   blockNumbers
	direct    int       // requests past the gateway so far
	index     *index    // nil unless a policy or Config.Events needs it
	current   *inflight // the request that the policy decides on; only with Direct
	knowledge knowledge // the parts of the counts that the policy needs
	rng       *RNG      // of the gateways
	clients   *RNG      // of the clients' retry delays
	requests  []*Record
}

// epoch returns the start of virtual time, which is not the zero time.
func epoch() time.Time { return time.Unix(1_800_000_000, 0).UTC() }

// Run runs a simulation. Without Until it returns when no event is left, which the loads must
// ensure. An error names the invalid part of the config.
func Run(c Config) (*Result, error) {
	w, err := newSimulation(c)
	if err != nil {
		return nil, fmt.Errorf("setting up the simulation: %w", err)
	}
	return w.run(), nil
}

// run processes all events.
func (w *Simulation) run() *Result {
	c := &w.config
	for i, l := range c.Loads {
		l.Start(w, Split(c.Seed, uint64(i)))
	}
	if w.config.Scrape > 0 {
		w.repeat(w.config.Scrape, w.scrape)
	}
	w.startExchanges()
	for len(w.events.heap) > 0 && (c.Until == 0 || w.events.heap[0].at <= c.Until) {
		w.tickUntil(w.events.heap[0].at)
		e := w.events.next()
		w.now = e.at
		e.do()
	}
	if c.Until > 0 {
		w.now = c.Until
	}
	return w.result()
}

func newSimulation(c Config) (*Simulation, error) {
	if len(c.Engines) == 0 {
		return nil, fmt.Errorf("there are no engines")
	}
	if c.BlockTokens == 0 {
		c.BlockTokens = BlockTokens
	}
	if c.ShareEvery == 0 {
		c.ShareEvery = ShareEvery
	}
	if err := c.checkHandover(); err != nil {
		return nil, err
	}
	c.Gateways = max(1, c.Gateways)
	const gateway, clients = 1 << 32, 1<<32 + 1 // numbers above those of any load
	w := &Simulation{
		config: c, byID: map[string]*engineState{}, numbers: blockNumbers{},
		rng: Split(c.Seed, gateway), clients: Split(c.Seed, clients),
	}
	for i, e := range c.Engines {
		if e.Name == "" {
			e.Name = fmt.Sprint("e", i)
		}
		if w.byID[e.Name] != nil {
			return nil, fmt.Errorf("two engines are called %q", e.Name)
		}
		r := newEngineState(e.withDefaults(), w, i)
		w.engines, w.byID[e.Name] = append(w.engines, r), r
	}
	for range c.Gateways {
		policy, err := w.newPolicy()
		if err != nil {
			return nil, err
		}
		g := w.newGateway(policy)
		if err := c.Handover.usePolicy(g.pool); err != nil {
			return nil, err
		}
		w.gateways = append(w.gateways, g)
	}
	for _, e := range w.engines {
		w.observe(e, routing.Status{Up: true, CacheTokens: max(0, e.ReportedTokens)})
	}
	return w, nil
}

// newPolicy returns the policy of the config, and opens the index if the config needs it.
func (w *Simulation) newPolicy() (routing.Policy, error) {
	if w.config.Events {
		if err := w.openIndex(); err != nil {
			return nil, err
		}
	}
	if w.config.NewPolicy == nil {
		return routing.New(w.config.Policy)
	}
	if w.config.Admission != Direct {
		return nil, fmt.Errorf("a policy that reads the simulation state needs direct admission, and there is %q",
			w.config.Admission)
	}
	if w.config.Gateways > 1 {
		return nil, fmt.Errorf("a policy that reads the simulation state needs one gateway, and there are %d",
			w.config.Gateways)
	}
	return w.config.NewPolicy(w)
}

// member returns a gateway's configuration of the engine.
func (e *engineState) member(c *Config) routing.Member {
	m := routing.Member{
		ID: e.Name, Ref: e, Weight: e.Weight, Models: e.Models,
		MaxInflight:       (e.MaxInflight + c.Gateways - 1) / c.Gateways,
		MaxTokensInflight: (e.MaxTokensInflight + int64(c.Gateways) - 1) / int64(c.Gateways),
	}
	if c.Handover != nil {
		m.Stages = e.Stages
	}
	if c.Admission == Direct {
		// More than there can be; 0 would let the pool learn a limit.
		m.MaxInflight, m.MaxTokensInflight = 1<<30, 0
	}
	return m
}

// Now returns the virtual time since the start.
func (w *Simulation) Now() time.Duration { return w.now }

// Pool returns the pool of the first gateway.
func (w *Simulation) Pool() *routing.Pool { return w.gateways[0].pool }

// Queue returns the queue of the first gateway; nil with another admission.
func (w *Simulation) Queue() *queue.Queue {
	if h, ok := w.gateways[0].admission.(*queueAdmission); ok {
		return h.queue
	}
	return nil
}

// At plans an event for that time, or for now if it has passed.
func (w *Simulation) At(at time.Duration, do func()) { w.events.plan(max(at, w.now), do) }

// After plans an event for now plus d.
func (w *Simulation) After(d time.Duration, do func()) { w.At(w.now+d, do) }

// time returns a moment of virtual time as a time.Time.
func (w *Simulation) time(at time.Duration) time.Time { return epoch().Add(at) }

// repeat calls do now and then at that interval, while there are events besides those of repeat.
func (w *Simulation) repeat(every time.Duration, do func()) {
	do()
	if len(w.events.heap) > w.repeated {
		w.repeated++
		w.After(every, func() {
			w.repeated--
			w.repeat(every, do)
		})
	}
}

// waiting returns the number of requests that wait in the gateways.
func (w *Simulation) waiting() (n int) {
	for _, g := range w.gateways {
		n += g.admission.waiting()
	}
	return n
}

// tickUntil runs all ticks before the next event. While no request waits, a tick has no effect.
func (w *Simulation) tickUntil(next time.Duration) {
	for w.ticked+tickEach < next {
		if w.waiting() == 0 {
			w.ticked = next / tickEach * tickEach
			return
		}
		w.ticked += tickEach
		w.now = w.ticked
		for _, g := range w.gateways {
			g.admission.dispatch()
		}
		if len(w.events.heap) > 0 {
			next = min(next, w.events.heap[0].at)
		}
	}
}

// scrape observes all engines.
func (w *Simulation) scrape() {
	for _, e := range w.engines {
		s := routing.Status{Up: true, Waiting: e.scheduler.waiting(), LoadAt: w.time(w.now),
			CacheTokens: max(0, e.ReportedTokens)}
		if e.CacheTokens > 0 {
			s.KVUsage = min(1, float64(e.residentTokens)/float64(e.CacheTokens))
		}
		w.observe(e, s)
	}
}
