package routing

import (
	"math"
	"testing"
)

func TestUnloadedLatencyModelFindsTheEnginesLine(t *testing.T) {
	for _, c := range []struct{ base, rate, sigma, off float64 }{
		{0.025, 8000, 0, 0.02}, {0.2, 8000, 0, 0.1}, {0.05, 500, 0, 0.1}, {0.025, 4000, 0.5, 0.5},
	} {
		var m unloadedLatencyModel
		d := rng(5)
		for i := range 400 {
			tokens := 100 * math.Exp(4*d.unit())
			took := (c.base + tokens/c.rate) * math.Exp(c.sigma*d.normal())
			level := 1 + i%8
			if i%2 == 0 { // half of all come at a level at which they wait
				level, took = 100, took+5
			}
			usual, upTo := m.line()
			m.learn(level, tokens, took, usual, upTo > 0)
		}
		l, upTo := m.line()
		for _, tokens := range []float64{100, 1000, 5000} {
			got, want := l.base+l.token*tokens, c.base+tokens/c.rate
			if upTo == 0 || upTo > 8 || math.Abs(got/want-1) > c.off {
				t.Errorf("%+v: %.0f tokens are taken to need %.3f s of %.3f", c, tokens, got, want)
			}
		}
	}
}
