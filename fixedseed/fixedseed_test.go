package fixedseed

import (
	"flag"
	"testing"

	"pgregory.net/rapid"
)

// TestPropertiesDrawTheSameValuesInEachRun verifies the seed by the first value that a property draws.
func TestPropertiesDrawTheSameValuesInEachRun(t *testing.T) {
	if flag.Lookup("rapid.seed").Value.String() != "1" {
		t.Skip("the command line or TIERWAY_SEED has set another seed")
	}
	var drawn []uint64
	rapid.Check(t, func(rt *rapid.T) { drawn = append(drawn, rapid.Uint64().Draw(rt, "x")) })
	if want := uint64(14130); drawn[0] != want {
		t.Errorf("the first value is %d, want %d", drawn[0], want)
	}
}

func TestSourcesBeginWithTheSameNumber(t *testing.T) {
	if x, y := Uint64()(), Uint64()(); x != y {
		t.Errorf("the first numbers are %d and %d", x, y)
	}
	if x, y := Float64()(), Float64()(); x != y {
		t.Errorf("the first numbers are %g and %g", x, y)
	}
}

// TestChecksEndWithTheirTest verifies the number of drawn cases in a test with its own number, and after it.
func TestChecksEndWithTheirTest(t *testing.T) {
	if flag.Lookup("rapid.checks").Value.String() != "100" {
		t.Skip("the command line has set another number")
	}
	drawn := func(t *testing.T) (n int) {
		rapid.Check(t, func(*rapid.T) { n++ })
		return n
	}
	t.Run("its own number", func(t *testing.T) {
		if Checks(t, 7); drawn(t) != 7 {
			t.Error("the number is not 7")
		}
	})
	if drawn(t) != 100 {
		t.Error("a later test has not the usual number")
	}
}
