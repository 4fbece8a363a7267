package training

import (
	"math"
	"slices"

	"tierway/tierscore"
)

// pairWeight is the weight of each label of a request that both tiers answered. A pair shows which of the two answers
// is right, and one pair is worth four to five single labels.
const pairWeight = 4

// folds is the number of parts of the cross-validation.
const folds = 5

// lambdas are the tried strengths of the regularisation.
func lambdas() []float64 { return []float64{300, 100, 30, 10, 3} }

// Fit fits a model to all requests without evaluating it. The model is enabled.
func (d *Data) Fit() (*tierscore.Model, error) {
	m, _, err := d.fit(d.all())
	if err == nil {
		m.Enabled = true
	}
	return m, err
}

// all returns the indexes of all rows.
func (d *Data) all() []int {
	rows := make([]int, len(d.rows))
	for i := range rows {
		rows[i] = i
	}
	return rows
}

// fit fits a model to rows; its strength of regularisation is chosen by cross-validation.
func (d *Data) fit(rows []int) (m *tierscore.Model, lambda float64, err error) {
	if lambda, err = d.chooseLambda(rows); err != nil {
		return nil, 0, err
	}
	m, err = d.model(rows, lambda, &[2][]float64{})
	return m, lambda, err
}

// model fits both heads to rows. start has parameters near the solution, or nil, and gets those of the solution.
func (d *Data) model(rows []int, lambda float64, start *[2][]float64) (*tierscore.Model, error) {
	routes := d.routes(rows)
	columns := map[uint32]int{}
	for i, route := range routes {
		columns[route] = tierscore.Columns + i
	}
	var heads [2]tierscore.Head
	for tier := range heads {
		w := newProblem(d, rows, columns, tier, lambda).solve(start[tier])
		start[tier] = w
		weights := make([]float64, len(w)-1)
		for c := range weights {
			weights[c] = w[c] * scaleOf(c)
		}
		heads[tier] = tierscore.Head{Bias: w[len(w)-1], Weights: weights}
	}
	m, err := tierscore.NewModel(d.key, routes, heads[0], heads[1])
	if err != nil {
		return nil, err
	}
	differences, baselines := make([]float64, len(rows)), make([]float64, len(rows))
	for k, i := range rows {
		differences[k], _ = d.difference(m, i)
		baselines[k] = d.rows[i].baseline
	}
	m.Standardize(differences, baselines)
	return m, nil
}

// difference returns the difference of a row; ok is false if its route has no label in the model.
func (d *Data) difference(m *tierscore.Model, i int) (float64, bool) {
	return m.DifferenceOf(d.columns(i), d.rows[i].words, d.rows[i].route)
}

// scaleOf returns the factor from a parameter of the problem to the weight of the model.
func scaleOf(column int) float64 {
	switch {
	case column >= tierscore.Columns:
		return routeScale
	case column >= tierscore.WordColumns:
		return countScale
	}
	return wordScale
}

// routes returns the routes of rows in rising order; of more than a model can have, those with the most rows.
func (d *Data) routes(rows []int) []uint32 {
	n := map[uint32]int{}
	for _, i := range rows {
		n[d.rows[i].route]++
	}
	all := make([]uint32, 0, len(n))
	for route := range n {
		all = append(all, route)
	}
	slices.Sort(all)
	if len(all) > tierscore.MaxRoutes {
		slices.SortStableFunc(all, func(a, b uint32) int { return n[b] - n[a] })
		all = all[:tierscore.MaxRoutes]
		slices.Sort(all)
	}
	return all
}

// chooseLambda returns the strength of regularisation with the least squared error of the predicted gains, by
// cross-validation. The area APGR itself varies more from fold to fold, and selects worse with few labels.
func (d *Data) chooseLambda(rows []int) (float64, error) {
	fold := d.foldsOf(rows)
	strengths := lambdas()
	predicted := make([][]float64, len(strengths))
	for k := range predicted {
		predicted[k] = make([]float64, len(rows))
	}
	for part := range folds {
		var train []int
		for k, i := range rows {
			if fold[k] != part {
				train = append(train, i)
			}
		}
		var start [2][]float64
		for s, lambda := range strengths {
			m, err := d.model(train, lambda, &start)
			if err != nil {
				return 0, err
			}
			for k, i := range rows {
				if fold[k] == part {
					predicted[s][k], _ = d.difference(m, i)
				}
			}
		}
	}
	gains := d.gains(rows)
	best, strength := math.Inf(1), strengths[0]
	for s, lambda := range strengths {
		sum := 0.0
		for k, gain := range gains {
			sum += (gain - predicted[s][k]) * (gain - predicted[s][k])
		}
		if sum < best {
			best, strength = sum, lambda
		}
	}
	return strength, nil
}

// foldsOf returns the part of each row. Neighbours in time are in one part, because they may be repetitions.
func (d *Data) foldsOf(rows []int) []int {
	fold := make([]int, len(rows))
	for k := range rows {
		fold[k] = k * folds * 4 / len(rows) % folds
	}
	return fold
}

// gains returns an estimate of P(large right) − P(small right) of each row from its labels. It is exact for pairs. A
// row with one label gets the mean of the other tier, and its own deviation counts as often as labels are missing
// (augmented inverse probability weighting with constant means; Robins, Rotnitzky and Zhao, 1994).
func (d *Data) gains(rows []int) []float64 {
	var mean, share [2]float64
	for tier := range mean {
		var right, n float64
		for _, i := range rows {
			if s := d.rows[i].sides[tier]; s.weight > 0 {
				right, n = right+s.right/s.weight, n+1
			}
		}
		mean[tier], share[tier] = right/math.Max(n, 1), n/float64(len(rows))
	}
	gains := make([]float64, len(rows))
	for k, i := range rows {
		r := &d.rows[i]
		if r.paired() && share[0] == 1 && share[1] == 1 {
			gains[k] = r.sides[1].right/r.sides[1].weight - r.sides[0].right/r.sides[0].weight
			continue
		}
		gains[k] = mean[1] - mean[0]
		for tier, sign := range []float64{-1, 1} {
			if s := r.sides[tier]; s.weight > 0 {
				gains[k] += sign * (s.right/s.weight - mean[tier]) / share[tier]
			}
		}
	}
	return gains
}
