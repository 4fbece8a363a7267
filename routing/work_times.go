package routing

import "math"

// workTimes are the learned models of prefill and decode times on the mean worker. Each worker has a scale
// for both.
type workTimes struct {
	prefill [orders]prefillTimes
	decode  regression // seconds per output token; of xToken, xInflight and xPrefill
	waits   int        // prefill samples of requests that waited behind a backlog
}

// The regressors of a prefill's seconds.
const (
	xAlone          = iota // prefills on an idle worker: 1 or 0
	xBehind                // prefills behind another one
	xTokens                // uncached prompt tokens
	xInflightTokens        // uncached prompt tokens · other requests in flight
)

// The regressors of the seconds per output token.
const (
	xToken    = iota // 1: a step without load
	xInflight        // other requests in flight
	xPrefill         // seconds of prefills on the worker, per output token
)

// The orders in which an engine may prefill prompts. One model is learned for each, and the one that
// explains the times of requests behind a backlog is used.
const (
	oneByOne  = iota // a prefill begins when the one before it ends
	allAtOnce        // a prefill begins when its request arrives, whatever the backlog is
	orders
)

// prefillTimes is the model of one order.
type prefillTimes struct {
	regression         // of the whole time of one or several prefills
	wrong      float64 // decayed sum of squared logarithms of sample/prediction, behind a backlog
}

const (
	// orderSamples is the number of requests behind a backlog that are needed to decide the order.
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

// concurrencyShare is the prior of the share of a step that each other answer adds. A step reads the model's weights
// and the KV cache of each answer: 16 GB, and 0.2 GB for 1,500 tokens, for a Llama of 8 billion parameters in 16 bits.
// The engines of package sim have 2 %. With less than 1 %, a prefix of 4,096 tokens stays on one of two idle workers at
// 12 requests/s. With more than 1.3 %, sixteen equal prompts of 8,000 tokens that arrive at once are prefilled twice.
const concurrencyShare = 0.0125

// newWorkTimes returns the priors: those of the other learned numbers, and concurrencyShare. No prior assumes that
// answers slow prefills, or that prefills stall answers: engines differ in both, and neither decides under little load.
func newWorkTimes() (t workTimes) {
	const perToken = 1.0 / PriorRate
	first, step := firstStep.Seconds(), timeLimits.prior
	for i := range t.prefill {
		t.prefill[i].regression = newRegression(
			regressors{xAlone: first, xTokens: perToken},
			regressors{xAlone: first, xBehind: first, xTokens: perToken, xInflightTokens: perToken / 50},
			regressors{xAlone: 10, xBehind: 10, xTokens: 1 / rateLimits.floor, xInflightTokens: 1 / rateLimits.floor})
	}
	// With step/20, a hundred answers of independent requests correct two thirds of an error of concurrencyShare. A
	// second of prefill takes at most a second from each answer.
	t.decode = newRegression(regressors{xToken: step}, regressors{xToken: step, xInflight: step / 20, xPrefill: 0.5},
		regressors{xToken: timeLimits.ceiling, xInflight: timeLimits.ceiling, xPrefill: 1})
	t.decode.follow(xInflight, xToken, concurrencyShare)
	return t
}

// scale is a worker's time relative to the mean worker's.
type scale struct {
	value  float64 // 0 without samples, which means 1
	weight float64 // sum of the samples' weights
}

func (s *scale) get() float64 {
	if s.weight == 0 {
		return 1
	}
	return s.value
}

// decodeNoise is the logarithm of a worker's decode scale that its traffic alone can cause: long prompts
// stall the answers of a worker more often.
const decodeNoise = 0.15

// beyondNoise returns the scale without the part that decodeNoise explains.
func (s *scale) beyondNoise() float64 {
	l := math.Log(s.get())
	if math.Abs(l) <= decodeNoise {
		return 1
	}
	return math.Exp(l - math.Copysign(decodeNoise, l))
}

// learn adds the ratio of a sample and its prediction, with a weight of at most 1. The gain falls to two
// percent.
func (s *scale) learn(ratio, weight float64) {
	gain := weight * max(0.02, 0.5/(s.weight+5))
	s.value = s.get() * (1 + gain*(min(max(ratio, 1.0/maxRatio), maxRatio)-1))
	s.weight += weight
}

// scaleTokens multiplies the regressors of a prefill's tokens by the scale. A worker of half the speed takes twice
// as long per token; the rest of a prefill is the same.
func (s *scale) scaleTokens(x regressors) regressors {
	x[xTokens] *= s.get()
	x[xInflightTokens] *= s.get()
	return x
}

// learnPrefill adds the seconds of prefills on a worker to the model and to the worker's scale. The scale
// learns from the part that depends on the tokens.
func (t *prefillTimes) learnPrefill(own *scale, x regressors, took float64) {
	x = own.scaleTokens(x)
	predicted := t.predict(x)
	fixed := t.coefficients[xAlone]*x[xAlone] + t.coefficients[xBehind]*x[xBehind]
	if predicted > fixed {
		own.learn((took-fixed)/(predicted-fixed), (predicted-fixed)/predicted)
	}
	t.learn(x, took)
}

// centerScales moves the mean of all workers' scales into the model's coefficients from index first on; the
// lower ones do not scale.
func (p *Pool) centerScales(model *regression, first int, of func(*Worker) *scale) {
	logs, n := 0.0, 0.0
	for _, w := range p.workers {
		if s := of(w); s.weight > 0 {
			logs, n = logs+math.Log(s.value), n+1
		}
	}
	if n == 0 {
		return
	}
	mean := math.Exp(logs / n)
	for _, w := range p.workers {
		if s := of(w); s.weight > 0 {
			s.value /= mean
		}
	}
	for i := first; i < len(model.coefficients); i++ {
		model.coefficients[i] = min(model.coefficients[i]*mean, model.maxCoefficients[i])
	}
}
