package routing

import (
	"math"
	"time"
)

// CostFacts are the learned and measured facts of one worker for kv_aware's cost, at one pick.
type CostFacts struct {
	Backlog    float64 `json:"backlog_s"`            // seconds until the prefills that are booked on it end
	Overhead   float64 `json:"overhead_s"`           // seconds of a prefill on an idle worker, whatever its tokens
	Behind     float64 `json:"overhead_behind_s"`    // the same for a prefill behind another one
	PerToken   float64 `json:"per_token_s"`          // seconds per uncached prompt token at its present load
	Slowdown   float64 `json:"slowdown,omitempty"`   // share of the prefill rate that one more request takes
	Step       float64 `json:"step_s"`               // seconds per output token of a single request
	StepEach   float64 `json:"step_each_s"`          // seconds that each further request adds to Step
	Stall      float64 `json:"stall,omitempty"`      // seconds that a second of prefill takes from each running answer
	WorkingSet float64 `json:"working_set"`          // share of its cache that conversations will soon need again
	Load       float64 `json:"load_s,omitempty"`     // seconds to load the cached tokens from slower media
	Recent     float64 `json:"recent_tokens"`        // tokens sent to it, with a memory of half an hour
	SlotWait   float64 `json:"slot_wait_s,omitzero"` // seconds until it has room; 0 unless it is full
	Late       float64 `json:"late_s,omitzero"`      // seconds since the predicted time of its request that is due first; at least 1 s of silence
}

// Traffic is the measured traffic of a pool for kv_aware's cost, at one pick.
type Traffic struct {
	Arrivals    float64 `json:"arrivals_per_s"`     // requests per second and worker
	Utilization float64 `json:"utilization"`        // share of the workers with a prefill to do
	Cached      float64 `json:"mean_cached_tokens"` // cached tokens of a request
	Queueing    float64 `json:"queueing"`           // share of a backlog for which a request waits
}

// workerCosts is the state of a worker from which its costs are predicted.
type workerCosts struct {
	first, last *booking  // bookings without a first event, in the order of booking
	seconds     float64   // sum of their predicted prefills
	answeredAt  time.Time // when the latest prefill ended
	recent      float64   // tokens sent to the worker, decayed to recentAt
	recentAt    time.Time

	prefillScale [orders]scale
	decodeScale  scale

	countedAt       time.Time
	inflightSeconds float64 // integral of the requests in flight up to countedAt
	prefillSeconds  float64 // total duration of the prefills so far
	runs            prefillRuns
}

// headProgress bounds the part of the head's prefill that is assumed to be done.
const headProgress = 0.9

// prefillRegressors returns the regressors of one prefill with that many uncached tokens.
func prefillRegressors(uncached, others float64, behind bool) regressors {
	x := regressors{xTokens: uncached, xInflightTokens: uncached * others}
	if behind {
		x[xBehind] = 1
	} else {
		x[xAlone] = 1
	}
	return x
}

// prefillSecondsLocked predicts the seconds of a prefill on a worker by the model of one order.
func (p *Pool) prefillSecondsLocked(w *Worker, order int, x regressors) float64 {
	return p.times.prefill[order].predict(w.costs.prefillScale[order].scaleTokens(x))
}

// enqueuePrefillLocked adds a booking to the prefills of its worker.
func (p *Pool) enqueuePrefillLocked(b *booking, now time.Time) {
	c := &b.worker.costs
	b.bookedAt, b.uncached, b.awaits = now, b.prefill, true
	if c.first == nil {
		p.beginRunLocked(b.worker, now, true)
	}
	b.seconds = p.prefillSecondsLocked(b.worker, oneByOne,
		prefillRegressors(float64(b.prefill), float64(b.worker.allInflight()), c.first != nil))
	c.seconds += b.seconds
	if b.before = c.last; b.before == nil {
		c.first = b
	} else {
		b.before.after = b
	}
	c.last = b
}

