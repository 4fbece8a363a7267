package training

import (
	"math"

	"tierway/tierscore"
)

// Scales of the columns beside [tierscore.WordValue]. A larger scale means less regularisation. One exam question has
// about 100 words and bigrams and 40 other columns, so these scales give the three kinds a similar share. They were
// selected on exam questions; factors of two change the result by less than 0.01 APGR.
const (
	wordScale  = 4
	countScale = 1
	routeScale = 4
)

// problem is one logistic head: it minimises
//
//	λ/2·|w|² + Σ weight·loss(right share, w·x)
//
// where loss is the cross-entropy (log loss). The last parameter is the bias, which has no penalty.
type problem struct {
	data   *Data
	rows   []int
	routes map[uint32]int // column of each route
	right  []float64      // share of right answers of each row, 0 to 1
	weight []float64      // of each row
	lambda float64
	size   int // of the parameters
}

// newProblem returns the problem of a tier's head over the rows that have a label of the tier.
func newProblem(d *Data, rows []int, routes map[uint32]int, tier int, lambda float64) *problem {
	p := &problem{data: d, routes: routes, lambda: lambda, size: tierscore.Columns + len(routes) + 1}
	for _, i := range rows {
		s := d.rows[i].tiers[tier].all
		if s.weight == 0 {
			continue
		}
		weight := s.weight
		if d.rows[i].paired() {
			weight *= pairWeight
		}
		p.rows, p.right, p.weight = append(p.rows, i), append(p.right, s.share()), append(p.weight, weight)
	}
	return p
}

// dot returns w·x of a row.
func (p *problem) dot(i int, w []float64) float64 {
	r, columns := &p.data.rows[i], p.data.columns(i)
	var words, counts float64
	for _, c := range columns[:r.words] {
		words += w[c]
	}
	for _, c := range columns[r.words:] {
		counts += w[c]
	}
	z := words*wordScale*tierscore.WordValue(r.words) + counts*countScale + w[p.size-1]
	if at, ok := p.routes[r.route]; ok {
		z += w[at] * routeScale
	}
	return z
}

// accumulate adds factor·x of a row to a sum.
func (p *problem) accumulate(i int, factor float64, sum []float64) {
	r, columns := &p.data.rows[i], p.data.columns(i)
	words := factor * wordScale * tierscore.WordValue(r.words)
	for _, c := range columns[:r.words] {
		sum[c] += words
	}
	for _, c := range columns[r.words:] {
		sum[c] += factor * countScale
	}
	sum[p.size-1] += factor
	if at, ok := p.routes[r.route]; ok {
		sum[at] += factor * routeScale
	}
}

// penalty sets sum to the gradient of the penalty.
func (p *problem) penalty(w, sum []float64) {
	for j, x := range w[:p.size-1] {
		sum[j] = p.lambda * x
	}
	sum[p.size-1] = 0
}

// loss returns the objective and sets outputs to the probability of each row.
func (p *problem) loss(w, outputs []float64) float64 {
	sum := p.lambda / 2 * product(w[:p.size-1], w[:p.size-1])
	for k, i := range p.rows {
		z := p.dot(i, w)
		outputs[k] = tierscore.Logistic(z)
		// log(1 + e^z) − right·z, without overflow
		sum += p.weight[k] * (math.Max(z, 0) + math.Log1p(math.Exp(-math.Abs(z))) - p.right[k]*z)
	}
	return sum
}

// Limits of the solver. It ends at a gradient of tolerance times that of w = 0; the order of scores is then stable.
const (
	newtonSteps    = 50
	conjugateSteps = 100
	tolerance      = 1e-4
)

// solve returns the minimum. It is found by Newton's method: the steps are solved by conjugate gradients and halved
// until the loss falls (Nocedal and Wright, Numerical Optimization, algorithm 7.1). It uses no randomness.
func (p *problem) solve(start []float64) []float64 {
	w, next, gradient := make([]float64, p.size), make([]float64, p.size), make([]float64, p.size)
	outputs := make([]float64, len(p.rows))
	p.loss(w, outputs)
	first := p.gradient(w, outputs, gradient)
	if start != nil {
		copy(w, start)
	}
	loss := p.loss(w, outputs)
	for range newtonSteps {
		norm := p.gradient(w, outputs, gradient)
		if norm <= tolerance*first {
			break
		}
		direction := p.step(gradient, outputs, norm*math.Min(0.1, math.Sqrt(norm/first)))
		slope := product(gradient, direction)
		for factor := 1.0; factor > 1e-6; factor /= 2 {
			for j := range w {
				next[j] = w[j] + factor*direction[j]
			}
			if lower := p.loss(next, outputs); lower <= loss+1e-4*factor*slope || factor < 2e-6 {
				loss = lower
				break
			}
		}
		w, next = next, w
	}
	return w
}

// gradient sets sum to the gradient and returns its norm.
func (p *problem) gradient(w, outputs, sum []float64) float64 {
	p.penalty(w, sum)
	for k, i := range p.rows {
		p.accumulate(i, p.weight[k]*(outputs[k]-p.right[k]), sum)
	}
	return math.Sqrt(product(sum, sum))
}

// step solves H·d = −gradient up to a residual, where H is the Hessian.
func (p *problem) step(gradient, outputs []float64, residual float64) []float64 {
	d, rest := make([]float64, p.size), make([]float64, p.size)
	conjugate, image := make([]float64, p.size), make([]float64, p.size)
	for j, g := range gradient {
		rest[j], conjugate[j] = -g, -g
	}
	square := product(rest, rest)
	for range conjugateSteps {
		if math.Sqrt(square) <= residual {
			break
		}
		p.penalty(conjugate, image)
		for k, i := range p.rows {
			p.accumulate(i, p.weight[k]*outputs[k]*(1-outputs[k])*p.dot(i, conjugate), image)
		}
		length := square / product(conjugate, image)
		for j := range d {
			d[j] += length * conjugate[j]
			rest[j] -= length * image[j]
		}
		before := square
		square = product(rest, rest)
		for j := range conjugate {
			conjugate[j] = rest[j] + square/before*conjugate[j]
		}
	}
	return d
}

func product(a, b []float64) float64 {
	sum := 0.0
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}
