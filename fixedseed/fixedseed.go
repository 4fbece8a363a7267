// Package fixedseed makes random tests draw the same values in each run.
//
// A test package that uses rapid imports it, without a name. Its properties are then checked with seed 1.
// The flag -rapid.seed still selects another seed, and TIERWAY_SEED=random a new one for each run; rapid
// prints the seed of a failure.
package fixedseed

import (
	"flag"
	"math/rand/v2"
	"os"
	"sync"

	_ "pgregory.net/rapid" // defines the flag
)

var _ = fixRapid()

func isRandom() bool { return os.Getenv("TIERWAY_SEED") == "random" }

// fixRapid sets the seed before the flags of the command line are parsed. A flag instead of this function
// would have to be passed to each go test, and go test does not cache runs with unknown flags.
func fixRapid() error {
	if isRandom() {
		return nil
	}
	if err := flag.Set("rapid.seed", "1"); err != nil {
		panic(err)
	}
	return nil
}

// Seeds returns the numbers 1 to n, and a random one more if TIERWAY_SEED is random. Name the sub-test after it.
func Seeds(n int) (seeds []uint64) {
	for i := range n {
		seeds = append(seeds, uint64(i+1))
	}
	if isRandom() {
		seeds = append(seeds, rand.Uint64())
	}
	return seeds
}

// Uint64 returns a source of random numbers that begins with the same number in each run. It may be called
// concurrently.
func Uint64() func() uint64 { return concurrent(random().Uint64) }

// Float64 returns a source of random numbers in [0, 1) that begins with the same number in each run. It
// may be called concurrently.
func Float64() func() float64 { return concurrent(random().Float64) }

func random() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// concurrent returns f behind a mutex.
func concurrent[T any](f func() T) func() T {
	var mu sync.Mutex
	return func() T {
		mu.Lock()
		defer mu.Unlock()
		return f()
	}
}