// dequeuePrefillLocked removes a booking from the prefills of its worker, of which it is one.
func (w *Worker) dequeuePrefillLocked(b *booking) {
	c := &w.costs
	if b.before == nil {
		c.first = b.after
	} else {
		b.before.after = b.after
	}
	if b.after == nil {
		c.last = b.before
	} else {
		b.after.before = b.before
	}
	b.before, b.after, b.awaits = nil, nil, false
	if c.seconds -= b.seconds; c.first == nil {
		c.seconds = 0 // drop rounding errors
	}
}

// recentMemory is the time in which a token loses two thirds of its weight in CostFacts.Recent.
const recentMemory = 30 * time.Minute

// recentLocked returns the tokens sent to the worker, decayed to now.
func (w *Worker) recentLocked(now time.Time) float64 {
	return w.costs.recent * math.Exp(-max(0, now.Sub(w.costs.recentAt).Seconds())/recentMemory.Seconds())
}

// countTokensLocked adds tokens that are sent to the worker now.
func (w *Worker) countTokensLocked(tokens int64, now time.Time) {
	w.costs.recent, w.costs.recentAt = w.recentLocked(now)+float64(tokens), now
}

// levelRecentLocked raises a worker's recent tokens to the mean of its peers. Without it, a worker that is
// new or was down would win all choices between equal costs.
func (p *Pool) levelRecentLocked(w *Worker) {
	if mean, at := p.meanRecentLocked(w); !at.IsZero() {
		w.costs.recent, w.costs.recentAt = max(mean, w.recentLocked(at)), at
	}
}

// meanRecentLocked returns the mean of the recent tokens of the workers that are up, without except, in whole
// tokens, and the time to which they are decayed: the latest of all workers. The time is zero if no worker
// counts.
func (p *Pool) meanRecentLocked(except *Worker) (mean float64, at time.Time) {
	for _, w := range p.workers {
		if w.costs.recentAt.After(at) {
			at = w.costs.recentAt
		}
	}
	sum, n := 0.0, 0.0
	for _, w := range p.workers {
		if w != except && w.status.Up {
			sum, n = sum+w.recentLocked(at), n+1
		}
	}
	if n == 0 {
		return 0, time.Time{}
	}
	return math.Round(sum / n), at // the same for workers that are levelled one by one or together
}

// beginOf returns the time at which the first prefill of the worker begins: its booking, or the end of the one
// before it.
func (c *workerCosts) beginOf(first *booking) time.Time {
	if c.answeredAt.After(first.bookedAt) {
		return c.answeredAt
	}
	return first.bookedAt
}

// backlogLocked returns the seconds until the booked prefills end: the sum of their predictions, less the
// progress of the first one.
func (w *Worker) backlogLocked(now time.Time) float64 {
	c := &w.costs
	if c.first == nil {
		return 0
	}
	done := min(max(0, now.Sub(c.beginOf(c.first)).Seconds()), headProgress*c.first.seconds)
	return max(0, c.seconds-done)
}

// countInflightLocked advances the integral of the requests in flight to now. The caller calls it before
// each change of that number.
func (w *Worker) countInflightLocked(now time.Time) {
	c := &w.costs
	if now.After(c.countedAt) {
		if !c.countedAt.IsZero() {
			c.inflightSeconds += float64(w.allInflight()) * now.Sub(c.countedAt).Seconds()
		}
		c.countedAt = now
	}
}

// prefillSample is the measured prefill of a lease, kept until its usage is known.
type prefillSample struct {
	took                            [orders]float64 // seconds of the prefill
	behind                          bool            // another prefill ended in the meantime
	inflight                        int
	run                             uint64 // number of its run; 0: none
	inflightSeconds, prefillSeconds float64
}

