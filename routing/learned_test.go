package routing

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestPublishedValuesAreTheLearnedOnes: unpacking reverses packing; the scale is exact to 1e-7.
func TestPublishedValuesAreTheLearnedOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Learned{
			scale:     rapid.Float64Range(scaleLimits.floor, scaleLimits.ceiling).Draw(t, "scale"),
			output:    rapid.Int64Range(1, int64(outputLimits.ceiling)).Draw(t, "output"),
			outputP90: rapid.Int64Range(1, int64(outputLimits.ceiling)).Draw(t, "long"),
		}
		got := unpack(want.pack())
		if got.output != want.output || got.outputP90 != want.outputP90 || math.Abs(got.scale-want.scale) > 1e-7 {
			t.Errorf("%+v is read as %+v", want, got)
		}
	})
}
