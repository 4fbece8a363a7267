package routing

import (
	"math"
	"time"
)

// Learned is what a pool has learned of all its workers together up to one moment.
type Learned struct {
	scale     float64 // the engines' count of prompt tokens for each estimated one
	output    int64   // tokens to expect of an answer
	outputP90 int64   // tokens that nine in ten answers do not exceed
}

// Learned returns what the pool has learned up to now, without the pool's lock.
func (p *Pool) Learned() Learned { return unpack(p.learnedNow.Load()) }

// A published Learned is one word, so that publishing it allocates nothing: scale as a
// fixed-point number of 28 bits, and two lengths of 18 bits, which hold outputLimits' ceiling.
const (
	scaleBits, lengthBits = 28, 18
	scaleUnit             = 1 << scaleBits / 8 // of scaleLimits' ceiling
	lengthMask            = 1<<lengthBits - 1
)

func (l Learned) pack() uint64 {
	scale := min(uint64(math.Round(l.scale*scaleUnit)), 1<<scaleBits-1)
	return scale<<(2*lengthBits) | uint64(l.output)<<lengthBits | uint64(l.outputP90)
}

func unpack(word uint64) Learned {
	return Learned{scale: float64(word>>(2*lengthBits)) / scaleUnit, output: int64(word >> lengthBits & lengthMask), outputP90: int64(word & lengthMask)}
}

// PromptTokens corrects an estimate of a prompt's tokens by the engines' counts of earlier
// prompts. Request.PromptTokens must have passed through it.
func (l Learned) PromptTokens(estimate int64) int64 {
	if estimate <= 0 {
		return 0
	}
	return max(1, int64(math.Round(float64(booked(estimate))*l.scale)))
}

// OutputTokens returns the expected tokens of an answer with at most bound; 0 is no bound.
func (l Learned) OutputTokens(bound int64) int64 { return atMost(bound, l.output) }

// OutputP90 returns how many tokens to reserve for an answer with at most bound; 0 is no
// bound: the ninth decile of the pool's latest whole answers if that is less. It is 512
// before 20 answers ended with a count of their tokens.
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

// Up reports whether any member is in rotation, as WorkerView.InRotation has it. It does not
// take the pool's lock.
func (p *Pool) Up(now time.Time) bool {
	from := p.upFrom.Load()
	return from != nil && !now.Before(*from)
}

// publishUpLocked publishes from when on a member is in rotation.
func (p *Pool) publishUpLocked() {
	var from *time.Time
	for _, w := range p.workers {
		if !w.status.Up || w.weight <= 0 {
			continue
		}
		if open := w.openUntilLocked(); from == nil || open.Before(*from) {
			from = &open
		}
	}
	p.upFrom.Store(from)
}
