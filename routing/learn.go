package routing

import (
	"slices"
	"time"
)

// The quantities that are learned of each worker.
const (
	prefillRate = iota // tokens/s
	tokenTime          // seconds per output token
	quantities
)

// learned is what a pool has learned of all its workers together.
type learned struct {
	output, scale estimator
	residenceTime estimator // seconds from a booking to its release
	outputP90     outputP90
	longest       longestAnswer
	median        [quantities]float64 // over the workers with samples; 0 without any
	samples       [quantities]int64
	sorted        []float64 // buffer of refreshLocked
}

const (
	// firstStep is the part of a time to first token that no prefill explains: the network, the
	// engine's scheduler, and one step of its model.
	firstStep = 25 * time.Millisecond
	// minPrefill is the number of tokens before a first token from which its time teaches the
	// rate: they take an eighth of a second at the prior rate, of which firstStep is a fifth.
	minPrefill = 1000
	// maxAssumedCached limits the tokens that are only assumed to be cached to an eighth of the
	// tokens ahead, which is about the error of prompt estimates.
	maxAssumedCached = 8
	// minOutput is the number of output tokens from which an answer teaches the time per token:
	// fewer tokens may arrive in one flush.
	minOutput = 16
	// minEstimate is the estimate from which a prompt teaches the scale: in shorter prompts the
	// tokens of the chat template weigh too much.
	minEstimate = 64
)

// refreshLocked computes each worker's value and prior of a quantity. The prior is the median of
// the other workers with samples, or without any the quantity's own prior.
func (p *Pool) refreshLocked(q int) {
	l := &p.learned
	l.sorted, l.samples[q] = l.sorted[:0], 0
	for _, w := range p.workers {
		if e := &w.learned[q]; e.count > 0 {
			l.samples[q] += e.count
			l.sorted = append(l.sorted, e.mean)
		}
	}
	slices.Sort(l.sorted)
	l.median[q] = medianWithout(l.sorted, -1)
	for _, w := range p.workers {
		w.prior[q] = l.median[q]
		if w.learned[q].count > 0 {
			own, _ := slices.BinarySearch(l.sorted, w.learned[q].mean)
			w.prior[q] = medianWithout(l.sorted, own)
		}
		if w.prior[q] == 0 {
			w.prior[q] = w.learned[q].limits.prior
		}
		w.value[q] = w.learned[q].value(w.prior[q])
	}
}

// medianWithout returns the median of sorted without the element at that index (-1: of all
// elements), or 0 if nothing is left.
func medianWithout(sorted []float64, without int) float64 {
	n := len(sorted)
	at := func(i int) float64 {
		if without >= 0 && i >= without {
			i++
		}
		return sorted[i]
	}
	if without >= 0 {
		n--
	}
	switch {
	case n <= 0:
		return 0
	case n%2 == 1:
		return at(n / 2)
	}
	return (at(n/2-1) + at(n/2)) / 2
}

// typicalLocked returns the quantity's value for a typical worker of the pool.
func (p *Pool) typicalLocked(q int, l limits) float64 {
	e := estimator{limits: l, mean: p.learned.median[q], count: p.learned.samples[q]}
	return e.value(l.prior)
}

func (p *Pool) learnLocked(l *Lease, o Result) {
	if l.isPrefill {
		p.learnPrefillStageLocked(l, o)
		return
	}
	p.learnResidenceTimeLocked(l, o)
	if whole := o.Err == nil; whole && o.OutputTokens > 0 {
		p.learned.output.learn(float64(o.OutputTokens))
		p.learned.outputP90.learn(o.OutputTokens)
		p.learned.longest.learnTokens(o.OutputTokens)
	}
	if o.Err == nil && !l.stream && o.At.After(l.bookedAt) {
		p.learned.longest.learnTime(o.At.Sub(l.bookedAt))
	}
	if l.handedOver {
		p.learnDecodeStageLocked(l, o)
		return
	}
	p.learnCreditLocked(l, o)
	if o.Text && o.PromptTokens > 0 && l.estimate >= minEstimate {
		p.learned.scale.learn(float64(o.PromptTokens) / l.estimate)
	}
	p.publishLearnedLocked()
	if !l.stream {
		p.learnUnstreamedPrefillLocked(l, o)
		return
	}
	if l.firstAt.IsZero() {
		return
	}
	p.learnRateLocked(l, o)
	p.learnTimesLocked(l, o)
	p.learnTokenTimeLocked(l, o)
}

