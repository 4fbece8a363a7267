package routing

import "math"

// regressors are the facts on which a time depends linearly.
type regressors [regressorCount]float64

const regressorCount = 4

// regression learns a time as a linear function of its regressors from samples with relative errors:
// recursive least squares with weights 1/prediction², exponential forgetting, and a covariance that
// never exceeds its start, so that the coefficients of regressors that do not vary stay. A coefficient with
// a variance of 0 at the start keeps its prior.
type regression struct {
	coefficients    regressors
	covariance      [regressorCount]regressors
	start           regressors // variances at the start
	maxCoefficients regressors // upper bounds of the coefficients; the lower ones are 0
}

const (
	// forgetting gives a sample half of its weight after 1,400 samples.
	forgetting = 0.9995
	// relativeNoise is the assumed standard deviation of a sample, as a share of its prediction.
	relativeNoise = 0.3
	// maxRatio bounds the ratio of a sample and its prediction, in both directions.
	maxRatio = 3
)

// newRegression returns a regression with a prior, coefficients and their standard deviations, and upper
// bounds of the coefficients.
func newRegression(prior, deviation, maxCoefficients regressors) (g regression) {
	g.coefficients, g.maxCoefficients = prior, maxCoefficients
	for i, d := range deviation {
		g.start[i] = d * d
		g.covariance[i][i] = d * d
	}
	return g
}

// follow sets the prior of coefficient i to a ratio of coefficient j. Samples that show only j change both, and
// keep the ratio. The deviation of i in newRegression becomes that of its difference from the ratio.
func (g *regression) follow(i, j int, ratio float64) {
	shared := ratio * g.start[j]
	g.coefficients[i] = ratio * g.coefficients[j]
	g.covariance[i][j], g.covariance[j][i] = shared, shared
	g.start[i] += ratio * shared
	g.covariance[i][i] = g.start[i]
}

// predict returns the time for these regressors.
func (g *regression) predict(x regressors) (y float64) {
	for i := range x {
		y += g.coefficients[i] * x[i]
	}
	return y
}

// learn adds a sample: the time y, measured with the regressors x. If a sample would move a
// coefficient beyond its bound, that coefficient stays, and the others absorb the whole difference.
func (g *regression) learn(x regressors, y float64) {
	predicted := g.predict(x)
	if !(predicted > 0) || !(y > 0) || math.IsInf(y, 1) {
		return
	}
	difference := min(max(y, predicted/maxRatio), predicted*maxRatio) - predicted
	noise := forgetting * relativeNoise * relativeNoise * predicted * predicted
	var stays [regressorCount]bool
	gain, variance := g.covarianceTimes(x, stays, noise)
	for i, c := range g.coefficients {
		stays[i] = c <= 0 && gain[i]*difference < 0 || c >= g.maxCoefficients[i] && gain[i]*difference > 0
	}
	free, freeVariance := g.covarianceTimes(x, stays, noise)
	if !(variance > 0) || !(freeVariance > 0) {
		return // a time of almost 0: its noise is lost to rounding
	}
	for i, c := range g.coefficients {
		g.coefficients[i] = min(max(0, c+free[i]/freeVariance*difference), g.maxCoefficients[i])
	}
	// The covariance shrinks as if all coefficients had learned. Otherwise the noise of many samples would move
	// a coefficient off its bound.
	g.reduceCovariance(gain, variance)
	g.boundCovariance()
}

// covarianceTimes returns covariance · x, and the predicted variance of a sample. Coefficients that stay count as
// exact.
func (g *regression) covarianceTimes(x regressors, stays [regressorCount]bool, noise float64) (regressors, float64) {
	variance, gain := noise, regressors{}
	for i := range x {
		if stays[i] {
			continue
		}
		for j := range x {
			if !stays[j] {
				gain[i] += g.covariance[i][j] * x[j]
			}
		}
		variance += x[i] * gain[i]
	}
	return gain, variance
}

// reduceCovariance updates the covariance after a sample.
func (g *regression) reduceCovariance(gain regressors, variance float64) {
	for i := range gain {
		for j := range gain {
			g.covariance[i][j] = (g.covariance[i][j] - gain[i]*gain[j]/variance) / forgetting
		}
	}
}

// boundCovariance scales rows and columns so that no variance exceeds its start.
func (g *regression) boundCovariance() {
	for i := range g.start {
		if v := g.covariance[i][i]; v > g.start[i] {
			scale := math.Sqrt(g.start[i] / v)
			for j := range g.start {
				g.covariance[i][j] *= scale
				g.covariance[j][i] *= scale
			}
		}
	}
}
