package routing

import (
	"math"
	"time"
)

// CostFacts is what kv_aware knows about the time that work takes on one worker, at one pick.
type CostFacts struct {
	Backlog    float64 `json:"backlog_s"`            // seconds until the prefills that are booked on it end
	Overhead   float64 `json:"overhead_s"`           // seconds of a prefill besides its tokens
	PerToken   float64 `json:"per_token_s"`          // seconds per uncached prompt token, beside its present load
	Slowdown   float64 `json:"slowdown,omitempty"`   // share of the prefill rate that one more request takes
	Step       float64 `json:"step_s"`               // seconds per output token of a single request
	StepEach   float64 `json:"step_each_s"`          // seconds that each further request adds to Step
	Stall      float64 `json:"stall,omitempty"`      // seconds that a second of prefill takes from each running answer
	WorkingSet float64 `json:"working_set"`          // share of its cache that conversations will soon need again
	Load       float64 `json:"load_s,omitempty"`     // seconds to load the cached tokens from slower media
	Recent     float64 `json:"recent_tokens"`        // tokens sent to it, with a memory of half an hour
	SlotWait   float64 `json:"slot_wait_s,omitzero"` // seconds until it has room; 0 unless it is full
}

// Traffic is what kv_aware knows about the requests of a pool, at one pick.
type Traffic struct {
	Arrivals    float64 `json:"arrivals_per_s"`     // requests per second and worker
	Utilization float64 `json:"utilization"`        // share of the workers with a prefill to do
	Cached      float64 `json:"mean_cached_tokens"` // cached tokens of a request
	Queueing    float64 `json:"queueing"`           // share of a backlog for which a request waits
}

// workTimes is what a pool has learned about the time of work: its shape on the mean worker. Each
// worker has a scale for both.
type workTimes struct {
	prefill [orders]prefillTimes
	decode  regression // seconds per output token: over 1, requests in flight, prefill seconds per token
	waits   int        // samples behind a backlog
}

// The orders in which an engine may prefill prompts. One model is learned for each, and the one that
// explains the times of requests behind a backlog is used.
const (
	oneByOne  = iota // a prefill begins when the one before it ends
	allAtOnce        // a prefill begins when its request arrives, whatever the backlog is
	orders
)

// prefillTimes is the model of one order.
type prefillTimes struct {
	regression         // over 1, uncached tokens, uncached tokens · requests in flight
	wrong      float64 // squared logarithms of sample/prediction, of recent requests behind a backlog
}

const (
	// orderSamples is the number of requests behind a backlog from which their times decide the order.
	orderSamples = 50
	orderMemory  = 0.99
	// clearlyBetter is the share of the error of oneByOne that allAtOnce must stay below.
	clearlyBetter = 0.5
)

// order returns the order that explains the recent times: one by one, unless the other is clearly better.
func (t *workTimes) order() int {
	if t.waits >= orderSamples && t.prefill[allAtOnce].wrong < clearlyBetter*t.prefill[oneByOne].wrong {
		return allAtOnce
	}
	return oneByOne
}

// queueing returns the share of a backlog for which a request waits.
func (t *workTimes) queueing() float64 { return float64(allAtOnce - t.order()) }

// newWorkTimes returns the priors: those of the other learned numbers, without any effect of load.
func newWorkTimes() (t workTimes) {
	const perToken, step = 1.0 / PriorRate, 0.025
	for i := range t.prefill {
		t.prefill[i].regression = newRegression([3]float64{firstStep.Seconds(), perToken, 0},
			[3]float64{firstStep.Seconds(), perToken, perToken / 50}, [3]float64{10, 1 / rateLimits.floor, 1 / rateLimits.floor})
	}
	// A second of prefill takes at most a second from each answer.
	t.decode = newRegression([3]float64{step, 0, 0}, [3]float64{step, step / 20, 0.5},
		[3]float64{timeLimits.ceiling, timeLimits.ceiling, 1})
	return t
}

// scale is a worker's time relative to the mean worker's.
type scale struct {
	value   float64 // 0 without samples, which means 1
	samples int
}

func (s *scale) get() float64 {
	if s.samples == 0 {
		return 1
	}
	return s.value
}

// decodeNoise is the logarithm of a worker's decode scale that its traffic alone can cause: a worker that
// gets long prompts has its answers stalled more often.
const decodeNoise = 0.15

// beyondNoise returns the value as far as it exceeds decodeNoise.
func (s *scale) beyondNoise() float64 {
	l := math.Log(s.get())
	if math.Abs(l) <= decodeNoise {
		return 1
	}
	return math.Exp(l - math.Copysign(decodeNoise, l))
}

// learn adds the ratio of a sample and its prediction. The gain falls to two percent.
func (s *scale) learn(ratio float64) {
	gain := max(0.02, 0.5/float64(s.samples+5))
	s.value = s.get() * (1 + gain*(min(max(ratio, 1.0/maxRatio), maxRatio)-1))
	s.samples++
}

