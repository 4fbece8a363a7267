package routing

import "math"

const (
	// longShare is the share of answers that fit what is reserved for them.
	longShare = 0.9
	// longPrior is twice the usual answer (outputLimits), as for random lengths.
	longPrior = 512
	// longSamples is how many answers it takes: of fewer, less than two are above the share.
	longSamples = 20
	// longMemory is how many answers the weights look back over. The standard error is 6 or
	// 7 % for random lengths, and the past is forgotten after 460 answers.
	longMemory = 200
	// longFloor is the least: below it the estimate of the prompt is off by more.
	longFloor = 16
	// octaveSteps is how many buckets there are to a doubling: each is 9 % wide.
	octaveSteps = 8
	// longBuckets reach up to outputLimits' ceiling, 2^17 tokens.
	longBuckets = 17*octaveSteps + 1
	// heaviest is how much a new sample may weigh before all weights are scaled down, so
	// that a float64 does not lose the smallest.
	heaviest = 1e6
)

// longAnswers learns the quantile longShare of the last lengths, in a histogram of
// exponential buckets whose weights fade: a new sample weighs more than the one before it.
// The zero value is ready.
type longAnswers struct {
	weights       [longBuckets]float64
	total, weight float64
	count         int64
	value         float64 // of the quantile; set once there are enough samples
}

// learn enters the tokens of one answer, at least one.
func (a *longAnswers) learn(tokens int64) {
	at := math.Log2(float64(tokens)) * octaveSteps
	a.weight = max(1, a.weight*longMemory/(longMemory-1))
	if a.weight > heaviest {
		a.total = 0
		for i := range a.weights {
			a.weights[i] /= a.weight
			a.total += a.weights[i]
		}
		a.weight = 1
	}
	a.weights[min(int(at), longBuckets-1)] += a.weight
	a.total += a.weight
	if a.count++; a.count >= longSamples {
		a.value = a.quantile()
	}
}

// quantile returns the length above which the rest of the weight lies.
func (a *longAnswers) quantile() float64 {
	above := a.total * (1 - longShare)
	for i := longBuckets - 1; i >= 0; i-- {
		w := a.weights[i]
		if w > above {
			return math.Exp2((float64(i+1) - above/w) / octaveSteps)
		}
		above -= w
	}
	return 1
}

// tokens is how many tokens a long answer has.
func (a *longAnswers) tokens() int64 {
	if a.count < longSamples {
		return longPrior
	}
	return int64(math.Ceil(min(max(a.value, longFloor), outputLimits.ceiling)))
}
