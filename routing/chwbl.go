package routing

import (
	"math"
	"slices"
	"sort"

	"tierway/routing/prefix"
)

const (
	noKeyModelHash = "model_hash"
	depthFixed     = "fixed"

	// defaultEpsilon is a quarter over the mean, where most keys stay at home.
	defaultEpsilon = 0.25
	// defaultSlack is two standard deviations of a Poisson count. Without it a third of
	// the requests left home at a mean of one request per worker.
	defaultSlack = 2
	// tokenSlack is the tokens that a worker may have over its share at least: one long
	// prompt.
	tokenSlack = 16_000
	// usualOf is over how many requests the usual size of one is learned, and usualMost
	// what one counts at most: the longest contexts in use.
	usualOf, usualMost = 64, 1 << 17
)

// chwbl is consistent hashing with bounded loads: requests whose prompts begin alike go to
// the worker that the beginning hashes to, its home, while that is within its bounds, else
// to the next worker clockwise on the ring that is. Overflow therefore goes to the same few
// workers each time, and finds its cache there.
//
// A worker i of weight w_i is within its bounds if, with a the mean of requests in flight
// and w̄ of weights over the eligible workers, this request included,
//
//	L_i + 1 ≤ ceil((c·a + slack·√a) · w_i/w̄)
//	T_i + t_i ≤ c · (ΣT + t_i)/n · w_i/w̄ + max(16,000, slack·√(a·E[t²]))
//
// where t_i is the request's uncached prefill and its answer. The first is the bound of
// Mirrokni, Thorup and Zadimoghaddam with room for chance; the second is the same for
// tokens, whose sum over a Poisson number of requests has the variance a·E[t²].
type chwbl struct {
	c, slack  float64
	tokens    float64 // least slack of the token bound; 0 switches that bound off
	squares   float64 // the mean of the squares of what the last requests brought, in tokens
	modelHash bool    // a request without a prompt goes by its model
	ring      *ring
	keys      *prefix.Keys // nil if the first turn is the key
	maxPrefix int64        // characters that a key may stand for; 0 is no bound
	terms     *[maxTerms]string
}

// newCHWBL makes the policy of a checked config.
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

