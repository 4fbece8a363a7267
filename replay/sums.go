package replay

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"tierway/decisions"
	"tierway/routing"
)

// sums is what a replay counts beside its two sides. Its maps are as large as the
// configurations and the kinds of reasons, whatever the records hold.
type sums struct {
	Report           // its counts; its lists are made of the maps below
	generations      map[int64]bool
	skipped, reasons map[string]int
	tiers            map[[2]string]*moves
	workers          map[[3]string]*moves // by tier, from and to
	real, predicted  hits
	realised         Part
}

// moves are requests that go elsewhere.
type moves struct {
	n        int
	examples []string
}

// How much of the detail a report keeps.
const (
	exampleCount    = 5    // request ids of each kind of change: enough to look at
	moveCount       = 100  // pairs of workers, those with the most requests
	generationCount = 1000 // of configurations; beyond, they are not told apart
)

func newSums() sums {
	return sums{generations: map[int64]bool{}, skipped: map[string]int{}, reasons: map[string]int{},
		tiers: map[[2]string]*moves{}, workers: map[[3]string]*moves{}}
}

func (s *sums) read(d *decisions.Decision) {
	s.Records++
	if s.From.IsZero() || d.Time.Before(s.From) {
		s.From = d.Time
	}
	if d.Time.After(s.To) {
		s.To = d.Time
	}
	if len(s.generations) < generationCount {
		s.generations[d.Generation] = true
	}
}

func (s *sums) skip(why string) { s.skipped[why]++ }

// note adds an example to one kind of move.
func addExample[K comparable](all map[K]*moves, k K, id string) {
	m := all[k]
	if m == nil {
		m = &moves{}
		all[k] = m
	}
	if m.n++; len(m.examples) < exampleCount {
		m.examples = append(m.examples, id)
	}
}

// moved counts a request whose tier was decided again; to is empty where the draft
// refuses it.
func (r *Replay) countTier(d *decisions.Decision, to string) {
	r.sums.Decided++
	prompt := d.Usage.Prompt // as counted by the engine, else as estimated
	if prompt <= 0 {
		prompt = d.PromptTokens
	}
	r.now.requests[d.Tier]++
	r.now.prompts[d.Tier] += prompt
	r.draft.requests[to]++
	r.draft.prompts[to] += prompt
	if to != d.Tier {
		addExample(r.sums.tiers, [2]string{d.Tier, to}, d.RequestID)
	}
}

func (p *Part) add(counts bool) {
	p.Of++
	if counts {
		p.N++
	}
}

// worker counts a request whose worker was decided again in the tier that it had.
func (s *sums) countWorker(p *pick, to string, reason routing.Reason) {
	s.Redecided++
	if to == p.worker {
		return
	}
	s.ChangedWorker++
	s.reasons[string(reason)]++
	addExample(s.workers, [3]string{p.d.Tier, p.worker, to}, p.d.RequestID)
}

// hits are what caches have of the prompts that records hold the blocks of, in tokens.
type hits struct{ hit, prompt int64 }

func (h *hits) add(hit, prompt int64) {
	h.hit += hit
	h.prompt += prompt
}

func (p *pick) chained() bool { return len(p.residency.chain) > 0 && p.residency.prompt > 0 }

// measured counts what the gateway believed and the engine said of a prompt with a chain.
func (s *sums) countHits(p *pick) {
	if !p.chained() {
		return
	}
	s.predicted.add(p.a.Predicted, max(0, p.a.Choice.PromptTokens))
	if u := usageOf(p.d, p.a); u.Prompt > 0 && !p.d.Estimated {
		s.real.add(u.Cached, u.Prompt)
	}
}

// regretNow counts what the pick lost, where the record has all candidates. It compares
// the measured time to a stream's first content with the best other candidate's estimate.
func (r *Replay) countRegret(p *pick) {
	if p.a.Choice.Check() != nil {
		return
	}
	r.now.regret.add(p.a.Choice, p.worker)
	measured := p.a.FirstAtMs - p.a.AtMs
	if !p.d.Stream || p.a.FirstAtMs <= 0 || measured <= 0 {
		return
	}
	best := math.Inf(1)
	for i := range p.a.Choice.Candidates {
		if v := &p.a.Choice.Candidates[i]; v.Worker != p.worker && !v.Full {
			best = min(best, costOf(v, p.a.Choice.PromptTokens))
		}
	}
	if !math.IsInf(best, 1) {
		r.sums.realised.add(wrong(measured, best))
	}
}

// regret is what picks lose against the best candidates of their moments.
type regret struct {
	n, wrong int
	sum      float64 // ms
	buckets  [regretBuckets]int32
}

// The distribution of regret is kept in buckets of which each is 2 % wider than the
// one before, from 10 µs to a quarter of an hour, so that a quantile is off by no
// more, and takes no more room, however many records there are.
const (
	regretBuckets = 930
	regretLeast   = 0.01 // ms
	regretStep    = 1.02
	// wrongBy is by how much a pick must cost more than the best alternative to be
	// wrong, as a share, and in milliseconds: less nobody can measure.
	wrongBy, wrongByMs = 1.2, 1.0
)

// costOf is the estimated time to the first token in milliseconds if that candidate
// were chosen: what it has to prefill before, and of the prompt what it has not in
// its cache, at its learned rate. The last token of a prompt is computed in any case.
func costOf(v *routing.Candidate, prompt int64) float64 {
	if v.Rate <= 0 {
		return math.Inf(1)
	}
	return float64(v.PendingTokens+max(1, prompt-v.Overlap)) / v.Rate * 1000
}

func wrong(cost, best float64) bool { return cost > best*wrongBy && cost > best+wrongByMs }

// add takes in the choice of a worker. Candidates that are full are no alternative.
func (g *regret) add(c *routing.Choice, worker string) {
	chosen := c.Of(worker)
	if chosen == nil || chosen.Rate <= 0 {
		return
	}
	cost := costOf(chosen, c.PromptTokens)
	best := cost
	for i := range c.Candidates {
		if v := &c.Candidates[i]; !v.Full {
			best = min(best, costOf(v, c.PromptTokens))
		}
	}
	g.n++
	g.sum += cost - best
	if wrong(cost, best) {
		g.wrong++
	}
	at := 0
	if lost := cost - best; lost > regretLeast {
		at = min(regretBuckets-1, 1+int(math.Log(lost/regretLeast)/math.Log(regretStep)))
	}
	g.buckets[at]++
}

// quantile returns the upper end of the bucket in which a part q of the picks ends.
func (g *regret) quantile(q float64) float64 {
	left := int32(math.Ceil(q * float64(g.n)))
	for i, n := range g.buckets {
		if left -= n; left <= 0 {
			if i == 0 {
				return 0
			}
			return regretLeast * math.Pow(regretStep, float64(i))
		}
	}
	return 0
}

// byCount orders the keys of moves: the most requests first, equals by name.
func byCount[K comparable](all map[K]*moves, compare func(a, b K) int) []K {
	return slices.SortedFunc(maps.Keys(all), func(a, b K) int {
		return cmp.Or(cmp.Compare(all[b].n, all[a].n), compare(a, b))
	})
}