// endOfPrefillLocked records the first token of a booking and returns the sample of its prefill.
func (p *Pool) endOfPrefillLocked(b *booking, at time.Time) (s prefillSample) {
	w := b.worker
	c := &w.costs
	w.countInflightLocked(at)
	p.endDuePrefillsLocked(w, at)
	if b.awaits {
		p.endPrefillsAheadLocked(b)
		beganUnknown := w.costs.runs.at(w.costs.runs.latest).endUnknown
		s.behind = c.answeredAt.After(b.bookedAt)
		s.took = [orders]float64{oneByOne: at.Sub(c.beginOf(b)).Seconds(), allAtOnce: at.Sub(b.bookedAt).Seconds()}
		s.inflight, s.run = w.allInflight()-1, p.joinRunLocked(w, b.uncached, at)
		c.prefillSeconds += max(0, s.took[oneByOne])
		if beganUnknown {
			s.took = [orders]float64{}
		}
		if at.After(c.answeredAt) {
			c.answeredAt = at
		}
		w.dequeuePrefillLocked(b)
	}
	s.inflightSeconds, s.prefillSeconds = c.inflightSeconds, c.prefillSeconds
	return s
}

// endUnstreamedPrefillLocked removes the prefill of an answer that is not streamed from its worker's prefills. It
// counts in the run in progress, because later first tokens of the run come after it.
func (p *Pool) endUnstreamedPrefillLocked(b *booking) {
	if !b.awaits || b.uncached == 0 {
		return
	}
	b.others, b.run = b.worker.allInflight()-1, p.joinRunLocked(b.worker, b.uncached, time.Time{})
	b.worker.dequeuePrefillLocked(b)
}

// endFirstPrefillsLocked ends the first prefills of a worker after their predicted end, up to that of a stream.
func (p *Pool) endFirstPrefillsLocked(w *Worker, now time.Time) {
	c := &w.costs
	for b := c.first; b != nil && !b.stream && b.uncached > 0; b = c.first {
		end := c.beginOf(b).Add(min(maxPrefill, seconds(b.seconds)))
		if now.Before(end) {
			return
		}
		c.answeredAt = end
		c.prefillSeconds += b.seconds
		p.endUnstreamedPrefillLocked(b)
	}
}

// endPrefillsAheadLocked ends the prefills of unstreamed answers before that of b, after the first token of b.
func (p *Pool) endPrefillsAheadLocked(b *booking) {
	if p.times.order() != oneByOne {
		return
	}
	for ahead, next := b.worker.costs.first, (*booking)(nil); ahead != b; ahead = next {
		if next = ahead.after; !ahead.stream {
			p.endUnstreamedPrefillLocked(ahead)
		}
	}
}

// learnUnstreamedPrefillLocked learns from an answer that was not streamed.
func (p *Pool) learnUnstreamedPrefillLocked(l *Lease, o Result) {
	if b := l.booking; b != nil && o.Err == nil {
		p.endUnstreamedPrefillLocked(b)
		uncached, assumed := l.uncachedTokens(o)
		p.addToRunLocked(l.worker, b.run, uncached, assumed, b.others)
	}
}

// learnTimesLocked learns from a stream's answer.
func (p *Pool) learnTimesLocked(l *Lease, o Result) {
	if uncached, assumed := l.uncachedTokens(o); l.sample.run > 0 && uncached > 0 {
		p.addToRunLocked(l.worker, l.sample.run, uncached, assumed, l.sample.inflight)
		if assumed <= uncached {
			p.learnOrderLocked(l.worker, &l.sample, uncached)
		}
	}
	if took := o.At.Sub(l.firstAt).Seconds(); o.Err == nil && o.OutputTokens >= minOutput && took > 0 {
		p.learnDecodeLocked(l, o, took)
	}
}

