package routing

import (
	"math"
	"time"
)

// facts are parts of a View that only some policies use.
type facts uint8

const (
	usesCosts      facts = 1 << iota // View.Cost, and the traffic of the Request
	usesLatency                      // View.Latency
	usesTrees                        // View.CachedBlocks
	usesSuccess                      // View.Success
	usesCaches                       // Request.Cached, by events
	usesPins                         // Request.pinned
	usesLookups                      // Request.Cached, by look-ups in LMCache's controller
	usesStoredKeys                   // View.StoredKeys
)

func factsOf(p Policy) facts {
	if u, ok := p.(interface{ facts() facts }); ok {
		return u.facts()
	}
	return 0
}

// UsesCaches reports whether a policy uses what events say in Request.Cached to choose.
func UsesCaches(p Policy) bool { return factsOf(p)&usesCaches != 0 }

// The sources of a predicted prefix.
const (
	fromHistory = iota // the gateway's model of the worker's cache
	fromEvents         // the worker's cache events
	fromLookup         // a look-up in LMCache's controller
	sources
)

// credit compares a source's predictions for a worker with the cached tokens that the engine reported,
// over the last twenty or so predictions. A wrong prediction thus loses its influence on the choice.
// The zero value has full credit.
type credit struct {
	predicted, cached float64 // tokens; both 0 before the first prediction
	missed            float64 // cached tokens that the source should have predicted and did not
}

const (
	// creditPrior is the number of tokens that count as predicted correctly at the start. They decay
	// like all others, so that short prompts lose their credit too.
	creditPrior = 20_000
	creditDecay = 0.95
	// mostCredited is the number of tokens that one prediction counts for at most: a single wrong one
	// leaves a new source two thirds of its credit.
	mostCredited = creditPrior / 2
	// leastTrust is the trust in cache events below which the model of the cache decides.
	leastTrust = 0.5
	// creditMargin is the number of tokens that an engine may compute again: the last block, and the
	// error of an estimate.
	creditMargin = 64
	// maxCachedAge is the age at which a look-up of a request in the events' index is discarded. It gets old
	// while the request waits in the queue or other workers are tried.
	maxCachedAge = 5 * time.Second
	// historyMargin is the number of tokens by which the model of the cache may exceed the events' prediction
	// for a prompt's beginning, although both mean the same prefix: the model estimates its lengths.
	historyMargin = 256
	// maxEventDelay bounds the time from a prefill's end to the arrival of its events. Blocks that the
	// history recorded later may lack theirs.
	maxEventDelay = time.Second
)

// share returns the share of the predicted tokens that the worker had. Predictions of the history count for
// that share.
func (c *credit) share() float64 {
	if c.predicted == 0 {
		return 1
	}
	return c.cached / c.predicted
}

// trust returns the correct predictions as a share of the tokens that were predicted or missed.
func (c *credit) trust() float64 {
	if c.predicted == 0 {
		return 1
	}
	return c.cached / (c.predicted + c.missed)
}

func (c *credit) learn(predicted, cached, missed int64) {
	tokens := predicted + missed
	if tokens <= 0 {
		return
	}
	if c.predicted == 0 {
		c.predicted, c.cached = creditPrior, creditPrior
	}
	weight := min(1, mostCredited/float64(tokens))
	c.predicted = creditDecay*c.predicted + weight*float64(predicted)
	c.cached = creditDecay*c.cached + weight*float64(min(predicted, cached+creditMargin))
	c.missed = creditDecay*c.missed + weight*float64(missed)
}

// setOverlapsLocked sets the part of the prompt that each worker has: in flight, and cached.
func (p *Pool) setOverlapsLocked(r *Request, ws []View) {
	prompt := booked(r.PromptTokens)
	p.inflightPrefixes.setOverlaps(r.Blocks, prompt, ws, p.workers)
	p.reuse = p.caches.predict(r, prompt, ws, p.workers)
	fresh := r.CachedAt.IsZero() || r.Now.Sub(r.CachedAt) <= maxCachedAge
	next := 0 // of r.Cached: usually both are in the order of the members
	for i := range ws {
		v := &ws[i]
		w, source := p.workers[v.Index], fromHistory
		if p.facts&usesTrees != 0 {
			v.CachedBlocks = p.caches.blocksOf(w.column)
		}
		var c *CachedPrefix
		if w.column >= 0 { // -1: a draft's new worker
			c, next = cachedPrefix(r.Cached, w.ref, next)
		}
		switch {
		case !fresh || c == nil:
		case c.Lookup:
			v.predicted[fromLookup] = min(prompt, max(0, c.Tokens))
		case !(c.More && c.Tokens+historyMargin < v.predicted[fromHistory]):
			v.predicted[fromEvents], v.byEvents = min(prompt, max(0, c.Tokens)), true
			if v.exact = w.credit[fromEvents].trust() >= leastTrust; v.exact {
				source, v.Cost.Load = fromEvents, c.Load.Seconds()
			}
		}
		// What events show is a fact; a prediction of the history counts for the share that proved right.
		if v.Overlap = v.predicted[source]; source == fromHistory {
			v.Overlap = int64(float64(v.Overlap) * w.credit[source].share())
		}
		v.Overlap = max(v.computing, v.Overlap)
		// A look-up states what a worker has at least: it only adds to the history.
		if found := v.predicted[fromLookup]; found >= max(1, v.Overlap) && w.credit[fromLookup].trust() >= leastTrust {
			v.Cost.Load = c.Load.Seconds() * float64(found-v.Overlap) / float64(found)
			v.Overlap = found
		}
	}
}

