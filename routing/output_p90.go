package routing

import "math"

const (
	// outputShare is the share of answers that fit what is reserved for them.
	outputShare = 0.9
	// outputP90Prior is twice the usual answer (outputLimits), as for random lengths.
	outputP90Prior = 512
	// outputP90Samples is how many answers it takes: of fewer, less than two are above the share.
	outputP90Samples = 20
	// outputP90Memory is how many answers the weights look back over. The standard error is 6 or
	// 7 % for random lengths, and the past is forgotten after 460 answers.
	outputP90Memory = 200
	// outputP90Floor is the least: below it the estimate of the prompt is off by more.
	outputP90Floor = 16
	// octaveSteps is how many buckets there are to a doubling: each is 9 % wide.
	octaveSteps = 8
	// outputBuckets reach up to outputLimits' ceiling, 2^17 tokens.
	outputBuckets = 17*octaveSteps + 1
	// maxSampleWeight is how much a new sample may weigh before all weights are scaled down, so
	// that a float64 does not lose the smallest.
	maxSampleWeight = 1e6
)

// outputP90 learns the quantile outputShare of the last lengths, in a histogram of
// exponential buckets whose weights fade: a new sample weighs more than the one before it.
// The zero value is ready.
type outputP90 struct {
	weights       [outputBuckets]float64
	total, weight float64
	count         int64
	value         float64 // of the quantile; set once there are enough samples
}

// learn enters the tokens of one answer, at least one.
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

// quantile returns the length above which the rest of the weight lies.
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

// tokens is how many tokens a long answer has.
func (a *outputP90) tokens() int64 {
	if a.count < outputP90Samples {
		return outputP90Prior
	}
	return int64(math.Ceil(min(max(a.value, outputP90Floor), outputLimits.ceiling)))
}
