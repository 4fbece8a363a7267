// Package fixedseed makes random tests draw the same values in each run.
//
// A test package that uses rapid imports this package without a name. Its properties are then checked with seed 1, or
// with the number in TIERWAY_SEED. `make soak` sets and prints this number. The flag -rapid.seed of the command line
// takes precedence.
//
// Large random tests are smaller in `make test` than in `make soak`; see [Samples] and [Checks].
package fixedseed

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	_ "pgregory.net/rapid" // defines the flag
)

// usual is the seed without TIERWAY_SEED.
const usual = 1

var seed = setSeed() //nolint:gochecknoglobals // one seed for the process, like the flag of rapid

// setSeed returns the seed and sets that of rapid before the flags of the command line are parsed. A flag instead of
// this function would have to be passed to each go test, and go test does not cache runs with unknown flags.
func setSeed() uint64 {
	n := uint64(usual)
	if text := os.Getenv("TIERWAY_SEED"); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			panic(fmt.Sprintf("TIERWAY_SEED is %q: write a number", text))
		}
	}
	if err := flag.Set("rapid.seed", strconv.FormatUint(n, 10)); err != nil {
		panic(err)
	}
	return n
}

// IsUsual reports whether TIERWAY_SEED has no other seed, as in the gate.
func IsUsual() bool { return seed == usual }

// Seeds returns 1 to n and the value of TIERWAY_SEED, if it is set and not 1. Name each sub-test after its seed.
func Seeds(n int) (seeds []uint64) {
	for i := range n {
		seeds = append(seeds, uint64(i+1))
	}
	if !IsUsual() {
		seeds = append(seeds, seed)
	}
	return seeds
}

// Samples returns how many samples a test draws: few in `make test`, and all in `make soak`, which sets TIERWAY_SOAK.
func Samples(few, all int) int {
	if os.Getenv("TIERWAY_SOAK") != "" {
		return all
	}
	return few
}

// Checks makes rapid draw n cases for each property of a test, unless the flag -rapid.checks has another number. The
// test must not run in parallel with others.
func Checks(t testing.TB, n int) {
	checks := flag.Lookup("rapid.checks")
	before := checks.Value.String()
	if before != checks.DefValue {
		return
	}
	set := func(text string) {
		if err := checks.Value.Set(text); err != nil {
			t.Fatal(err)
		}
	}
	set(strconv.Itoa(n))
	t.Cleanup(func() { set(before) })
}

// Uint64 returns a source of random numbers that begins with the same number in each run. It may be called
// concurrently.
func Uint64() func() uint64 { return concurrent(random().Uint64) }

// Float64 returns a source of random numbers in [0, 1) that begins with the same number in each run. It
// may be called concurrently.
func Float64() func() float64 { return concurrent(random().Float64) }

func random() *rand.Rand { return rand.New(rand.NewPCG(seed, 2)) }

// concurrent returns f behind a mutex.
func concurrent[T any](f func() T) func() T {
	var mu sync.Mutex
	return func() T {
		mu.Lock()
		defer mu.Unlock()
		return f()
	}
}
