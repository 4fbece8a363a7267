package routing

import "math"

// regression learns a time as a linear function of three facts from samples with relative errors:
// recursive least squares with weights 1/prediction², exponential forgetting, and a covariance that
// never exceeds its start, so that facts that do not vary keep their coefficients.
type regression struct {
	coefficients [3]float64
	covariance   [3][3]float64
	start        [3]float64 // variances at the start
	most         [3]float64 // upper bounds of the coefficients; the lower ones are 0
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
func newRegression(prior, deviation, most [3]float64) (g regression) {
	g.coefficients, g.most = prior, most
	for i, d := range deviation {
		g.start[i] = d * d
		g.covariance[i][i] = d * d
	}
	return g
}

// predict returns the time for these facts.
func (g *regression) predict(x [3]float64) (y float64) {
	for i := range x {
		y += g.coefficients[i] * x[i]
	}
	return y
}

// learn adds a sample: y was measured where the facts were x.
func (g *regression) learn(x [3]float64, y float64) {
	predicted := g.predict(x)
	if !(predicted > 0) || !(y > 0) || math.IsInf(y, 1) {
		return
	}
	y = min(max(y, predicted/maxRatio), predicted*maxRatio)
	noise := relativeNoise * predicted
	var px [3]float64 // covariance · x
	s := forgetting * noise * noise
	for i := range px {
		for j := range x {
			px[i] += g.covariance[i][j] * x[j]
		}
		s += x[i] * px[i]
	}
	for i := range px {
		g.coefficients[i] = min(max(0, g.coefficients[i]+px[i]/s*(y-predicted)), g.most[i])
	}
	for i := range px {
		for j := range px {
			g.covariance[i][j] = (g.covariance[i][j] - px[i]*px[j]/s) / forgetting
		}
	}
	g.boundCovariance()
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