// learnRateLocked learns the prefill rate from a stream's time to first token.
func (p *Pool) learnRateLocked(l *Lease, o Result) {
	ahead, sure := l.prefilledTokens(o)
	if took := l.firstAt.Sub(l.bookedAt); took > 0 && sure && ahead >= minPrefill {
		p.learnQuantityLocked(l.worker, prefillRate, float64(ahead)/max(took-firstStep, took/2).Seconds())
	}
}

// learnTokenTimeLocked learns the time per output token from a complete stream.
func (p *Pool) learnTokenTimeLocked(l *Lease, o Result) {
	if took := o.At.Sub(l.firstAt); o.Err == nil && took > 0 && o.OutputTokens >= minOutput {
		p.learnQuantityLocked(l.worker, tokenTime, took.Seconds()/float64(o.OutputTokens-1))
	}
}

// prefilledTokens returns the tokens that were prefilled up to the lease's first one, and
// whether they are known well enough to learn from. They are if the engine reports cached
// tokens; a report of 0 may mean that it does not report them. Without a report the part that
// was booked as cached is used.
func (l *Lease) prefilledTokens(o Result) (tokens int64, sure bool) {
	others, own, prompt := l.ahead-l.prefill, l.prefill, booked(o.PromptTokens)
	switch {
	case prompt > 0 && o.CachedTokens > 0:
		return others + max(1, prompt-booked(o.CachedTokens)), true
	case prompt > 0 && l.prompt > 0:
		own = int64(float64(prompt) * (float64(l.prefill) / float64(l.prompt)))
	case prompt > 0:
		own = prompt
	}
	return others + own, l.assumedCached <= (others+own)/maxAssumedCached
}

// uncachedTokens returns the prompt tokens that the engine computed for the lease, 0 if they are unknown, and the
// other tokens of the prompt if they were predicted and not reported as cached.
func (l *Lease) uncachedTokens(o Result) (uncached, assumed float64) {
	switch prompt := float64(booked(o.PromptTokens)); {
	case prompt > 0 && l.worker.reportsCached:
		return max(1, prompt-float64(booked(o.CachedTokens))), 0
	case prompt > 0 && l.prompt > 0:
		uncached = max(1, prompt*float64(l.prefill)/float64(l.prompt))
		return uncached, max(0, prompt-uncached)
	case prompt > 0:
		return prompt, 0
	}
	return float64(l.prefill), float64(l.prompt - l.prefill)
}

func (p *Pool) learnQuantityLocked(w *Worker, q int, sample float64) {
	w.learned[q].learn(sample)
	if !w.removed {
		p.refreshLocked(q)
	}
}

func (p *Pool) scaleLocked() float64 { return p.learned.scale.value(scaleLimits.prior) }

// Estimates is everything that a pool has learned, as an explanation of its picks.
type Estimates struct {
	Rate         float64  `json:"rate"`          // prefill rate of a typical worker, tokens/s
	OutputTokens Estimate `json:"output_tokens"` // tokens of an answer
	// seconds from booking to release; from eight samples on their mean without the prior
	ResidenceTime Estimate          `json:"residence_time"`
	PromptScale   Estimate          `json:"prompt_scale"` // the engines' prompt tokens per estimated token
	Workers       []WorkerEstimates `json:"workers"`      // in the order of the members
}

// WorkerEstimates is what a pool has learned of one worker.
type WorkerEstimates struct {
	ID        string   `json:"id"`
	Rate      Estimate `json:"rate"`       // prefill rate, tokens/s
	TokenTime Estimate `json:"token_time"` // seconds per output token, from streams
}

// Estimates returns what the pool has learned so far.
func (p *Pool) Estimates() Estimates {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := Estimates{
		Rate:          p.typicalLocked(prefillRate, rateLimits),
		OutputTokens:  p.learned.output.estimate(outputLimits.prior),
		ResidenceTime: p.residenceTimeLocked(),
		PromptScale:   p.learned.scale.estimate(scaleLimits.prior),
		Workers:       make([]WorkerEstimates, len(p.workers)),
	}
	for i, w := range p.workers {
		e.Workers[i] = WorkerEstimates{
			ID:        w.id,
			Rate:      w.learned[prefillRate].estimate(w.prior[prefillRate]),
			TokenTime: w.learned[tokenTime].estimate(w.prior[tokenTime]),
		}
	}
	return e
}
