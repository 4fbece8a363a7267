package routing

import "math"

// kvAware sends a request to the worker where it costs the least time in total: its own time to
// first token, and the time that it costs other requests. All times are in seconds. With
//
//	u  uncached tokens                      o  overhead of a prefill on an idle worker
//	U  backlog of the worker                b  overhead of a prefill behind another one
//	n  requests in flight on the worker
//
// where U and n are divided by the worker's relative weight, and minima and means are those of the candidates:
//
//	s = load + u·perToken                                prefill of its own tokens
//	T = max(min(U, o) + o, U + b) + s + slotWait + late  its time to first token
//	D = output · (step + 3·n·stepEach)                   its decode, and the delay of others by it
//	g = u/mean rate + b + slowdown·D/2                   work that it adds to the worker's prefills
//	a = arrivals / max(0.1, 1 − utilization)             requests per second that the work delays
//	w = min(1, min U) · min(1, max(0, stall − 0.2)/0.2)  weight of the rule for overload
//
// If the engine computes all prompts at once, the backlog U and a are 0 (see workTimes.order).
//
//	first_token = (T + 3·T²/(4·(1 + min U))) · ((n+1)/(mean n + 1))^w  a late request should not wait longer
//	queue       = a·g·(U + 2·min U + g/2) · (1 − w)                    first tokens of later requests
//	decode      = D/4 · (1 − w)                                        running answers
//	cache       = 2·workingSet²·(u + mean cached)·perToken             cached tokens that are evicted
//
// The queue term is the derivative of the mean waiting time of a queue with Poisson arrivals. The
// cache term is the derivative of the time to compute evicted conversations again. Engines with chunked
// prefill stall their answers while they compute prompts. If every worker is overloaded, later requests wait
// on all of them. The product of time and requests then sends long prompts to workers with few requests, so
// that short prompts do not wait behind long ones. The weights come from simulations; docs/simulate.md has the
// comparison.
type kvAware struct {
	terms *[maxTerms]string
}

const (
	decodeWeight = 0.25 // seconds to first token that count as much as one second of answers
	// decodeShare counts three delays for each other answer in flight: of this answer by that one, of that one by
	// this answer, and of later answers, because both end later.
	decodeShare   = 3
	tailWeight    = 0.75
	tailBase      = 1.0 // seconds
	minIdle       = 0.1
	sharedBacklog = 2
	cacheWeight   = 2
	slowdownShare = 0.5
	// overloadBacklog is the smallest backlog, in seconds, at which the rule for overload counts fully.
	overloadBacklog = 1.0
	// Seconds that a second of prefill takes from each answer: up to minStall an engine does not stall answers,
	// from fullStall on it does, and between them in part. Simulated engines have 0.6 to 0.9 with chunked
	// prefill, and below 0.2 without.
	minStall, fullStall = 0.2, 0.4
	// Costs that differ by less than the larger of both count as equal: no prediction is that exact.
	sameSeconds, sameShare = 0.005, 0.02
	// Equal prompts that arrive at once should wait for one prefill. A worker that lacks at most missingShare of
	// the prompt is picked although it costs more than the lowest, up to the share repeatSurcharge.
	repeatSurcharge, missingShare = 0.25, 1.0 / 64
)

func newKVAware() *kvAware {
	return &kvAware{terms: &[maxTerms]string{"first_token", "queue", "decode", "cache"}}
}

func (*kvAware) Name() string { return "kv_aware" }

// Plans returns true: the cost of a full worker includes the wait for a slot.
func (*kvAware) Plans(*Request) bool { return true }

func (*kvAware) facts() facts { return usesCosts | usesCaches }

