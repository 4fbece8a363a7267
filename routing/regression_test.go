package routing

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// noisy returns a factor with a median of 1 from two uniform draws.
func noisy(state *uint64, sigma float64) float64 {
	*state++
	a, b := Unit(Draw(*state)), Unit(Draw(*state+1<<40))
	return math.Exp(sigma * math.Sqrt(-2*math.Log(1-a)) * math.Cos(2*math.Pi*b))
}

func TestRegressionFindsTheCoefficientsThroughNoise(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		true3 := [3]float64{rapid.Float64Range(0.002, 0.05).Draw(rt, "overhead"),
			1 / rapid.Float64Range(2000, 50000).Draw(rt, "rate"), 0}
		true3[2] = true3[1] * rapid.Float64Range(0, 0.01).Draw(rt, "slowdown")
		g := newRegression([3]float64{0.025, 1.0 / 8000, 0}, [3]float64{0.05, 1.0 / 4000, 1.0 / 400_000},
			[3]float64{10, 1, 1})
		state := rapid.Uint64().Draw(rt, "seed")
		sample := func() [3]float64 {
			state++
			u, n := 100+12_000*Unit(Draw(state)), math.Floor(60*Unit(Draw(state+1<<50)))
			return [3]float64{1, u, u * n}
		}
		for range 3000 {
			x := sample()
			y := true3[0] + true3[1]*x[1] + true3[2]*x[2]
			g.learn(x, y*noisy(&state, 0.2))
		}
		for range 100 {
			x := sample()
			want := true3[0] + true3[1]*x[1] + true3[2]*x[2]
			if got := g.predict(x); math.Abs(got/want-1) > 0.2 {
				rt.Fatalf("for %v it predicts %v, and the time is %v (coefficients %v, want %v)", x, got, want,
					g.coefficients, true3)
			}
		}
	})
}

func TestRegressionStaysFiniteWhateverItLearns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := newRegression([3]float64{0.025, 1.0 / 8000, 0}, [3]float64{0.05, 1.0 / 4000, 1.0 / 400_000},
			[3]float64{10, 1, 1})
		value := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1e6), rapid.Just(math.Inf(1)), rapid.Just(math.NaN()))
		fact := rapid.Float64Range(0, 1e7)
		for range rapid.IntRange(1, 200).Draw(rt, "samples") {
			g.learn([3]float64{1, fact.Draw(rt, "u"), fact.Draw(rt, "un")}, value.Draw(rt, "y"))
		}
		for i, c := range g.coefficients {
			if !(c >= 0) || math.IsInf(c, 1) || !(g.covariance[i][i] <= g.start[i]*1.001) {
				rt.Fatalf("coefficients %v, covariance %v", g.coefficients, g.covariance)
			}
		}
	})
}
