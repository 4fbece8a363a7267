package responsecache

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestRotationSpreadsDifferences: rotated vectors keep their distance, and their first segments stay within the bounds,
// wherever the vectors differ: everywhere, in one number, in one segment or in every 64th number.
func TestRotationSpreadsDifferences(t *testing.T) {
	var random *rand.Rand
	differences := map[string]func(d []float32){
		"everywhere": func(d []float32) {
			for i := range d {
				d[i] = float32(random.NormFloat64())
			}
		},
		"in one number": func(d []float32) { d[random.IntN(len(d))] = 1 },
		"in one segment": func(d []float32) {
			from := random.IntN((len(d)+63)/64) * 64
			for i := from; i < min(from+64, len(d)); i++ {
				d[i] = float32(random.NormFloat64())
			}
		},
		"in every 64th number": func(d []float32) {
			for i := random.IntN(64) % len(d); i < len(d); i += 64 {
				d[i] = float32(random.NormFloat64())
			}
		},
	}
	for name, differ := range differences {
		random = rand.New(rand.NewPCG(7, 8))
		exceed, pairs := 0, 0
		for _, dims := range []int{65, 192, 384, 1000, 1536, 4096} {
			limits := newBounds(max(2, (dims+63)/64))
			for range 500 {
				v, d := randomVector(random, dims), make([]float32, dims)
				differ(d)
				Normalize(d)
				for i := range d {
					d[i] = v[i] + d[i]/4
				}
				a, b := rotate(v), rotate(d)
				exact, _ := limits.distanceWithin(0, 0, a, b, math.MaxFloat32)
				if math.Abs(float64(exact)*16-1) > 1e-4 {
					t.Fatalf("%s, %d dimensions: %v instead of 1/16", name, dims, exact)
				}
				pairs++
				if _, ok := limits.distanceWithin(0, 0, a, b, exact); !ok {
					exceed++
				}
			}
		}
		t.Logf("%s: %d of %d pairs exceed a bound", name, exceed, pairs)
		if exceed*500 > pairs {
			t.Errorf("%s: %d of %d pairs exceed a bound", name, exceed, pairs)
		}
	}
}
