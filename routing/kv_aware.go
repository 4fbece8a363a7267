package routing

import "math"

// kvAware sends a request to the worker where it costs the least time in total: its own time to
// first token, and the time that it costs other requests. With u uncached tokens, U the backlog of
// the worker and n its requests in flight, all in seconds:
//
//	s = load + u·perToken + overhead                             prefill of this request
//	T = U + s + slotWait                                         its time to first token
//	D = output · step(n)² / step(0)                              its decode, and what that costs others;
//	                                                             step(0) is at least step(n)/4
//	g = u/mean rate + overhead + slowdown·D/2                    work that it adds to the queue
//	a = arrivals / max(0.1, 1 − utilization)                     requests that the work delays
//
// If the engine computes all prompts at once, the backlog U and a are 0 (see workTimes.order).
//
//	first_token = T + T²/(2·(1 + min U))                         a late request should not wait longer
//	queue       = a·g·(U + 2·min U + g/2)                        first tokens of later requests
//	decode      = (D + stall·n·s)/4 · (1 − 0.7·stall)            running answers
//	cache       = 2·workingSet²·(u + mean cached)·perToken       cached tokens that are evicted
//
// The queue term is the derivative of the mean waiting time of a queue with Poisson arrivals. The
// cache term is that of the time to compute evicted conversations again. The weights were chosen
// once, in simulations; docs/simulate.md has the comparison.
type kvAware struct {
	terms *[maxTerms]string
}

const (
	decodeWeight = 0.25 // seconds to first token that one second of answers is worth
	// stalledShare is the part of an answer's time that prefills cause where they stall answers. Another
	// worker would not avoid it.
	stalledShare  = 0.7
	tailWeight    = 0.5
	tailBase      = 1.0 // seconds
	minIdle       = 0.1
	sharedBacklog = 2
	cacheWeight   = 2
	slowdownShare = 0.5
	// leastStep bounds an error of the learned step. If the number of requests in flight hardly varies, its
	// effect on the step is not told apart from the rest.
	leastStep = 0.25
	// Costs that differ by less than both count as equal: no prediction is that exact.
	sameSeconds, sameShare = 0.005, 0.02
)

func newKVAware() *kvAware {
	return &kvAware{terms: &[maxTerms]string{"first_token", "queue", "decode", "cache"}}
}

func (*kvAware) Name() string { return "kv_aware" }

// Plans returns true: a full worker is worth its wait if the cost says so.
func (*kvAware) Plans() bool { return true }

// usesCosts marks a policy that reads View.Cost and the traffic.
func (*kvAware) usesCosts() {}

// Pick returns the worker of the lowest cost. Of workers whose costs differ by less than a prediction is
// worth, it returns the one that has the most of the prompt, then the one with the fewest recent tokens.
// Before any traffic the hash of the prompt's first turn decides, so that gateways agree without
// communication.
func (p *kvAware) Pick(r *Request, ws []View) (int, Reason) {
	b := newCostBasis(r, ws)
	lowest := math.Inf(1)
	for i := range ws {
		terms := b.terms(&ws[i])
		cost := terms[0] + terms[1] + terms[2] + terms[3]
		lowest = min(lowest, cost)
		if r.assessments != nil {
			r.assessments[i] = assessment{score: cost, terms: Terms{names: p.terms, values: terms}}
		}
	}
	key := r.Prefix
	if key == 0 {
		key = r.Rand
	}
	chosen, fewest, rank := -1, 0.0, uint64(0)
	limit := lowest + max(sameSeconds, sameShare*lowest)
	for i := range ws {
		terms := b.terms(&ws[i])
		if terms[0]+terms[1]+terms[2]+terms[3] > limit || chosen >= 0 && ws[i].Overlap < ws[chosen].Overlap {
			continue
		}
		recent, own := ws[i].Cost.Recent/b.share(&ws[i]), Mix(key^hashName(ws[i].ID))
		if chosen < 0 || ws[i].Overlap > ws[chosen].Overlap || recent < fewest || recent == fewest && own > rank {
			chosen, fewest, rank = i, recent, own
		}
	}
	switch v := &ws[chosen]; {
	case v.Overlap == 0:
		return chosen, ReasonLowestCost
	case v.exact:
		return chosen, ReasonKVEvents
	}
	return chosen, ReasonKVHistory
}