// workerCosts is the part of a worker's books by which its costs are predicted.
type workerCosts struct {
	first, last *booking  // bookings without a first event, in the order of booking
	seconds     float64   // their predicted prefill
	answeredAt  time.Time // when the latest prefill ended
	recent      float64   // tokens sent to the worker, decayed to recentAt
	recentAt    time.Time

	prefillScale [orders]scale
	decodeScale  scale

	countedAt       time.Time
	inflightSeconds float64      // integral of the requests in flight up to countedAt
	prefillSeconds  float64      // total duration of the prefills so far
	step            uint64       // number of the latest prefill end
	joined          []joinedStep // by number modulo joinedSteps
}

// joinedStep is the tokens of further prefills that ended in the same step of the engine.
type joinedStep struct {
	step   uint64
	tokens int64
}

const (
	// joinedSteps is more than the prefills that end on a worker during one long answer.
	joinedSteps = 4096
	// oneStep is the longest time between the ends of two prefills of one step.
	oneStep = 20 * time.Millisecond
	// sharedStep is the number of tokens below which a prefill takes only a part of an engine's step:
	// engines compute short prefills together.
	sharedStep = 512
	// headProgress bounds the part of the head's prefill that is assumed to be done.
	headProgress = 0.9
)

// prefillSecondsLocked predicts the prefill of that many uncached tokens on a worker.
func (p *Pool) prefillSecondsLocked(w *Worker, tokens int64, inflight int) float64 {
	u, order := float64(tokens), p.times.order()
	return w.costs.prefillScale[order].get() * p.times.prefill[order].predict([3]float64{1, u, u * float64(inflight)})
}

// ownSteps returns the share of a prefill's steps that it does not share with others, behind a backlog.
func ownSteps(tokens float64) float64 { return min(1, tokens/sharedStep) }

// enqueuePrefillLocked adds a booking to the prefills of its worker.
func (p *Pool) enqueuePrefillLocked(b *booking, now time.Time) {
	c := &b.worker.costs
	b.bookedAt, b.uncached, b.awaits = now, b.prefill, true
	b.seconds = p.prefillSecondsLocked(b.worker, b.prefill, b.worker.inflight)
	if c.first != nil {
		b.seconds *= ownSteps(float64(b.prefill))
	}
	c.seconds += b.seconds
	if b.before = c.last; b.before == nil {
		c.first = b
	} else {
		b.before.after = b
	}
	c.last = b
}

// dequeuePrefillLocked removes a booking from the prefills of its worker.
func (w *Worker) dequeuePrefillLocked(b *booking) {
	if !b.awaits {
		return
	}
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
		c.seconds = 0 // no rounding error stays
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
	at := w.costs.recentAt
	for _, peer := range p.workers {
		if peer.costs.recentAt.After(at) {
			at = peer.costs.recentAt
		}
	}
	sum, n := 0.0, 0.0
	for _, peer := range p.workers {
		if peer != w && peer.status.Up {
			sum, n = sum+peer.recentLocked(at), n+1
		}
	}
	if n > 0 {
		w.costs.recent, w.costs.recentAt = max(sum/n, w.recentLocked(at)), at
	}
}

// backlogLocked returns the seconds until the booked prefills end: their predictions, less the
// progress of the first one.
func (w *Worker) backlogLocked(now time.Time) float64 {
	c := &w.costs
	if c.first == nil {
		return 0
	}
	began := c.first.bookedAt
	if c.answeredAt.After(began) {
		began = c.answeredAt
	}
	done := min(max(0, now.Sub(began).Seconds()), headProgress*c.first.seconds)
	return max(0, c.seconds-done)
}

// countInflightLocked adds the time since the last change of the requests in flight to their
// integral. It precedes each change.
func (w *Worker) countInflightLocked(now time.Time) {
	c := &w.costs
	if now.After(c.countedAt) {
		if !c.countedAt.IsZero() {
			c.inflightSeconds += float64(w.inflight) * now.Sub(c.countedAt).Seconds()
		}
		c.countedAt = now
	}
}

// beginStep begins a step that no earlier prefill shares, and returns its number.
func (c *workerCosts) beginStep() uint64 {
	if c.joined == nil {
		c.joined = make([]joinedStep, joinedSteps)
	}
	c.step++
	c.joined[c.step%joinedSteps] = joinedStep{step: c.step}
	return c.step
}

// prefillSample is what a lease keeps from its first event until its usage is known.
type prefillSample struct {
	took                            [orders]float64 // seconds of the prefill
	behind                          bool            // another prefill ended in the meantime
	inflight                        int
	step                            uint64 // 0: the prefill teaches nothing
	inflightSeconds, prefillSeconds float64
}

