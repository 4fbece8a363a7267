package routing

import (
	"math"
	"time"
)

// usesCosts is a Policy that reads View.Cost and the pool's traffic.
type usesCosts interface{ usesCosts() }

// UsesCaches reports whether a policy uses Request.Cached to choose.
func UsesCaches(p Policy) bool {
	_, uses := p.(usesCosts)
	return uses
}

// The sources of a predicted prefix.
const (
	fromHistory = iota // the gateway's model of the worker's cache
	fromEvents         // the worker's cache events
	sources
)

// credit is the share of the predicted cached tokens that a worker really had, over its last twenty
// or so predictions. A wrong prediction thus loses its influence on the choice.
type credit struct {
	predicted, cached float64
}

const (
	// creditPrior is the number of tokens that count as predicted well at the start: two long
	// prompts.
	creditPrior = 20_000
	creditDecay = 0.95
	// leastCredit is the credit of cache events below which the model of the cache decides.
	leastCredit = 0.5
	// creditMargin is the number of tokens that an engine may compute again: the last block, and the
	// error of an estimate.
	creditMargin = 64
	// maxCachedAge is the time after which what events said about a request is too old: it has waited in
	// the queue, or other workers were tried.
	maxCachedAge = 5 * time.Second
	// historyMargin is the number of tokens by which the model of the cache may exceed what events say
	// of a prompt's beginning, although both mean the same: its lengths are estimates.
	historyMargin = 256
)

func (c *credit) value() float64 { return (creditPrior + c.cached) / (creditPrior + c.predicted) }

func (c *credit) learn(predicted, cached int64) {
	if predicted <= 0 {
		return
	}
	c.predicted = creditDecay*c.predicted + float64(predicted)
	c.cached = creditDecay*c.cached + float64(min(predicted, cached+creditMargin))
}

// setOverlapsLocked sets what the workers have of the prompt: in flight, and cached.
func (p *Pool) setOverlapsLocked(r *Request, ws []View) {
	prompt := booked(r.PromptTokens)
	p.inflightPrefixes.setOverlaps(r.Blocks, prompt, ws, p.workers)
	p.reuse = p.caches.predict(r, prompt, ws, p.workers)
	fresh := r.CachedAt.IsZero() || r.Now.Sub(r.CachedAt) <= maxCachedAge
	for i := range ws {
		v := &ws[i]
		w, source := p.workers[v.Index], fromHistory
		c := cachedPrefix(r.Cached, w.ref, i)
		if fresh && c != nil && !(c.More && c.Tokens+historyMargin < v.predicted[fromHistory]) {
			v.predicted[fromEvents], v.byEvents = min(prompt, max(0, c.Tokens)), true
			if v.exact = w.credit[fromEvents].value() >= leastCredit; v.exact {
				source, v.Cost.Load = fromEvents, c.Load.Seconds()
			}
		}
		v.Overlap = max(v.computing, int64(float64(v.predicted[source])*w.credit[source].value()))
	}
}

// cachedPrefix returns the entry of a worker, which is most likely at the index of its view.
func cachedPrefix(all []CachedPrefix, ref any, likely int) *CachedPrefix {
	if likely < len(all) && all[likely].Ref == ref {
		return &all[likely]
	}
	for i := range all {
		if all[i].Ref == ref {
			return &all[i]
		}
	}
	return nil
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

// Predictions is how well a pool has predicted cached prefixes and times to first token, in total.
type Predictions struct {
	Events, History, None int64 // requests by what their cached prefix was predicted from
	PromptTokens          int64 // of requests with a report of cached tokens, like the next three
	PredictedTokens       int64
	CachedTokens          int64
	WrongTokens           int64 // predicted and not cached, or cached and not predicted
	Judged                int64 // streams with a predicted time to first token on another worker
	Regretted             int64 // those that another worker would have served at least 20 % sooner
}

// Predictions returns the totals since the pool was made.
func (p *Pool) Predictions() Predictions {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.predictions
}

// countSourceLocked counts what the prefix of the chosen worker was predicted from.
func (p *Pool) countSourceLocked(v *View) {
	switch {
	case v.exact:
		p.predictions.Events++
	case v.predicted[fromHistory] > 0:
		p.predictions.History++
	default:
		p.predictions.None++
	}
}

// uncountLocked takes back what bookLocked has counted for a lease that its worker's gate refuses.
func (p *Pool) uncountLocked(l *Lease) {
	switch {
	case l.exact:
		p.predictions.Events--
	case l.predicted[fromHistory] > 0:
		p.predictions.History--
	default:
		p.predictions.None--
	}
	p.traffic.arrivals = max(0, p.traffic.arrivals-1/trafficMemory.Seconds())
	l.worker.costs.recent = max(0, l.worker.costs.recent-float64(l.booking.tokens))
}

// learnCreditLocked compares the predicted prefixes of both sources with the report of the engine. An engine that never
// reported a cached token may not report any.
func (p *Pool) learnCreditLocked(l *Lease, o Result) {
	w := l.worker
	w.reportsCached = w.reportsCached || o.CachedTokens > 0
	if o.PromptTokens <= 0 || !w.reportsCached {
		p.traffic.cached.learn(float64(l.overlap))
		return
	}
	p.traffic.cached.learn(float64(booked(o.CachedTokens)))
	used := fromHistory
	if l.exact {
		used = fromEvents
	}
	predicted, cached := min(l.predicted[used], booked(o.PromptTokens)), booked(o.CachedTokens)
	t := &p.predictions
	t.PromptTokens += booked(o.PromptTokens)
	t.PredictedTokens += predicted
	t.CachedTokens += cached
	t.WrongTokens += max(predicted-cached, cached-predicted)
	w.credit[fromHistory].learn(min(l.predicted[fromHistory], booked(o.PromptTokens)), cached)
	if l.byEvents {
		w.credit[fromEvents].learn(min(l.predicted[fromEvents], booked(o.PromptTokens)), cached)
	}
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

// judgeLocked compares a stream's time to first token with the prediction for the other workers.
func (p *Pool) judgeLocked(l *Lease, at time.Time) {
	if l.elsewhere <= 0 {
		return
	}
	p.predictions.Judged++
	if took := at.Sub(l.bookedAt).Seconds(); l.elsewhere <= 0.8*took {
		p.predictions.Regretted++
	}
}
