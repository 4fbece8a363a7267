package routing

import (
	"math"
	"time"
)

// limits is the prior of an estimated number and its bounds.
type limits struct{ prior, floor, ceiling float64 }

// PriorRate is the prior of the prefill rate in tokens/s: that of a model of 7 to 14 billion
// parameters on one data-centre GPU.
const PriorRate = 8000

var (
	// rateLimits is the prefill rate in tokens/s: from a CPU to a rate that only a cache reaches.
	rateLimits = limits{PriorRate, 50, 1e6}
	// timeLimits is seconds per output token: from faster than any speculative decoding to one
	// token in two seconds.
	timeLimits = limits{0.025, 0.0005, 2}
	// outputLimits is the tokens of an answer, up to the longest that a model offers.
	outputLimits = limits{256, 1, 131072}
	// scaleLimits is the engine's prompt tokens per estimated token: no tokenizer differs more
	// from the estimate for long.
	scaleLimits = limits{1, 1.0 / 8, 8}
)

const (
	// priorWeight is the weight of the prior in samples: n samples count n/(n+20).
	priorWeight = 20
	// memory is the number of samples in the mean: throttling shows after a few dozen answers.
	memory = 32
	// outlier is the largest factor between a sample and the mean: one absurd sample in 32
	// changes the mean by less than a tenth.
	outlier = 4
)

// estimator learns one number: an exponentially weighted mean of clamped samples with gain
// max(1/n, 1/memory), mixed with a prior by n/(n+priorWeight).
type estimator struct {
	limits
	mean  float64
	count int64
}

// learn adds a sample; it ignores values that are not positive and finite.
func (e *estimator) learn(sample float64) {
	if !(sample > 0) || math.IsInf(sample, 1) {
		return
	}
	if e.count > 0 {
		sample = min(max(sample, e.mean/outlier), e.mean*outlier)
	}
	sample = e.clamp(sample)
	e.count++
	e.mean += (sample - e.mean) / float64(min(e.count, memory))
}

// value returns the mean, mixed with a prior.
func (e *estimator) value(prior float64) float64 {
	n := float64(e.count)
	return e.clamp((priorWeight*prior + n*e.mean) / (priorWeight + n))
}

func (e *estimator) clamp(x float64) float64 { return min(max(x, e.floor), e.ceiling) }

// Estimate is one learned number.
type Estimate struct {
	Value   float64 `json:"value"`   // prior and samples, weighted by Count/(Count+20)
	Prior   float64 `json:"prior"`   // the value without samples
	Floor   float64 `json:"floor"`   // lower bound of Value
	Ceiling float64 `json:"ceiling"` // upper bound of Value
	Count   int64   `json:"count"`   // samples
}

func (e *estimator) estimate(prior float64) Estimate {
	return Estimate{Value: e.value(prior), Prior: prior, Floor: e.floor, Ceiling: e.ceiling, Count: e.count}
}

// seconds returns a duration of at most a century, which does not overflow.
func seconds(s float64) time.Duration {
	const century = 100 * 365 * 24 * 3600
	return time.Duration(min(s, century) * float64(time.Second))
}
