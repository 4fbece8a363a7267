package routing

import (
	"math"
	"time"
)

// Learned is what a pool has learned of all its workers together, at one moment.
type Learned struct {
	scale     float64 // the engines' prompt tokens per estimated token
	output    int64   // expected tokens of an answer
	outputP90 int64   // 90th percentile of an answer's tokens
}

// Learned returns what the pool has learned so far. It does not take the pool's lock.
func (p *Pool) Learned() Learned { return unpack(p.learnedNow.Load()) }

// A Learned is published as one word, so that publishing allocates nothing: scale is a
// fixed-point number of 28 bits, and each length has 18 bits, which hold the ceiling of
// outputLimits.
const (
	scaleBits, lengthBits = 28, 18
	scaleUnit             = 1 << scaleBits / 8 // scaleLimits' ceiling is 8
	lengthMask            = 1<<lengthBits - 1
)

func (l Learned) pack() uint64 {
	scale := min(uint64(math.Round(l.scale*scaleUnit)), 1<<scaleBits-1)
	return scale<<(2*lengthBits) | uint64(l.output)<<lengthBits | uint64(l.outputP90)
}

func unpack(word uint64) Learned {
	return Learned{scale: float64(word>>(2*lengthBits)) / scaleUnit, output: int64(word >> lengthBits & lengthMask),
		outputP90: int64(word & lengthMask)}
}

// PromptTokens corrects an estimate of a prompt's tokens by the engines' counts of earlier
// prompts. The caller applies it to Request.PromptTokens.
func (l Learned) PromptTokens(estimate int64) int64 {
	if estimate <= 0 {
		return 0
	}
	return max(1, int64(math.Round(float64(booked(estimate))*l.scale)))
}

// OutputTokens returns the expected tokens of an answer of at most bound tokens; 0 is no bound.
func (l Learned) OutputTokens(bound int64) int64 { return atMost(bound, l.output) }

// OutputP90 returns the tokens to reserve for an answer of at most bound tokens; 0 is no
// bound. It is the 90th percentile of the pool's latest complete answers, or bound if that is
// less. It is 512 until 20 answers ended with a count of their tokens.
func (l Learned) OutputP90(bound int64) int64 { return atMost(bound, l.outputP90) }

func atMost(bound, tokens int64) int64 {
	if bound > 0 {
		return min(bound, tokens)
	}
	return tokens
}

func (p *Pool) publishLearnedLocked() {
	output := int64(math.Round(p.learned.output.value(outputLimits.prior)))
	p.learnedNow.Store(Learned{scale: p.scaleLocked(), output: output, outputP90: p.learned.outputP90.tokens()}.pack())
}

// Up reports whether any member is in rotation, as WorkerView.InRotation does. It does not take
// the pool's lock.
func (p *Pool) Up(now time.Time) bool {
	from := p.upFrom.Load()
	return from != nil && !now.Before(from.rotation)
}

// Ready reports whether any member is in rotation and not in backoff. It does not take the pool's
// lock.
func (p *Pool) Ready(now time.Time) bool {
	from := p.upFrom.Load()
	return from != nil && !now.Before(from.ready)
}

// Busy reports whether no member without requests in flight can take one.
func (p *Pool) Busy(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		if w.status.Up && w.weight > 0 && !w.ejected && w.inflight == 0 && !now.Before(w.backoffUntil) {
			return false
		}
	}
	return true
}

// upTimes is when the first member will be in rotation, and when the first one will also not be in
// backoff.
type upTimes struct{ rotation, ready time.Time }

func (p *Pool) publishUpLocked() {
	var from *upTimes
	for _, w := range p.workers {
		if !w.status.Up || w.weight <= 0 || !w.answers() {
			continue
		}
		open, paused := w.openUntilLocked(), w.pausedUntilLocked()
		if from == nil {
			from = &upTimes{open, paused}
			continue
		}
		if open.Before(from.rotation) {
			from.rotation = open
		}
		if paused.Before(from.ready) {
			from.ready = paused
		}
	}
	p.upFrom.Store(from)
}
