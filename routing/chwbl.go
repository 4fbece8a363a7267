package routing

import (
	"math"
	"slices"
	"sort"
	"time"

	"tierway/routing/prefix"
)

const (
	noKeyModelHash = "model_hash"
	depthFixed     = "fixed"

	// defaultEpsilon allows a quarter over the mean, with which most keys stay at home.
	defaultEpsilon = 0.25
	// defaultSlack is two standard deviations of a Poisson count. Without it a third of the
	// requests left their home at a mean of one request per worker.
	defaultSlack = 2
	// tokenSlack is the least number of tokens that a worker may have over its share: one long
	// prompt.
	tokenSlack = 16_000
	// squaresMemory is the number of requests over which the typical size is learned. maxLearnedTokens bounds
	// the tokens of one request: the longest contexts in use.
	squaresMemory, maxLearnedTokens = 64, 1 << 17
)

// chwbl is consistent hashing with bounded loads. Requests whose prompts share a prefix go to the
// worker to which the prefix hashes, its home, while the home is within its bounds. Otherwise they
// go to the next worker clockwise on the ring that is within its bounds. Overflow of one prefix
// therefore goes to the same few workers each time and finds its cache there.
//
// With a the mean of requests in flight and w̄ the mean weight of the eligible workers, this request
// included, worker i of weight w_i is within its bounds if
//
//	L_i + 1 ≤ ceil((c·a + slack·√a) · w_i/w̄)
//	T_i + t_i ≤ c · (ΣT + t_i)/n · w_i/w̄ + max(16,000, slack·√(a·E[t²]))
//
// where t_i is the request's uncached prefill and expected output. The first line is the bound of
// Mirrokni, Thorup and Zadimoghaddam with room for chance. The second one is the same for tokens,
// whose sum over a Poisson number of requests has the variance a·E[t²].
type chwbl struct {
	c, slack  float64
	tokens    float64 // least slack of the token bound; 0 turns that bound off
	squares   float64 // mean square of the tokens that recent requests brought
	modelHash bool    // a request without a prompt is placed by its model
	ring      *ring
	keys      *prefix.Keys // nil if the first turn is the key
	maxPrefix int64        // characters that a key may cover; 0 is no bound
	terms     *[maxTerms]string
}

// newCHWBL returns the policy of a valid configuration.
func newCHWBL(c Config) *chwbl {
	p := &chwbl{
		c: 1 + defaultEpsilon, slack: defaultSlack, tokens: tokenSlack,
		modelHash: c.NoKey == noKeyModelHash,
		ring:      newRing(defaultVirtualNodes),
		maxPrefix: int64(c.MaxPrefixLength),
		terms:     chwblTerms(),
	}
	if c.Epsilon != nil {
		p.c = 1 + *c.Epsilon
	}
	if c.Slack != nil {
		p.slack = *c.Slack
	}
	if c.VirtualNodes > 0 {
		p.ring.units = c.VirtualNodes
	}
	if c.Depth != depthFixed {
		p.keys = prefix.New()
	}
	return p
}

func (*chwbl) Name() string { return "chwbl" }

// Pick returns the key's home. If the home is over its bound, Pick returns the next worker
// clockwise within its bound, or the home if there is none or if the home is idle. If some
// workers are full, see besideFull.
func (p *chwbl) Pick(r *Request, ws []View) (int, Reason) {
	by, key := p.key(r, len(ws))
	if by == byNothing {
		return -1, ""
	}
	if !p.ring.update(r.Now, ws) {
		return -1, "" // more workers than a ring can hold
	}
	squares := p.squares
	if c := r.recalled(p); c != nil {
		squares = c.Memory
		if p.ring.halved != c.Halved {
			p.ring = p.ring.halvedBy(c.Halved)
			p.ring.update(r.Now, ws)
		}
	}
	b := p.bound(r, ws, squares, -1)
	s, at := p.ring.next(p.ring.first(Mix(key)))
	if r.assessments != nil {
		p.recordAssessments(r, ws, &b, squares, by, key, s, at)
	}
	home := int(s.view)
	if !r.learned {
		p.learn(b.addedTokens(&ws[home]))
	}
	chosen, where := home, saturated
	switch {
	// An idle home is not overloaded by a prompt of any length.
	case ws[home].Inflight == 0 || b.admits(&ws[home]):
		where = atHome
	case p.markFit(ws, b.admits):
		chosen, where = p.clockwise(s, at), overflow
	}
	if other := p.besideFull(r, ws, &b, chosen, s, at); other != chosen {
		chosen = other
		if where == atHome {
			where = overflow
		}
	}
	if r.assessments != nil {
		p.recordRunnerUp(r, ws, squares, chosen)
	}
	return chosen, reasons[by][where]
}

// markFit marks the workers on the ring for which fit is true, and reports whether there are any.
func (p *chwbl) markFit(ws []View, fit func(*View) bool) (any bool) {
	for i := range ws {
		if at, known := p.ring.findSlot(&ws[i]); known {
			s := &p.ring.slots[at]
			s.fit = fit(&ws[i])
			any = any || s.fit
		}
	}
	return any
}

// clockwise returns the view of the first marked worker from s on. at is the ring position after s.
func (p *chwbl) clockwise(s *slot, at int) int {
	for !s.fit {
		s, at = p.ring.next(at)
	}
	return int(s.view)
}

// The facts by which a request can be placed.
const (
	byNothing = iota
	byPrefix
	byModel
)

// The places of a request relative to its key's home.
const (
	atHome    = iota
	overflow  // the home is over its bound
	saturated // all are over their bounds: the home, unless it is full
)