// cachedPrefix returns the entry of a worker, nil if there is none, and the index after it. The search begins
// at from.
func cachedPrefix(all []CachedPrefix, ref any, from int) (c *CachedPrefix, next int) {
	for k := range all {
		if i := (from + k) % len(all); all[i].Ref == ref {
			return &all[i], i + 1
		}
	}
	return nil, from
}

// setCostsLocked sets the facts by which costs are computed.
func (p *Pool) setCostsLocked(r *Request, ws []View) {
	r.traffic = p.trafficLocked()
	residence := p.residenceTimeLocked().Value
	for i := range ws {
		load := ws[i].Cost.Load
		ws[i].Cost = p.costFactsLocked(p.workers[ws[i].Index], &ws[i], r.Now, residence)
		ws[i].Cost.Load = load
	}
}

// Predictions counts how well a pool has predicted cached prefixes and times to first token.
type Predictions struct {
	Events, History, None int64 // requests by the source of their predicted prefix, and Lookups
	Lookups               int64
	PromptTokens          int64 // of requests with a report of cached tokens, like the next three
	PredictedTokens       int64
	CachedTokens          int64
	WrongTokens           int64 // predicted and not cached, or cached and not predicted
	Judged                int64 // streams with a predicted time to first token on another worker
	Regretted             int64 // Judged streams with such a prediction at least 20 % below the measured time
}

// Predictions returns the totals since the pool was made.
func (p *Pool) Predictions() Predictions {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.predictions
}

// countSourceLocked counts the source of the chosen worker's predicted prefix.
func (p *Pool) countSourceLocked(v *View) {
	switch {
	case v.exact:
		p.predictions.Events++
	case v.byLookup():
		p.predictions.Lookups++
	case v.predicted[fromHistory] > 0:
		p.predictions.History++
	default:
		p.predictions.None++
	}
}

// uncountLocked reverts the counts of bookLocked for a lease that its worker's gate refuses.
func (p *Pool) uncountLocked(l *Lease) {
	l.worker.costs.recent = max(0, l.worker.costs.recent-float64(l.booking.tokens))
	if l.handedOver {
		return
	}
	switch {
	case l.exact:
		p.predictions.Events--
	case l.byLookup:
		p.predictions.Lookups--
	case l.predicted[fromHistory] > 0:
		p.predictions.History--
	default:
		p.predictions.None--
	}
	p.traffic.arrivals = max(0, p.traffic.arrivals-1/trafficMemory.Seconds())
}

// learnCreditLocked compares the predicted prefixes of both sources with the report of the engine. It
// ignores engines that never reported a cached token: they may not report any. It ignores requests whose cache
// the engine chooses.
func (p *Pool) learnCreditLocked(l *Lease, o Result) {
	w := l.worker
	w.reportsCached = w.reportsCached || o.CachedTokens > 0
	if o.PromptTokens <= 0 || !w.reportsCached || l.unplaced {
		p.traffic.cached.learn(float64(l.overlap))
		return
	}
	p.traffic.cached.learn(float64(booked(o.CachedTokens)))
	used := fromHistory
	switch {
	case l.exact:
		used = fromEvents
	case l.byLookup:
		used = fromLookup
	}
	predicted, cached := min(l.predicted[used], booked(o.PromptTokens)), booked(o.CachedTokens)
	t := &p.predictions
	t.PromptTokens += booked(o.PromptTokens)
	t.PredictedTokens += predicted
	t.CachedTokens += cached
	t.WrongTokens += max(predicted-cached, cached-predicted)
	if found := l.predicted[fromLookup]; found > 0 {
		w.credit[fromLookup].learn(min(found, booked(o.PromptTokens)), cached, 0)
	}
	w.credit[fromHistory].learn(min(l.predicted[fromHistory], booked(o.PromptTokens)), cached, 0)
	if l.byEvents {
		w.credit[fromEvents].learn(min(l.predicted[fromEvents], booked(o.PromptTokens)), cached, l.missedByEvents(cached))
	}
}

// missedByEvents returns the cached tokens that the history predicted and the worker's events should have
// shown. If the history predicted too much, it does not prove anything about the events. Nor do tokens that
// were in flight at the look-up: up to a fifth of a common prefix lies after its last landmark.
func (l *Lease) missedByEvents(cached int64) int64 {
	shown := max(l.predicted[fromEvents], l.computing+l.computing/4)
	if l.published > cached+historyMargin || l.published <= shown+historyMargin {
		return 0
	}
	return l.published - shown
}

// soonestElsewhere returns the lowest predicted seconds to first token of the other workers, or 0 if
// there is none.
func soonestElsewhere(r *Request, ws []View, chosen int) float64 {
	if len(ws) < 2 {
		return 0
	}
	b, soonest := newCostBasis(r, ws), math.Inf(1)
	for i := range ws {
		if i != chosen {
			soonest = min(soonest, b.firstToken(&ws[i]))
		}
	}
	return soonest
}

// judgeLocked compares a stream's time to first token with the lowest prediction for the other workers.
func (p *Pool) judgeLocked(l *Lease, at time.Time) {
	if l.elsewhere <= 0 {
		return
	}
	p.predictions.Judged++
	if took := at.Sub(l.bookedAt).Seconds(); l.elsewhere <= 0.8*took {
		p.predictions.Regretted++
	}
}