// Pick returns the key's home, the next worker clockwise if that is over its bound, and
// the home again if all are or if it is idle. If some are full, see besideFull.
func (p *chwbl) Pick(r *Request, ws []View) (int, Reason) {
	by, key := p.key(r, len(ws))
	if by == byNothing {
		return leastLoad{}.Pick(r, ws)
	}
	if !p.ring.enter(r.Now, ws) {
		return -1, "" // more workers than a ring can hold
	}
	squares := p.squares
	if c := r.recalled(p); c != nil {
		squares = c.Memory
		if p.ring.halved != c.Halved {
			p.ring = newRing(p.ring.units)
			p.ring.least = c.Halved
			p.ring.enter(r.Now, ws)
		}
	}
	b := p.bound(r, ws, squares, -1)
	s, at := p.ring.next(p.ring.first(Mix(key)))
	if r.assessments != nil {
		p.recordAssessments(r, ws, &b, squares, by, key, s, at)
	}
	home := int(s.view)
	if !r.learned {
		p.learn(b.adds(&ws[home]))
	}
	chosen, where := home, saturated
	switch {
	// An idle home is not overloaded, however long the prompt.
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

// mark marks the workers on the ring that are fit to be chosen, and reports whether any is.
func (p *chwbl) markFit(ws []View, fit func(*View) bool) (any bool) {
	for i := range ws {
		if at, known := p.ring.find(&ws[i]); known {
			s := &p.ring.slots[at]
			s.fit = fit(&ws[i])
			any = any || s.fit
		}
	}
	return any
}

// clockwise returns the view of the first marked worker from s on, whose point is before at.
func (p *chwbl) clockwise(s *slot, at int) int {
	for !s.fit {
		s, at = p.ring.next(at)
	}
	return int(s.view)
}

// The facts that a request can be placed by.
const (
	byNothing = iota
	byPrefix
	byModel
)

// The places of a key's request.
const (
	atHome    = iota
	overflow  // the home is over its bound
	saturated // all are over their bounds: home, unless that is full
)

var reasons = [...][3]Reason{
	byPrefix: {atHome: ReasonPrefixHome, overflow: ReasonPrefixOverflow, saturated: ReasonPrefixSaturated},
	byModel:  {atHome: ReasonModelHome, overflow: ReasonModelOverflow, saturated: ReasonModelSaturated},
}

// key returns what the request is placed by.
func (p *chwbl) key(r *Request, workers int) (by int, key uint64) {
	if c := r.recalled(p); c != nil {
		return max(byNothing, slices.Index(keysOf[:], c.KeyOf)), uint64(c.Key)
	}
	switch {
	case len(r.Blocks) > 0 && p.keys != nil:
		within := r.Blocks[:p.reach(r.Blocks)]
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

// reach returns how many blocks a key may stand for: those that end within
// max_prefix_length, and at least the first one.
func (p *chwbl) reach(blocks []Block) int {
	if p.maxPrefix == 0 {
		return len(blocks)
	}
	return max(1, sort.Search(len(blocks), func(i int) bool { return blocks[i].End > p.maxPrefix }))
}

// firstTurn returns the hash of the prompt's first turn if that is within
// max_prefix_length, else of as many blocks as are. A chat that grows over the length keeps
// its key.
func (p *chwbl) firstTurn(r *Request) uint64 {
	if p.maxPrefix == 0 || len(r.Blocks) == 0 {
		return r.Prefix
	}
	within := r.Blocks[:p.reach(r.Blocks)]
	if slices.ContainsFunc(within, func(b Block) bool { return b.Hash == r.Prefix }) {
		return r.Prefix
	}
	return within[len(within)-1].Hash
}

// Depth returns how deep the keys are now; all zero if they do not adapt. It is safe for
// concurrent use.
func (p *chwbl) Depth() prefix.Depth {
	if p.keys == nil {
		return prefix.Depth{}
	}
	return p.keys.Depth()
}

// bound is the most that a worker may have at one pick.
type loadBound struct {
	requests    float64 // for a worker of mean weight, before rounding up
	mean        float64 // weight
	share       float64 // c/n: of the pool's tokens, for a worker of mean weight
	tokens      float64 // booked on all
	slack       float64 // tokens over the share; 0 is no bound on tokens
	prompt, out float64 // what the request brings
}

// bound returns the bound for the request among ws without the one at that index (-1: all).
func (p *chwbl) bound(r *Request, ws []View, squares float64, without int) loadBound {
	inflight, weight, tokens, n := 1.0, 0.0, 0.0, 0.0
	for i := range ws {
		if i == without {
			continue
		}
		v := &ws[i]
		n++
		inflight += float64(v.Inflight)
		weight += float64(v.Weight)
		// As floats, because the sum over a pool may be more than an integer holds.
		tokens += float64(v.PendingTokens) + float64(v.OutputTokens)
	}
	mean := inflight / n
	return loadBound{
		requests: p.c*mean + p.slack*math.Sqrt(mean),
		mean:     weight / n,
		share:    p.c / n,
		tokens:   tokens, slack: p.room(mean, squares),
		prompt: float64(booked(r.PromptTokens)), out: float64(booked(r.OutputTokens)),
	}
}

// room is the tokens that a worker may have over its share.
func (p *chwbl) room(mean, squares float64) float64 {
	if p.tokens == 0 {
		return 0
	}
	return max(p.tokens, p.slack*math.Sqrt(mean*squares))
}

// learn enters the tokens that a request brings to its home.
func (p *chwbl) learn(tokens float64) {
	tokens = min(tokens, usualMost)
	p.squares += (tokens*tokens - p.squares) / usualOf
}

// adds is the tokens that the request would bring to that worker.
func (b *loadBound) adds(v *View) float64 {
	return max(0, b.prompt-float64(max(0, v.Overlap))) + b.out
}

// admits reports whether the request may go to that worker.
func (b *loadBound) admits(v *View) bool {
	return float64(v.Inflight)+1 <= b.most(v) && (b.slack == 0 || b.brings(v) <= b.mostTokens(v))
}

// most is how many requests that worker may have.
func (b *loadBound) most(v *View) float64 {
	// A product that is a whole number must not be rounded up for the last bit of its float.
	return math.Ceil(b.requests*float64(v.Weight)/b.mean - 1e-9)
}

// brings is the tokens that the worker would have with the request, mostTokens the bound.
func (b *loadBound) brings(v *View) float64 {
	return float64(v.PendingTokens) + float64(v.OutputTokens) + b.adds(v)
}

func (b *loadBound) mostTokens(v *View) float64 {
	return b.share*(float64(v.Weight)/b.mean)*(b.tokens+b.adds(v)) + b.slack
}
