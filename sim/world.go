// Package sim runs the gateway's own queue and pool in virtual time, against
// simulated engines and clients. An hour of traffic takes seconds, and the same
// Config gives the same Result to the last bit, so that two ways of deciding can
// be compared on the same requests.
//
// A simulation is a Config: engines, a policy, a queue's bounds, and loads,
// which are what asks. Run plays it to the end and returns a Record of each
// request.
package sim

import (
	"fmt"
	"time"

	"tierway/queue"
	"tierway/routing"
)

// Admission is what stands between the clients and the engines.
type Admission int

// The kinds of admission.
const (
	Queued Admission = iota // the gateway's queue
	Direct                  // nothing: each request goes at once to the worker that the policy picks, whatever it has
	FIFO                    // one line for all that fits nowhere, whose head goes to whichever worker frees a place
)

// String returns the admission's name in a table.
func (a Admission) String() string { return [...]string{"queue", "direct", "fifo"}[a] }

// Load is what asks.
type Load interface {
	// Start is called once, at the beginning. It plans what is to come with the
	// world's At and After, and asks with Ask. The dice are the load's own.
	Start(w *World, d *RNG)
}

// Config is a whole simulation.
type Config struct {
	Seed       uint64 // 0 is a seed like any other
	Engines    []Engine
	Policy     routing.Config
	Admission  Admission
	Queue      queue.Config       // of FIFO only MaxWait counts
	Loads      []Load             // each gets dice of its own, by its place here
	Scrape     time.Duration      // how often the engines' own queue and memory are observed; 0 is never
	Saturation routing.Saturation // what of it keeps new requests from an engine
	Until      time.Duration      // when the world ends, whatever is under way; 0 is when all that was asked has ended

	// Choices has the choice of each request's worker recorded.
	Choices bool

	// Observer is told of each request when it has got its place, at the same moment
	// of virtual time, after the pass that gave it; nil for nobody.
	Observer func(w *World, granted *Record)
}

// tickEach is how often the queue is looked after without anything having
// happened, as the server does.
const tickEach = 100 * time.Millisecond

// World is a simulation under way. It belongs to one goroutine, like all that
// is called by it.
type World struct {
	config          Config
	now             time.Duration
	ticked          time.Duration
	events          events
	pool            *routing.Pool
	engines         []*engineState
	byID            map[string]*engineState
	admission       admission
	rng             *RNG // of the gateway
	clients         *RNG // of what clients wait before they come again
	dispatchPlanned bool // a pass is planned for this moment
	requests        []*Record
}

// beginning is when virtual time begins: a moment that no code takes for none.
func epoch() time.Time { return time.Unix(1_800_000_000, 0).UTC() }

// Run plays a simulation. Without Until it returns when nothing is left to
// happen, which loads must see to. Its error says what cannot be in the config.
func Run(c Config) (*Result, error) {
	w, err := newWorld(c)
	if err != nil {
		return nil, fmt.Errorf("setting up the simulation: %w", err)
	}
	return w.run(), nil
}

// run plays all events.
func (w *World) run() *Result {
	c := &w.config
	for i, l := range c.Loads {
		l.Start(w, Split(c.Seed, uint64(i)))
	}
	w.scrape()
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

func newWorld(c Config) (*World, error) {
	policy, err := routing.New(c.Policy)
	if err != nil {
		return nil, err
	}
	if len(c.Engines) == 0 {
		return nil, fmt.Errorf("there are no engines")
	}
	const gateway, clients = 1 << 32, 1<<32 + 1 // streams beyond those of any load
	w := &World{config: c, byID: map[string]*engineState{}, rng: Split(c.Seed, gateway), clients: Split(c.Seed, clients)}
	members := make([]routing.Member, len(c.Engines))
	for i, e := range c.Engines {
		if e.Name == "" {
			e.Name = fmt.Sprint("e", i)
		}
		if w.byID[e.Name] != nil {
			return nil, fmt.Errorf("two engines are called %q", e.Name)
		}
		r := newEngineState(e.withDefaults(), w)
		w.engines, w.byID[e.Name] = append(w.engines, r), r
		members[i] = r.member(c.Admission)
	}
	w.pool = routing.NewPool(policy, members)
	w.pool.SetSaturation(c.Saturation)
	w.openAdmission()
	for _, e := range w.engines {
		w.pool.Observe(e.Name, e, routing.Status{Up: true})
	}
	return w, nil
}

// member is the engine as the gateway is configured with it.
func (e *engineState) member(a Admission) routing.Member {
	m := routing.Member{
		ID: e.Name, Ref: e, Weight: e.Weight, Models: e.Models,
		MaxInflight: e.MaxInflight, MaxTokensInflight: e.MaxTokensInflight,
	}
	if a == Direct {
		// More than there can be, and not 0, which would let the pool learn a bound.
		m.MaxInflight, m.MaxTokensInflight = 1<<30, 0
	}
	return m
}

func (w *World) openAdmission() {
	switch w.config.Admission {
	case Direct:
		w.admission = &directAdmission{w}
	case FIFO:
		w.admission = &fifoAdmission{world: w}
	default:
		w.admission = newQueueAdmission(w)
	}
	w.pool.Watch(w.planDispatch)
}

// Now returns how much time has passed since the beginning.
func (w *World) Now() time.Duration { return w.now }

// Pool returns the pool that the requests go through.
func (w *World) Pool() *routing.Pool { return w.pool }

// Queue returns the queue, nil where the admission is none.
func (w *World) Queue() *queue.Queue {
	if h, ok := w.admission.(*queueAdmission); ok {
		return h.queue
	}
	return nil
}

// At plans something for that time, or for now if that is over.
func (w *World) At(at time.Duration, do func()) { w.events.plan(max(at, w.now), do) }

// After plans something for so much later.
func (w *World) After(d time.Duration, do func()) { w.At(w.now+d, do) }

// time returns a moment of virtual time as the gateway's code has it.
func (w *World) time(at time.Duration) time.Time { return epoch().Add(at) }

// changed plans a pass at this moment, after what is being done.
func (w *World) planDispatch() {
	if w.dispatchPlanned || w.admission.waiting() == 0 {
		return
	}
	w.dispatchPlanned = true
	w.After(0, func() {
		w.dispatchPlanned = false
		w.admission.dispatch()
	})
}

// tickTo does all ticks that fall before the next event. While nobody waits
// there is nothing that one could do.
func (w *World) tickUntil(next time.Duration) {
	for w.ticked+tickEach < next {
		if w.admission.waiting() == 0 {
			w.ticked = next / tickEach * tickEach
			return
		}
		w.ticked += tickEach
		w.now = w.ticked
		w.admission.dispatch()
		if len(w.events.heap) > 0 {
			next = min(next, w.events.heap[0].at)
		}
	}
}

// scrape observes all engines, and plans to do so again while requests are on
// their way.
func (w *World) scrape() {
	if w.config.Scrape == 0 {
		return
	}
	for _, e := range w.engines {
		s := routing.Status{Up: true, Waiting: len(e.waiting), LoadAt: w.time(w.now)}
		if e.CacheTokens > 0 {
			s.KVUsage = min(1, float64(e.residentTokens)/float64(e.CacheTokens))
		}
		w.pool.Observe(e.Name, e, s)
	}
	if len(w.events.heap) > 0 {
		w.After(w.config.Scrape, w.scrape)
	}
}
