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

// prefillModel returns a model with the priors of prefills.
func prefillModel() regression {
	t := newWorkTimes()
	return t.prefill[oneByOne].regression
}

func TestRegressionFindsTheCoefficientsThroughNoise(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		truth := regressors{xAlone: rapid.Float64Range(0.002, 0.05).Draw(rt, "alone"),
			xBehind: rapid.Float64Range(0, 0.02).Draw(rt, "behind"),
			xTokens: 1 / rapid.Float64Range(2000, 50000).Draw(rt, "rate")}
		truth[xInflightTokens] = truth[xTokens] * rapid.Float64Range(0, 0.01).Draw(rt, "slowdown")
		time := func(x regressors) (y float64) {
			for i := range x {
				y += truth[i] * x[i]
			}
			return y
		}
		g := prefillModel()
		state := rapid.Uint64().Draw(rt, "seed")
		sample := func() regressors {
			state++
			u, n := 100+12_000*Unit(Draw(state)), math.Floor(60*Unit(Draw(state+1<<50)))
			x := prefillRegressors(u, n, false)
			x[xBehind] = math.Floor(4 * Unit(Draw(state+1<<51)))
			return x
		}
		for range 3000 {
			x := sample()
			g.learn(x, time(x)*noisy(&state, 0.2))
		}
		for range 100 {
			x := sample()
			// Near the edges of the range the noise of the samples leaves a larger error, which the model knows.
			_, variance := g.covarianceTimes(x, [regressorCount]bool{}, 0)
			expected := math.Sqrt(variance)
			if got, want := g.predict(x), time(x); math.Abs(got-want) > 0.1*want+2*expected || expected > 0.25*want+0.005 {
				rt.Fatalf("for %v it predicts %v ± %v, and the time is %v (coefficients %v, want %v)", x, got, expected,
					want, g.coefficients, truth)
			}
		}
	})
}

func TestRegressionStaysFiniteWhateverItLearns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := rapid.SampledFrom([]regression{prefillModel(), newWorkTimes().decode}).Draw(rt, "model")
		value := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1e6), rapid.Just(math.Inf(1)), rapid.Just(math.NaN()))
		fact := rapid.Float64Range(0, 1e7)
		for range rapid.IntRange(1, 200).Draw(rt, "samples") {
			g.learn(regressors{1, fact.Draw(rt, "k"), fact.Draw(rt, "u"), fact.Draw(rt, "un")}, value.Draw(rt, "y"))
		}
		for i, c := range g.coefficients {
			if !(c >= 0) || math.IsInf(c, 1) || !(g.covariance[i][i] <= g.start[i]*1.001) {
				rt.Fatalf("coefficients %v, covariance %v", g.coefficients, g.covariance)
			}
		}
	})
}

// TestPriorOfConcurrencyFollowsTheStep: answers of single requests show the step, and the share that another answer
// adds to it stays.
func TestPriorOfConcurrencyFollowsTheStep(t *testing.T) {
	for _, step := range []float64{0.005, 0.025, 0.1} {
		g := newWorkTimes().decode
		for range 100 {
			g.learn(regressors{xToken: 1}, step)
		}
		if share := g.coefficients[xInflight] / g.coefficients[xToken]; math.Abs(share/concurrencyShare-1) > 0.01 ||
			math.Abs(g.coefficients[xToken]/step-1) > 0.05 {
			t.Errorf("steps of %v s: learned %v, of which another answer adds %v", step, g.coefficients[xToken], share)
		}
	}
}
