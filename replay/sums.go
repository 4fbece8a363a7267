package replay

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"tierway/decisions"
	"tierway/routing"
)

// sums has the counters of a replay beside its two sides. The sizes of its maps depend on the
// configurations and the kinds of reasons, not on the number of records.
type sums struct {
	Report           // its counters; its lists are built from the maps below
	generations      map[int64]bool
	skipped, reasons map[string]int
	tiers            map[[2]string]*moves
	workers          map[[3]string]*moves // by tier, from and to
	real, predicted  hits
	realised         Part
}

// moves counts requests that the draft places differently.
type moves struct {
	n        int
	examples []string
}

// Limits of the detail in a report.
const (
	exampleCount    = 5    // request ids of each kind of change: enough to look at
	moveCount       = 100  // pairs of workers, those with the most requests
	generationCount = 1000 // configurations; further ones are not distinguished
)

func (s *sums) countRecord(d *decisions.Decision) {
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

func (s *sums) handovers() *Handovers {
	if s.Handovers == nil {
		s.Handovers = &Handovers{}
	}
	return s.Handovers
}

func (s *sums) skip(why string) { s.skipped[why]++ }

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

// countTier counts a request after its tier was decided again; to is empty if the draft refuses
// it.
func (r *Replay) countTier(d *decisions.Decision, to string) {
	r.sums.Decided++
	prompt := d.Usage.Prompt // counted by the engine, or else estimated
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

// countWorker counts a request after its worker was decided again in its recorded tier.
func (s *sums) countWorker(p *pick, to string, reason routing.Reason) {
	s.Redecided++
	if to == p.worker {
		return
	}
	s.ChangedWorker++
	s.reasons[string(reason)]++
	addExample(s.workers, [3]string{p.d.Tier, p.worker, to}, p.d.RequestID)
}

// hits is the cached tokens of the prompts with recorded blocks.
type hits struct{ hit, prompt int64 }

func (h *hits) add(hit, prompt int64) {
	h.hit += hit
	h.prompt += prompt
}

func (p *pick) hasChain() bool { return len(p.residency.chain) > 0 && p.residency.prompt > 0 }

// countHits counts the predicted and the reported cache hits of a prompt with a chain.
func (s *sums) countHits(p *pick) {
	if !p.hasChain() {
		return
	}
	s.predicted.add(p.a.Predicted, max(0, p.a.Choice.PromptTokens))
	if u := usageOf(p.d, p.a); u.Prompt > 0 && !p.d.Estimated {
		s.real.add(u.Cached, u.Prompt)
	}
}

// countRegret counts the loss of the real pick if the record has all candidates. It compares
// the measured time to a stream's first content with the best other candidate's estimate.
func (r *Replay) countRegret(p *pick) {
	if p.a.Choice.Check() != nil || p.prefiller != "" { // its first token is not a matter of its worker's prefill
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
		r.sums.realised.add(isWrong(measured, best))
	}
}

// regret is the loss of picks against the best candidates at the time.
type regret struct {
	n, wrong int
	sum      float64 // ms
	buckets  [regretBuckets]int32
}

// The distribution of regret has buckets of which each is 2 % wider than the
// one before, from 10 µs to a quarter of an hour. A quantile is exact to 2 %, and the
// size does not depend on the number of records.
const (
	regretBuckets = 930
	regretLeast   = 0.01 // ms
	regretStep    = 1.02
	// A pick is wrong if it costs more than wrongBy times the best alternative, and at least
	// wrongByMs milliseconds more: less is not measurable.
	wrongBy, wrongByMs = 1.2, 1.0
)

// costOf returns the estimated time to the first token, in milliseconds, if that candidate is
// chosen: the pending prefill plus the uncached part of the prompt, at its learned rate. The
// last token of a prompt is always computed.
func costOf(v *routing.Candidate, prompt int64) float64 {
	if v.Rate <= 0 {
		return math.Inf(1)
	}
	return float64(v.PendingTokens+max(1, prompt-v.Overlap)) / v.Rate * 1000
}

func isWrong(cost, best float64) bool { return cost > best*wrongBy && cost > best+wrongByMs }

// add adds the choice of a worker. Full candidates are not alternatives.
func (g *regret) add(c *routing.Choice, worker string) {
	chosen := c.CandidateOf(worker)
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
	if isWrong(cost, best) {
		g.wrong++
	}
	at := 0
	if lost := cost - best; lost > regretLeast {
		at = min(regretBuckets-1, 1+int(math.Log(lost/regretLeast)/math.Log(regretStep)))
	}
	g.buckets[at]++
}

// quantile returns the upper end of the bucket that contains the quantile q.
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

// byCount returns the keys of moves by descending number of requests, equal ones by name.
func byCount[K comparable](all map[K]*moves, compare func(a, b K) int) []K {
	return slices.SortedFunc(maps.Keys(all), func(a, b K) int {
		return cmp.Or(cmp.Compare(all[b].n, all[a].n), compare(a, b))
	})
}
