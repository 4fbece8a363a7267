package routing

import "time"

// The defaults of cache_aware are those of vLLM Router.
const (
	defaultCacheThreshold   = 0.5
	defaultBalanceAbs       = 32
	defaultBalanceRel       = 1.1
	defaultMaxTreeSize      = 10_000
	defaultEvictionInterval = 30 * time.Second
	onMissSmallestTree      = "smallest_tree"
	matchTerm, requestsTerm = "match", "requests"
	blocksTerm              = "blocks"
)

// cacheAware sends a request to the worker with most of its prompt, as long as the workers' loads are
// balanced. With L the requests in flight of a worker divided by its relative weight, the loads are
// imbalanced if both hold:
//
//	max L − min L > abs
//	max L > rel · min L
//
// Then the least loaded worker is chosen. Otherwise it is the worker with the largest part of the
// prompt, if that part exceeds the threshold; of equals, the least loaded one. All loads are those of
// eligible workers.
type cacheAware struct {
	threshold, abs, rel float64
	maxTree             int           // blocks of each worker that are stored
	every               time.Duration // interval at which maxTree is applied
	smallestTree        bool          // without a match, the worker with the fewest blocks is chosen
	abstains            bool          // without a match, the fallback chooses
	terms               *[maxTerms]string
}

func newCacheAware(c Config) *cacheAware {
	p := &cacheAware{threshold: defaultCacheThreshold, abs: defaultBalanceAbs, rel: defaultBalanceRel,
		smallestTree: c.OnMiss == onMissSmallestTree, abstains: c.Fallback != "" && c.OnMiss == "",
		terms: &[maxTerms]string{matchTerm, requestsTerm, blocksTerm}}
	if c.CacheThreshold != nil {
		p.threshold = *c.CacheThreshold
	}
	if c.BalanceAbs != nil {
		p.abs = *c.BalanceAbs
	}
	if c.BalanceRel != nil {
		p.rel = *c.BalanceRel
	}
	if p.maxTree = defaultMaxTreeSize; c.MaxTreeSize > 0 {
		p.maxTree = c.MaxTreeSize
	}
	if p.every = defaultEvictionInterval; c.EvictionInterval > 0 {
		p.every = c.EvictionInterval
	}
	return p
}

// limitsTrees is a Policy that limits the model of each worker's cache.
type limitsTrees interface {
	// treeLimit returns the limit in blocks, and the interval at which it is applied.
	treeLimit() (blocks int, every time.Duration)
}

func treeLimit(p Policy) (blocks int, every time.Duration) {
	if l, ok := p.(limitsTrees); ok {
		return l.treeLimit()
	}
	return 0, 0
}

func (p *cacheAware) treeLimit() (blocks int, every time.Duration) { return p.maxTree, p.every }

func (*cacheAware) facts() facts { return usesTrees }

func (*cacheAware) Name() string { return "cache_aware" }

// Pick returns the worker of the longest match, or a less loaded one. Without a match it abstains if the
// policy has a fallback.
func (p *cacheAware) Pick(r *Request, ws []View) (int, Reason) {
	if r.assessments != nil {
		p.recordAssessments(r, ws)
	}
	i, reason := p.choose(r, ws, -1)
	if r.assessments != nil && i >= 0 && len(ws) > 1 {
		r.runnerUp, _ = p.choose(r, ws, i)
	}
	return i, reason
}

// choose returns the choice among ws without the one at that index (-1: among all).
func (p *cacheAware) choose(r *Request, ws []View, without int) (int, Reason) {
	longest, low, high, weight := -1, 0.0, 0.0, meanWeight(ws)
	for i := range ws {
		if i == without {
			continue
		}
		load := requestsByWeight(&ws[i], weight)
		if longest < 0 {
			longest, low, high = i, load, load
		}
		low, high = min(low, load), max(high, load)
		if more := ws[i].Overlap - ws[longest].Overlap; more > 0 || more == 0 && compareLoad(&ws[i], &ws[longest]) < 0 {
			longest = i
		}
	}
	switch {
	case high-low > p.abs && high > p.rel*low:
		return least(r.Rand, ws, without), ReasonImbalanced
	case matched(&ws[longest], r) > p.threshold:
		return longest, ReasonCacheMatch
	case p.abstains:
		return -1, ""
	case p.smallestTree:
		return smallestTree(ws, without), ReasonCacheMiss
	}
	return least(r.Rand, ws, without), ReasonCacheMiss
}

// recordAssessments records the match of each candidate as its score.
func (p *cacheAware) recordAssessments(r *Request, ws []View) {
	weight := meanWeight(ws)
	for i := range ws {
		match := matched(&ws[i], r)
		r.assessments[i] = assessment{score: -match, terms: Terms{names: p.terms,
			values: [maxTerms]float64{match, requestsByWeight(&ws[i], weight), float64(ws[i].CachedBlocks)}}}
	}
}

// matched returns the share of the prompt that the worker has.
func matched(v *View, r *Request) float64 {
	prompt := booked(r.PromptTokens)
	if prompt == 0 {
		return 0
	}
	return min(1, float64(max(0, v.Overlap))/float64(prompt))
}

// requestsByWeight returns the requests in flight of a worker, as if it had the mean weight.
func requestsByWeight(v *View, mean float64) float64 {
	return float64(v.Inflight) * mean / v.weight()
}

// smallestTree returns the worker with the fewest blocks per unit of weight, without the one at that
// index; of equals, the least loaded one.
func smallestTree(ws []View, without int) int {
	best := -1
	for i := range ws {
		if i == without {
			continue
		}
		if best >= 0 {
			own, other := float64(ws[i].CachedBlocks)*ws[best].weight(), float64(ws[best].CachedBlocks)*ws[i].weight()
			if own > other || own == other && compareLoad(&ws[i], &ws[best]) >= 0 {
				continue
			}
		}
		best = i
	}
	return best
}

func meanWeight(ws []View) float64 {
	sum := 0.0
	for i := range ws {
		sum += ws[i].weight()
	}
	return sum / float64(len(ws))
}