var reasons = [...][3]Reason{
	byPrefix: {atHome: ReasonPrefixHome, overflow: ReasonPrefixOverflow, saturated: ReasonPrefixSaturated},
	byModel:  {atHome: ReasonModelHome, overflow: ReasonModelOverflow, saturated: ReasonModelSaturated},
}

// key returns the key by which the request is placed, and the fact behind it.
func (p *chwbl) key(r *Request, workers int) (by int, key uint64) {
	if c := r.recalled(p); c != nil {
		return max(byNothing, slices.Index(keysOf[:], c.KeyOf)), uint64(c.Key)
	}
	switch {
	case len(r.Blocks) > 0 && p.keys != nil:
		within := r.Blocks[:p.blocksInReach(r.Blocks)]
		if r.learned {
			return byPrefix, p.keys.Find(within)
		}
		return byPrefix, p.keys.Key(r.Now, within, workers)
	case r.Prefix != 0:
		return byPrefix, p.firstTurn(r)
	case p.modelHash && r.Model != 0:
		return byModel, r.Model
	}
	return byNothing, 0
}

// blocksInReach returns how many blocks a key may cover: those that end within max_prefix_length, and at
// least the first one.
func (p *chwbl) blocksInReach(blocks []Block) int {
	if p.maxPrefix == 0 {
		return len(blocks)
	}
	return max(1, sort.Search(len(blocks), func(i int) bool { return blocks[i].End > p.maxPrefix }))
}

// firstTurn returns the hash of the prompt's first turn if it ends within max_prefix_length,
// otherwise the hash of the last block that does. A chat that grows over the length keeps its key.
func (p *chwbl) firstTurn(r *Request) uint64 {
	if p.maxPrefix == 0 || len(r.Blocks) == 0 {
		return r.Prefix
	}
	within := r.Blocks[:p.blocksInReach(r.Blocks)]
	if slices.ContainsFunc(within, func(b Block) bool { return b.Hash == r.Prefix }) {
		return r.Prefix
	}
	return within[len(within)-1].Hash
}

// learnKeys learns the keys from a request of another gateway. With max_prefix_length it does not, because the
// lengths of that request's blocks are unknown.
func (p *chwbl) learnKeys(now time.Time, chain []Block, workers int) {
	if p.keys != nil && p.maxPrefix == 0 {
		p.keys.Key(now, chain, workers)
	}
}

// Depth returns the current length of the keys, or zero if they are not adaptive. It is safe for
// concurrent use.
func (p *chwbl) Depth() prefix.Depth {
	if p.keys == nil {
		return prefix.Depth{}
	}
	return p.keys.Depth()
}

// loadBound is the bound on the workers' loads at one pick.
type loadBound struct {
	requests    float64 // of a worker of mean weight, before rounding up
	mean        float64 // mean weight
	share       float64 // c/n: of the pool's tokens, for a worker of mean weight
	tokens      float64 // booked on all workers
	slack       float64 // tokens over the share; 0: no bound on tokens
	prompt, out float64 // tokens that the request brings
}

// bound returns the bound at a pick among ws without the one at that index (-1: among all).
func (p *chwbl) bound(r *Request, ws []View, squares float64, without int) loadBound {
	inflight, weight, tokens, n := 1.0, 0.0, 0.0, 0.0
	for i := range ws {
		if i == without {
			continue
		}
		v := &ws[i]
		n++
		inflight += float64(v.Inflight)
		weight += v.weight()
		// Floats, because the sum over a pool may overflow an integer.
		tokens += float64(v.PendingTokens) + float64(v.OutputTokens)
	}
	mean := inflight / n
	return loadBound{
		requests: p.c*mean + p.slack*math.Sqrt(mean),
		mean:     weight / n,
		share:    p.c / n,
		tokens:   tokens, slack: p.tokenRoom(mean, squares),
		prompt: float64(booked(r.PromptTokens)), out: float64(booked(r.OutputTokens)),
	}
}

// tokenRoom returns the tokens that a worker may have over its share.
func (p *chwbl) tokenRoom(mean, squares float64) float64 {
	if p.tokens == 0 {
		return 0
	}
	return max(p.tokens, p.slack*math.Sqrt(mean*squares))
}

// learn adds the tokens that a request brings to its home.
func (p *chwbl) learn(tokens float64) {
	tokens = min(tokens, maxLearnedTokens)
	p.squares += (tokens*tokens - p.squares) / squaresMemory
}

// addedTokens returns the tokens that the request would add to that worker.
func (b *loadBound) addedTokens(v *View) float64 {
	return max(0, b.prompt-float64(max(0, v.Overlap))) + b.out
}

// admits reports whether the request keeps that worker within its bounds.
func (b *loadBound) admits(v *View) bool {
	return float64(v.Inflight)+1 <= b.maxRequests(v) && (b.slack == 0 || b.tokensWith(v) <= b.maxTokens(v))
}

// maxRequests returns the bound on that worker's requests.
func (b *loadBound) maxRequests(v *View) float64 {
	// The small term keeps a whole product from being rounded up by a floating-point error.
	return math.Ceil(b.requests*v.weight()/b.mean - 1e-9)
}

// tokensWith returns the worker's tokens with the request; maxTokens returns their bound.
func (b *loadBound) tokensWith(v *View) float64 {
	return float64(v.PendingTokens) + float64(v.OutputTokens) + b.addedTokens(v)
}

func (b *loadBound) maxTokens(v *View) float64 {
	return b.share*(v.weight()/b.mean)*(b.tokens+b.addedTokens(v)) + b.slack
}