// Pick returns the worker of the lowest cost, or the cheapest worker with the prompt (see repeatSurcharge). Of
// workers with equal costs (see sameSeconds), it returns the one that has the most of the prompt, then the one
// with the fewest recent tokens. Before any traffic the hash of the prompt's first turn decides, so that gateways
// agree without communication.
func (p *kvAware) Pick(r *Request, ws []View) (int, Reason) {
	b := newCostBasis(r, ws)
	lowest, withPrompt := math.Inf(1), math.Inf(1)
	for i := range ws {
		terms := b.terms(&ws[i])
		cost := terms[0] + terms[1] + terms[2] + terms[3]
		if lowest = min(lowest, cost); b.hasPrompt(&ws[i]) {
			withPrompt = min(withPrompt, cost)
		}
		if r.assessments != nil {
			r.assessments[i] = assessment{score: cost, terms: Terms{names: p.terms, values: terms}}
		}
	}
	repeated := !math.IsInf(withPrompt, 1) && withPrompt <= lowest+max(sameSeconds, repeatSurcharge*lowest)
	if repeated {
		lowest = withPrompt
	}
	key := r.Prefix
	if key == 0 {
		key = r.Rand
	}
	chosen, fewest, rank := -1, 0.0, uint64(0)
	for i := range ws {
		terms := b.terms(&ws[i])
		if terms[0]+terms[1]+terms[2]+terms[3] > lowest+max(sameSeconds, sameShare*lowest) ||
			repeated && !b.hasPrompt(&ws[i]) || chosen >= 0 && ws[i].Overlap < ws[chosen].Overlap {
			continue
		}
		recent, own := ws[i].Cost.Recent/b.share(&ws[i]), Mix(key^HashText(ws[i].ID))
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

// costBasis has the values that are common to the costs of all workers at one pick.
type costBasis struct {
	prompt, output float64
	cached         float64 // mean cached tokens of a request
	delayed        float64 // a of the formula
	minBacklog     float64
	overload       float64 // 0 if a worker has no backlog, 1 from a smallest backlog of overloadBacklog on
	inflight       float64 // mean requests in flight
	rate           float64 // mean prefill rate, tokens/s
	weight         float64 // mean weight
}

func newCostBasis(r *Request, ws []View) (b costBasis) {
	n := float64(len(ws))
	for i := range ws {
		b.weight += ws[i].weight() / n
	}
	for i := range ws {
		f := ws[i].costFacts()
		backlog := f.Backlog / b.share(&ws[i])
		if i == 0 || backlog < b.minBacklog {
			b.minBacklog = backlog
		}
		b.rate += 1 / f.PerToken / n
		b.inflight += float64(ws[i].Inflight) / b.share(&ws[i]) / n
	}
	b.prompt, b.output = float64(booked(r.PromptTokens)), float64(booked(r.OutputTokens))
	b.cached, b.overload = r.traffic.Cached, min(1, b.minBacklog/overloadBacklog)
	b.delayed = r.traffic.Queueing * r.traffic.Arrivals / max(minIdle, 1-r.traffic.Utilization)
	return b
}

// share is the weight of a worker relative to the mean.
func (b *costBasis) share(v *View) float64 { return v.weight() / b.weight }

// terms returns the terms of the cost on one worker, in seconds.
func (b *costBasis) terms(v *View) [maxTerms]float64 {
	f, share := v.costFacts(), b.share(v)
	uncached := b.uncached(v)
	backlog, n := f.Backlog/share, float64(v.Inflight)/share
	firstToken := f.firstToken(uncached, backlog)
	firstToken += tailWeight * firstToken * firstToken / (tailBase + b.minBacklog)
	decode := b.output * (f.Step + decodeShare*f.StepEach*n)
	work := uncached/b.rate + f.Behind + slowdownShare*f.Slowdown*decode
	later := 1.0
	if w := b.overload * min(1, max(0, f.Stall-minStall)/(fullStall-minStall)); w > 0 {
		firstToken *= math.Pow((n+1)/(b.inflight+1), w)
		later = 1 - w
	}
	return [maxTerms]float64{
		firstToken,
		later * b.delayed * work * (backlog + sharedBacklog*b.minBacklog + work/2),
		later * decodeWeight * decode,
		cacheWeight * f.WorkingSet * f.WorkingSet * (uncached + b.cached) * f.PerToken,
	}
}

// firstToken returns the predicted seconds to first token of a prompt with that many uncached tokens, behind a
// backlog in seconds. A prompt waits at least for the engine's present step, of at most Overhead, and for its
// own. Behind a longer backlog it shares steps with the prompts before it, and takes only Behind in addition.
// The lateness of the present requests is added, because their silence may last as long again.
func (f *CostFacts) firstToken(uncached, backlog float64) float64 {
	own := f.Load + uncached*f.PerToken
	return max(min(backlog, f.Overhead)+f.Overhead, backlog+f.Behind) + own + f.SlotWait + f.Late
}

// uncached returns the prompt tokens that the worker has to compute.
func (b *costBasis) uncached(v *View) float64 { return max(0, b.prompt-float64(max(0, v.Overlap))) }

// hasPrompt reports whether the worker lacks at most missingShare of the prompt, in its cache or in prefill.
func (b *costBasis) hasPrompt(v *View) bool {
	return b.prompt > 0 && b.uncached(v) <= missingShare*b.prompt
}

// firstToken returns the predicted seconds to first token on a worker.
func (b *costBasis) firstToken(v *View) float64 {
	f := v.costFacts()
	return f.firstToken(b.uncached(v), f.Backlog)
}

// costFacts returns the facts of the view. A record of another policy has none: then they follow from the
// booked tokens and the priors.
func (v *View) costFacts() CostFacts {
	f := v.Cost
	if !(f.PerToken > 0) {
		f.PerToken = 1 / max(v.Rate, rateLimits.floor)
		f.Overhead = firstStep.Seconds()
		f.Backlog = float64(v.PendingTokens) * f.PerToken
	}
	if !(f.Step > 0) {
		f.Step, f.StepEach = timeLimits.prior, concurrencyShare*timeLimits.prior
	}
	return f
}
