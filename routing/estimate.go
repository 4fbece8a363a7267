package routing

import (
	"math"
	"time"
)

// limits is a number's prior and its bounds.
type limits struct{ prior, floor, ceiling float64 }

// PriorRate is the prior of the prefill rate in tokens/s: a model of 7 to 14 billion
// parameters on one data-centre GPU.
const PriorRate = 8000

var (
	// rateLimits is prefill in tokens/s: from a CPU's to what only a cache can do.
	rateLimits = limits{PriorRate, 50, 1e6}
	// timeLimits is seconds per output token: beyond the fastest speculative decoding, and
	// one in two seconds.
	timeLimits = limits{0.025, 0.0005, 2}
	// outputLimits is tokens of an answer, up to the longest that a model offers.
	outputLimits = limits{256, 1, 131072}
	// scaleLimits is the engine's count of prompt tokens per estimated one: no tokenizer is
	// further from the estimate for long.
	scaleLimits = limits{1, 1.0 / 8, 8}
)

const (
	// priorWeight is how many samples the prior counts for (design: n/(n+20)).
	priorWeight = 20
	// memory is how many samples the mean looks back over: a throttled worker is known after
	// a few dozen answers.
	memory = 32
	// outlier bounds a sample's factor from the mean: one absurd sample in 32 moves the mean
	// by less than a tenth.
	outlier = 4
)

// estimator learns one number: an exponentially weighted mean with gain max(1/n, 1/memory)
// of clamped samples, mixed with a prior by n/(n+priorWeight).
type estimator struct {
	limits
	mean  float64
	count int64
}

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

// value is the mean mixed with a prior.
func (e *estimator) value(prior float64) float64 {
	n := float64(e.count)
	return e.clamp((priorWeight*prior + n*e.mean) / (priorWeight + n))
}

func (e *estimator) clamp(x float64) float64 { return min(max(x, e.floor), e.ceiling) }

// Estimate is one learned number.
type Estimate struct {
	Value   float64 `json:"value"` // prior and samples, weighed by Count/(Count+20)
	Prior   float64 `json:"prior"` // the value without samples
	Floor   float64 `json:"floor"` // Value is never below
	Ceiling float64 `json:"ceiling"`
	Count   int64   `json:"count"` // samples
}

func (e *estimator) estimate(prior float64) Estimate {
	return Estimate{Value: e.value(prior), Prior: prior, Floor: e.floor, Ceiling: e.ceiling, Count: e.count}
}

// seconds is a duration of at most a century, which does not overflow.
func seconds(s float64) time.Duration {
	const century = 100 * 365 * 24 * 3600
	return time.Duration(min(s, century) * float64(time.Second))
}
