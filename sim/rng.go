package sim

import (
	"math"
	"time"

	"tierway/routing"
)

// RNG is a deterministic stream of random numbers: xorshift64* (Vigna 2016), which is unrelated to the
// hashes of package routing. Each random part of a simulation has its own stream, so that a change of one
// part does not change the others.
type RNG struct{ state uint64 }

// NewRNG returns the stream of a seed. Streams of different seeds are independent, also with consecutive
// seeds.
func NewRNG(seed uint64) *RNG {
	// The state must not be zero, which xorshift never leaves.
	return &RNG{routing.Draw(seed) | 1}
}

// Split returns the stream with that number among those of a seed.
func Split(seed, number uint64) *RNG { return NewRNG(routing.Draw(seed) + number) }

// Uint64 returns 64 random bits.
func (d *RNG) Uint64() uint64 {
	d.state ^= d.state >> 12
	d.state ^= d.state << 25
	d.state ^= d.state >> 27
	return d.state * 0x2545F4914F6CDD1D
}

// Unit returns a number in [0, 1).
func (d *RNG) Unit() float64 { return routing.Unit(d.Uint64()) }

// Below returns a number from 0 to n-1; n must be positive.
func (d *RNG) Below(n int) int { return int(d.Unit() * float64(n)) }

// Exp returns a time with an exponential distribution of that mean.
func (d *RNG) Exp(mean time.Duration) time.Duration {
	return time.Duration(-math.Log(1-d.Unit()) * float64(mean))
}

// Lognormal returns a number with a normally distributed logarithm, with that median and that
// standard deviation of the logarithm.
func (d *RNG) Lognormal(median, sigma float64) float64 {
	// The Box-Muller transform. Its second number is dropped, so that every call
	// draws twice.
	normal := math.Sqrt(-2*math.Log(1-d.Unit())) * math.Cos(2*math.Pi*d.Unit())
	return median * math.Exp(sigma*normal)
}
