package routing

import (
	"math"
	"time"
)

// limits is what is believed of a number before there is any sample, and what
// no sample can make one believe.
type limits struct{ prior, floor, ceiling float64 }

// PriorRate is the prefill rate of a worker before any is known, in tokens/s: that of a
// model of 7 to 14 billion parameters on one data-centre GPU.
const PriorRate = 8000

// What is learned, and between which bounds.
var (
	// rateLimits is prefill in tokens/s. Less than 50 is not even a CPU, more than a
	// million was not computed but cached.
	rateLimits = limits{PriorRate, 50, 1e6}
	// timeLimits is seconds per output token: 40 tokens/s, in bounds of 2,000,
	// beyond the fastest speculative decoding, and one in two seconds.
	timeLimits = limits{0.025, 0.0005, 2}
	// outputLimits is tokens of an answer. The ceiling is the longest output that
	// a model now offers.
	outputLimits = limits{256, 1, 131072}
	// scaleLimits is the engine's count of prompt tokens for each estimated one:
	// no tokenizer is further than eight times from the estimate for long.
	scaleLimits = limits{1, 1.0 / 8, 8}
)

const (
	// priorWeight is how many samples the prior counts for (design: n/(n+20)).
	priorWeight = 20
	// memory is how many samples the mean looks back over, once it has that many:
	// a worker that is throttled is known by its next few dozen answers.
	memory = 32
	// outlier bounds how many times the mean a sample counts for, and how small a
	// part: one absurd sample in 32 moves the mean by less than a tenth.
	outlier = 4
)

// estimator learns one number: an exponentially weighted mean with gain
// max(1/n, 1/memory) of samples clamped to a factor of outlier around it, and
// mixed with a prior by n/(n+priorWeight).
type estimator struct {
	limits
	mean  float64
	count int64
}

// learn takes one sample. What is not a positive number is none.
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

// value is what to believe now, given what one believed without samples.
func (e *estimator) value(prior float64) float64 {
	n := float64(e.count)
	return e.clamp((priorWeight*prior + n*e.mean) / (priorWeight + n))
}

func (e *estimator) clamp(x float64) float64 { return min(max(x, e.floor), e.ceiling) }

// Estimate is one learned number with all that is needed to judge it.
type Estimate struct {
	Value   float64 `json:"value"` // prior and samples, weighed by Count/(Count+20)
	Prior   float64 `json:"prior"` // what is believed without samples
	Floor   float64 `json:"floor"` // Value is never below
	Ceiling float64 `json:"ceiling"`
	Count   int64   `json:"count"` // samples
}

func (e *estimator) estimate(prior float64) Estimate {
	return Estimate{Value: e.value(prior), Prior: prior, Floor: e.floor, Ceiling: e.ceiling, Count: e.count}
}

// seconds is a duration of at most a century, far inside what one can hold.
func seconds(s float64) time.Duration {
	const century = 100 * 365 * 24 * 3600
	return time.Duration(min(s, century) * float64(time.Second))
}