// learnOrderLocked compares the models of both orders with the time of a prefill, and adds it to the model of
// allAtOnce. The model of oneByOne learns from runs.
func (p *Pool) learnOrderLocked(w *Worker, s *prefillSample, uncached float64) {
	if s.took[oneByOne] <= 0 {
		return
	}
	x := prefillRegressors(uncached, float64(s.inflight), false)
	if s.behind {
		p.times.waits++
		for order, t := range p.times.prefill {
			ratio := s.took[order] / p.prefillSecondsLocked(w, order, x)
			wrong := math.Log(min(max(ratio, 1.0/maxRatio), maxRatio))
			p.times.prefill[order].wrong = orderMemory*t.wrong + wrong*wrong
		}
	}
	p.learnPrefillLocked(w, allAtOnce, x, s.took[allAtOnce])
}

// learnPrefillLocked adds the seconds of prefills on a worker to the model of one order.
func (p *Pool) learnPrefillLocked(w *Worker, order int, x regressors, took float64) {
	p.times.prefill[order].learnPrefill(&w.costs.prefillScale[order], x, took)
	p.centerScales(&p.times.prefill[order].regression, xTokens, func(w *Worker) *scale {
		return &w.costs.prefillScale[order]
	})
}

// learnDecodeLocked learns from the seconds of an answer after its first token.
func (p *Pool) learnDecodeLocked(l *Lease, o Result, took float64) {
	w, c, s := l.worker, &l.worker.costs, &l.sample
	w.countInflightLocked(o.At)
	perToken, own := took/float64(o.OutputTokens-1), c.decodeScale.get()
	others := max(0, (c.inflightSeconds-s.inflightSeconds)/took-1)
	x := regressors{xToken: 1, xInflight: others}
	// This regressor is computed from the predicted time: from the measured one it would contain its error.
	share := min(maxPrefillShare, max(0, c.prefillSeconds-s.prefillSeconds)/took)
	x[xPrefill] = share * p.times.decode.predict(x) / (1 - share*p.times.decode.coefficients[xPrefill])
	c.decodeScale.learn(perToken/(own*p.times.decode.predict(x)), 1)
	p.times.decode.learn(x, perToken/own)
	p.centerScales(&p.times.decode, xToken, func(w *Worker) *scale { return &w.costs.decodeScale })
}

// maxPrefillShare bounds the share of a time in which a worker computes prompts.
const maxPrefillShare = 0.95

// costFactsLocked returns the facts of a worker for one pick.
func (p *Pool) costFactsLocked(w *Worker, v *View, now time.Time, residence float64) CostFacts {
	c, order, decode := &w.costs, p.times.order(), &p.times.decode.coefficients
	prefill, factor := &p.times.prefill[order].coefficients, c.prefillScale[order].get()
	n, decodeScale := float64(v.Inflight), c.decodeScale.beyondNoise()
	perToken := prefill[xTokens] + prefill[xInflightTokens]*n
	f := CostFacts{
		Overhead: prefill[xAlone],
		Behind:   prefill[xBehind],
		PerToken: min(max(factor*perToken, 1/rateLimits.ceiling), 1/rateLimits.floor),
		Step:     min(max(decodeScale*decode[xToken], timeLimits.floor), timeLimits.ceiling),
		StepEach: decodeScale * decode[xInflight],
		Stall:    decodeScale * decode[xPrefill],
		Recent:   w.recentLocked(now),
	}
	f.Late = w.latenessLocked(now).Seconds()
	f.Backlog = w.backlogLocked(now) + v.othersBacklog
	f.Backlog += float64(w.backlog.requests)*f.Behind + float64(w.backlog.prefill)*f.PerToken
	f.Backlog *= p.times.queueing()
	if perToken > 0 {
		f.Slowdown = prefill[xInflightTokens] / perToken
	}
	if gap := p.traffic.reuse.mean; gap > 0 && w.column >= 0 && w.column < modelWorkers {
		f.WorkingSet = p.caches.workingSet(w.column, now.UnixMilli()-int64(reuseGaps*gap*1000))
	}
	if v.Full {
		f.SlotWait = residence * float64(w.backlog.requests+1) / float64(max(1, w.inflight))
	}
	return f
}