// endOfPrefillLocked records the end of a booking's prefill and returns its sample.
func (p *Pool) endOfPrefillLocked(b *booking, at time.Time) (s prefillSample) {
	w := b.worker
	c := &w.costs
	w.countInflightLocked(at)
	if b.awaits {
		began := b.bookedAt
		if s.behind = c.answeredAt.After(began); s.behind {
			began = c.answeredAt
		}
		s.took = [orders]float64{oneByOne: at.Sub(began).Seconds(), allAtOnce: at.Sub(b.bookedAt).Seconds()}
		s.inflight = w.inflight - 1
		switch {
		case !(s.took[oneByOne] > 0):
		case c.step > 0 && at.Sub(c.answeredAt) < oneStep:
			if j := &c.joined[c.step%joinedSteps]; j.step == c.step {
				j.tokens += b.uncached
			}
		default:
			s.step = c.beginStep()
		}
		c.prefillSeconds += max(0, s.took[oneByOne])
		if at.After(c.answeredAt) {
			c.answeredAt = at
		}
	}
	s.inflightSeconds, s.prefillSeconds = c.inflightSeconds, c.prefillSeconds
	return s
}

// learnTimesLocked learns from a stream's answer. uncached are the prompt tokens that were computed.
func (p *Pool) learnTimesLocked(l *Lease, o Result, uncached int64) {
	w, s := l.worker, &l.sample
	c := &w.costs
	if s.step > 0 && c.joined[s.step%joinedSteps].step == s.step && uncached > 0 {
		j := &c.joined[s.step%joinedSteps]
		p.learnPrefillLocked(w, oneByOne, s, float64(uncached+j.tokens))
		p.learnPrefillLocked(w, allAtOnce, s, float64(uncached))
		if s.behind {
			p.times.waits++
		}
	}
	took := o.At.Sub(l.firstAt).Seconds()
	if o.Err != nil || o.OutputTokens < minOutput || !(took > 0) {
		return
	}
	w.countInflightLocked(o.At)
	tokens := float64(o.OutputTokens - 1)
	others := max(0, (c.inflightSeconds-s.inflightSeconds)/took-1)
	x := [3]float64{1, others, (c.prefillSeconds - s.prefillSeconds) / tokens}
	own := c.decodeScale.get()
	c.decodeScale.learn(took / tokens / (own * p.times.decode.predict(x)))
	p.times.decode.learn(x, took/tokens/own)
	p.centerScales(&p.times.decode, func(w *Worker) *scale { return &w.costs.decodeScale })
}

// learnPrefillLocked adds a sample to the model of one order.
func (p *Pool) learnPrefillLocked(w *Worker, order int, s *prefillSample, uncached float64) {
	t, own := &p.times.prefill[order], &w.costs.prefillScale[order]
	x, factor := [3]float64{1, uncached, uncached * float64(s.inflight)}, own.get()
	ratio := s.took[order] / (factor * t.predict(x))
	if s.behind {
		wrong := math.Log(min(max(ratio, 1.0/maxRatio), maxRatio))
		t.wrong = orderMemory*t.wrong + wrong*wrong
	}
	own.learn(ratio)
	t.learn(x, s.took[order]/factor)
	p.centerScales(&t.regression, func(w *Worker) *scale { return &w.costs.prefillScale[order] })
}

// centerScales moves the common factor of all workers' scales into the shape.
func (p *Pool) centerScales(shape *regression, of func(*Worker) *scale) {
	logs, n := 0.0, 0.0
	for _, w := range p.workers {
		if s := of(w); s.samples > 0 {
			logs, n = logs+math.Log(s.value), n+1
		}
	}
	if n == 0 {
		return
	}
	mean := math.Exp(logs / n)
	for _, w := range p.workers {
		if s := of(w); s.samples > 0 {
			s.value /= mean
		}
	}
	for i := range shape.coefficients {
		shape.coefficients[i] = min(shape.coefficients[i]*mean, shape.most[i])
	}
}

// costFactsLocked returns the facts of a worker for one pick.
func (p *Pool) costFactsLocked(w *Worker, v *View, now time.Time, residence float64) CostFacts {
	c, order, decode := &w.costs, p.times.order(), &p.times.decode.coefficients
	prefill, factor := &p.times.prefill[order].coefficients, c.prefillScale[order].get()
	n, decodeScale := float64(v.Inflight), c.decodeScale.beyondNoise()
	perToken := prefill[1] + prefill[2]*n
	f := CostFacts{
		Overhead: factor * prefill[0],
		PerToken: min(max(factor*perToken, 1/rateLimits.ceiling), 1/rateLimits.floor),
		Step:     min(max(decodeScale*decode[0], timeLimits.floor), timeLimits.ceiling),
		StepEach: decodeScale * decode[1],
		Stall:    decodeScale * decode[2],
		Recent:   w.recentLocked(now),
	}
	f.Backlog = w.backlogLocked(now) + float64(w.backlog.requests)*f.Overhead + float64(w.backlog.prefill)*f.PerToken
	f.Backlog *= p.times.queueing()
	if perToken > 0 {
		f.Slowdown = prefill[2] / perToken
	}
	if gap := p.traffic.reuse.mean; gap > 0 && w.column >= 0 && w.column < modelWorkers {
		f.WorkingSet = p.caches.workingSet(w.column, now.UnixMilli()-int64(reuseGaps*gap*1000))
	}
	if v.Full {
		f.SlotWait = residence * float64(w.backlog.requests+1) / float64(max(1, w.inflight))
	}
	return f
}
