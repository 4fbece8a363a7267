package sim

import (
	"math"
	"slices"
	"time"

	"tierway/routing"
)

// Peer is a policy of another router, rebuilt from its published formula, or a reference for all policies.
// docs/simulate.md has the formulas.
type Peer struct {
	Name string
	Doc  string // one sentence
	// New returns the policy for Config.NewPolicy.
	New func(w *Simulation) (routing.Policy, error)
}

// Peers returns the peers. The last one is the reference.
func Peers() []Peer {
	return []Peer{
		{"least_inflight", "Fewest requests in flight.",
			peer("least_inflight", knowledge{}, func(c *candidate) float64 { return float64(c.engine.inside) })},
		{"kubeai_chwbl", "KubeAI: consistent hash of the first user message with bounded loads, 1.25 times the mean.",
			newKubeAI},
		{"loadaware", "production-stack: cached share of the prompt less the relative excess of requests.",
			peer("loadaware", knowledge{index: true}, loadaware)},
		{"lmetric", "LMetric: uncached tokens times batch size.",
			peer("lmetric", knowledge{index: true}, func(c *candidate) float64 {
				return float64(c.engine.pending+c.uncached) * float64(c.engine.inside+1)
			})},
		{"dynamo", "Dynamo: 8 times the uncached blocks plus the blocks of the requests in flight.",
			peer("dynamo", knowledge{index: true, active: true}, dynamo)},
		{"llm_d", "llm-d with precise prefix cache: weights 3:2:2 for prefix, queue and cache usage.",
			peer("llm_d", knowledge{index: true}, llmD)},
		{"e", "Earlier cost of this project: seconds with a capped price of uncached work, known rates.",
			peer("e", knowledge{index: true, untilFirstToken: true}, costE)},
		{"perfect", "The least time to first token, computed from the real caches, rates, lengths and queues.",
			peer("perfect", knowledge{queues: true}, func(c *candidate) float64 {
				return float64(c.engine.scheduler.timeToFirst(&c.simulation.current.record.Request))
			})},
	}
}

// reasonPeer is the reason of all picks of peers.
const reasonPeer routing.Reason = "peer"

// knowledge selects the state that a peer needs besides the load.
type knowledge struct {
	index  bool // the caches' content, and prompts that were routed recently
	active bool // engineCounts.active
	queues bool // engineState.perfect
	// A routed prompt counts as cached until its first token, instead of for two seconds.
	untilFirstToken bool
}

// routedFor is the time for which a routed prompt counts as cached, without untilFirstToken.
const routedFor = 2 * time.Second

// candidate is one engine in a peer's choice.
type candidate struct {
	simulation *Simulation
	engine     *engineState
	matched    int   // leading blocks of the prompt in the engine's cache
	blocks     int   // blocks of the prompt
	uncached   int64 // tokens to prefill
	all        *fleet
}

// fleet has sums and extremes over the eligible engines of one pick.
type fleet struct {
	engines               float64
	inflight              float64
	unanswered            float64
	leastQueue, mostQueue int
}

// scoredPeer is a Peer that picks the engine of the least cost; ties are broken at random.
type scoredPeer struct {
	name       string
	simulation *Simulation
	cost       func(c *candidate) float64
}

func peer(name string, k knowledge, cost func(c *candidate) float64) func(w *Simulation) (routing.Policy, error) {
	return func(w *Simulation) (routing.Policy, error) {
		w.knowledge = k
		if k.index {
			if err := w.openIndex(); err != nil {
				return nil, err
			}
		}
		return &scoredPeer{name, w, cost}, nil
	}
}

// Name returns the peer's name.
func (p *scoredPeer) Name() string { return p.name }

// Pick returns the view of the least cost.
func (p *scoredPeer) Pick(r *routing.Request, ws []routing.View) (int, routing.Reason) {
	f := p.simulation.current
	all := p.simulation.fleet(ws)
	best, least, ties := -1, math.Inf(1), 0
	for i := range ws {
		e := p.simulation.engines[ws[i].Index]
		c := candidate{simulation: p.simulation, engine: e, blocks: len(f.record.Request.promptNumbers()), all: &all}
		c.matched, c.uncached = f.match(e)
		cost := p.cost(&c)
		switch {
		case cost < least:
			best, least, ties = i, cost, 1
		case cost == least:
			ties++
			if routing.Draw(r.Rand+uint64(ties))%uint64(ties) == 0 {
				best = i
			}
		}
	}
	return best, reasonPeer
}

