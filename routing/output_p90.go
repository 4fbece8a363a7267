package routing

import (
	"math"
	"time"
)

const (
	// outputShare is the share of answers that fit into their reservation.
	outputShare = 0.9
	// outputP90Prior is twice the prior answer (outputLimits): about the 90th percentile of
	// exponential lengths.
	outputP90Prior = 512
	// outputP90Samples is the least number of answers: of fewer, less than two exceed the
	// quantile.
	outputP90Samples = 20
	// outputP90Memory is the number of answers over which weights fade. The standard error is 6
	// to 7 % for random lengths, and older answers are forgotten after 460.
	outputP90Memory = 200
	// outputP90Floor is the least value: below it the error of the prompt's estimate is larger.
	outputP90Floor = 16
	// octaveSteps is the number of buckets per doubling: each is 9 % wide.
	octaveSteps = 8
	// outputBuckets reaches up to the ceiling of outputLimits, 2^17 tokens.
	outputBuckets = 17*octaveSteps + 1
	// maxSampleWeight is the weight of a new sample at which all weights are scaled down, so that
	// a float64 keeps the smallest.
	maxSampleWeight = 1e6
)

// outputP90 learns the 90th percentile of the latest lengths of answers. It is a histogram of
// exponential buckets with fading weights: each sample weighs more than the one before it. The
// zero value is ready for use.
type outputP90 struct {
	weights       [outputBuckets]float64
	total, weight float64
	count         int64
	value         float64 // of the quantile, once there are enough samples
}

// learn adds the tokens of one answer, at least one.
func (a *outputP90) learn(tokens int64) {
	at := math.Log2(float64(tokens)) * octaveSteps
	a.weight = max(1, a.weight*outputP90Memory/(outputP90Memory-1))
	if a.weight > maxSampleWeight {
		a.total = 0
		for i := range a.weights {
			a.weights[i] /= a.weight
			a.total += a.weights[i]
		}
		a.weight = 1
	}
	a.weights[min(int(at), outputBuckets-1)] += a.weight
	a.total += a.weight
	if a.count++; a.count >= outputP90Samples {
		a.value = a.quantile()
	}
}

// quantile returns the length above which 1-outputShare of the weight lies.
func (a *outputP90) quantile() float64 {
	above := a.total * (1 - outputShare)
	for i := outputBuckets - 1; i >= 0; i-- {
		w := a.weights[i]
		if w > above {
			return math.Exp2((float64(i+1) - above/w) / octaveSteps)
		}
		above -= w
	}
	return 1
}

// tokens returns the 90th percentile in tokens, or the prior while there are too few samples.
func (a *outputP90) tokens() int64 {
	if a.count < outputP90Samples {
		return outputP90Prior
	}
	return int64(math.Ceil(min(max(a.value, outputP90Floor), outputLimits.ceiling)))
}

const (
	// longestMemory is the number of answers after which the longest answer has lost two thirds of its excess. A
	// length that occurs once in 20 answers is then still known.
	longestMemory = 128
	// longestPrior is the output in tokens of the longest answer before any is known: the largest max_tokens that
	// many clients send.
	longestPrior = 4096
	// longestGrowth bounds the ratio of a new longest time to the one before, so that an answer which an engine
	// delayed does not hide the next delay.
	longestGrowth = 4
)

// longestAnswer learns the length and the time of the longest recent answers.
type longestAnswer struct {
	tokens  float64 // output of the longest answer of any kind; 0 before the first
	seconds float64 // time of the longest whole answer; 0 before the first
}

func (l *longestAnswer) learnTokens(tokens int64) {
	l.tokens = max(float64(tokens), l.tokens-(l.tokens-float64(tokens))/longestMemory)
}

// learnTime adds the time of an answer that was not a stream.
func (l *longestAnswer) learnTime(took time.Duration) {
	s := took.Seconds()
	if l.seconds > 0 {
		s = min(s, longestGrowth*max(l.seconds, overdueFloor.Seconds()))
	}
	l.seconds = max(s, l.seconds-(l.seconds-s)/longestMemory)
}

// longestTime returns the longest expected time of a whole answer of at most bound tokens; 0 is no bound. tokenTime is
// in seconds per token.
func (l *longestAnswer) longestTime(bound int64, tokenTime float64) time.Duration {
	maxTokens := int64(longestPrior)
	if l.tokens > 0 {
		maxTokens = int64(l.tokens)
	}
	return seconds(max(l.seconds, float64(atMost(bound, maxTokens))*tokenTime))
}