// hashName is the FNV-1a hash of a worker's name, which all gateways share.
func hashName(name string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return h
}

// costBasis is what the costs of all workers at one pick share.
type costBasis struct {
	prompt, output float64
	cached         float64 // mean cached tokens of a request
	delayed        float64 // a
	minBacklog     float64
	rate           float64 // mean prefill rate, tokens/s
	weight         float64 // mean weight
}

func newCostBasis(r *Request, ws []View) (b costBasis) {
	n := float64(len(ws))
	for i := range ws {
		b.weight += float64(ws[i].Weight) / n
	}
	for i := range ws {
		f := ws[i].costFacts()
		backlog := f.Backlog / b.share(&ws[i])
		if i == 0 || backlog < b.minBacklog {
			b.minBacklog = backlog
		}
		b.rate += 1 / f.PerToken / n
	}
	b.prompt, b.output = float64(booked(r.PromptTokens)), float64(booked(r.OutputTokens))
	b.cached = r.traffic.Cached
	b.delayed = r.traffic.Queueing * r.traffic.Arrivals / max(minIdle, 1-r.traffic.Utilization)
	return b
}

// share is the weight of a worker relative to the mean.
func (b *costBasis) share(v *View) float64 { return float64(v.Weight) / b.weight }

// terms returns the terms of the cost on one worker, in seconds.
func (b *costBasis) terms(v *View) [maxTerms]float64 {
	f, share := v.costFacts(), b.share(v)
	uncached := b.uncached(v)
	backlog, n := f.Backlog/share, float64(v.Inflight)/share
	prefill := f.prefill(uncached)
	firstToken := backlog + prefill + f.SlotWait
	step := f.Step + f.StepEach*n
	decode := b.output * step * step / max(f.Step, leastStep*step)
	work := uncached/b.rate + f.Overhead*ownSteps(uncached) + slowdownShare*f.Slowdown*decode
	return [maxTerms]float64{
		firstToken + tailWeight*firstToken*firstToken/(tailBase+b.minBacklog),
		b.delayed * work * (backlog + sharedBacklog*b.minBacklog + work/2),
		decodeWeight * (1 - stalledShare*min(1, f.Stall)) * (decode + f.Stall*n*prefill),
		cacheWeight * f.WorkingSet * f.WorkingSet * (uncached + b.cached) * f.PerToken,
	}
}

// prefill returns the seconds of a prefill with that many uncached tokens.
func (f *CostFacts) prefill(uncached float64) float64 {
	seconds := uncached*f.PerToken + f.Overhead
	if f.Backlog > 0 {
		seconds *= ownSteps(uncached)
	}
	return f.Load + seconds
}

// uncached returns the prompt tokens that the worker has to compute.
func (b *costBasis) uncached(v *View) float64 { return max(0, b.prompt-float64(max(0, v.Overlap))) }

// firstToken returns the predicted seconds to first token on a worker.
func (b *costBasis) firstToken(v *View) float64 {
	f := v.costFacts()
	return f.Backlog + f.prefill(b.uncached(v)) + f.SlotWait
}

// costFacts returns the facts of the view. Those that a record of another policy lacks follow from
// the booked tokens and the priors.
func (v *View) costFacts() CostFacts {
	f := v.Cost
	if !(f.PerToken > 0) {
		f.PerToken = 1 / max(v.Rate, rateLimits.floor)
		f.Overhead = firstStep.Seconds()
		f.Backlog = float64(v.PendingTokens) * f.PerToken
	}
	if !(f.Step > 0) {
		f.Step = timeLimits.prior
	}
	return f
}