func (w *Simulation) fleet(ws []routing.View) fleet {
	all := fleet{engines: float64(len(ws)), leastQueue: math.MaxInt}
	for i := range ws {
		e := w.engines[ws[i].Index]
		all.inflight += float64(e.inside)
		all.unanswered += float64(e.unanswered)
		queue := e.scrape(w.now).queue
		all.leastQueue, all.mostQueue = min(all.leastQueue, queue), max(all.mostQueue, queue)
	}
	return all
}

// loadaware is production-stack's cost with β = 1.
func loadaware(c *candidate) float64 {
	mean := c.all.inflight / c.all.engines
	return (float64(c.engine.inside)-mean)/max(1, mean) - float64(c.matched)/float64(max(1, c.blocks))
}

// dynamo is Dynamo's cost in blocks with prefill_load_scale 8.
func dynamo(c *candidate) float64 {
	const scale = 8
	prefill := float64(c.engine.pending+c.uncached) / float64(c.simulation.config.BlockTokens)
	numbers := c.simulation.current.record.Request.promptNumbers()
	return scale*prefill + float64(c.engine.activeBlocks+c.engine.newActive(numbers))
}

// llmD is llm-d's score with the sign of a cost.
func llmD(c *candidate) float64 {
	const prefix, queue, kv = 3, 2, 2
	l := c.engine.scrape(c.simulation.now)
	short := 1.0
	if c.all.mostQueue > c.all.leastQueue {
		short = float64(c.all.mostQueue-l.queue) / float64(c.all.mostQueue-c.all.leastQueue)
	}
	used := min(1, float64(l.tokens)/float64(max(1, c.engine.CacheTokens)))
	return -(prefix*float64(c.matched)/float64(max(1, c.blocks)) + queue*short + kv*(1-used))
}

// costE is an earlier cost of this project, in seconds, with known rates.
func costE(c *candidate) float64 {
	const (
		fleetRate   = 10_000
		maxRequests = 4
		perInflight = 0.5 * 2 * 200 * 0.0004
	)
	price := min(maxRequests, 1+2*c.all.unanswered/c.all.engines)
	rate := c.engine.Rate * max(slowest, 1-slowdown*float64(c.engine.inside))
	return float64(c.engine.pending+c.uncached)/rate + price*float64(c.uncached)/fleetRate +
		perInflight*float64(c.engine.inside)
}

// kubeAI is KubeAI's policy: consistent hashing with bounded loads (Mirrokni et al.).
type kubeAI struct {
	simulation *Simulation
	ring       []ringPoint
}

type ringPoint struct {
	at     uint64
	engine int
}

const (
	kubeAIPoints = 256  // of each engine
	kubeAIFactor = 1.25 // of the mean load
)

func newKubeAI(w *Simulation) (routing.Policy, error) {
	p := &kubeAI{simulation: w}
	for i := range w.engines {
		for k := range kubeAIPoints {
			p.ring = append(p.ring, ringPoint{routing.Draw(uint64(i)<<32 + uint64(k) + 1), i})
		}
	}
	slices.SortFunc(p.ring, func(a, b ringPoint) int {
		if a.at < b.at {
			return -1
		}
		return 1
	})
	return p, nil
}

// Name returns the peer's name.
func (p *kubeAI) Name() string { return "kubeai_chwbl" }

// Pick returns the first engine clockwise from the key that is within its bound, or the first one.
func (p *kubeAI) Pick(r *routing.Request, ws []routing.View) (int, routing.Reason) {
	total := 1.0
	for i := range ws {
		total += float64(ws[i].Inflight)
	}
	bound := math.Ceil(kubeAIFactor * total / float64(len(ws)))
	at, _ := slices.BinarySearchFunc(p.ring, routing.Draw(r.Prefix), func(a ringPoint, key uint64) int {
		if a.at < key {
			return -1
		}
		return 1
	})
	home := -1
	for k := range p.ring {
		engine := p.ring[(at+k)%len(p.ring)].engine
		i := slices.IndexFunc(ws, func(v routing.View) bool { return v.Index == engine })
		if i < 0 {
			continue
		}
		if float64(ws[i].Inflight) < bound {
			return i, reasonPeer
		}
		if home < 0 {
			home = i
		}
	}
	return home, reasonPeer
}
