package training

import (
	"math"
	"slices"

	"tierway/tierscore"
)

// pairWeight is the weight of each label of a request with labels of both tiers: a pair shows which answer is better.
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

// difference returns the difference of a row; ok is false if the model does not know its route.
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

// minRouteLabels is the least number of labels of each tier with which a model knows a route. A share of 20 labels has
// a standard error of at most 0.11. The default score is safer than a model that has seen less.
const minRouteLabels = 20

// routes returns the routes of rows with enough labels in rising order; of more than a model can have, those with the
// most rows.
func (d *Data) routes(rows []int) []uint32 {
	n, labels := map[uint32]int{}, map[uint32][2]int{}
	for _, i := range rows {
		r := &d.rows[i]
		n[r.route]++
		perTier := labels[r.route]
		for tier := range perTier {
			perTier[tier] += count(r.tiers[tier].all.weight > 0)
		}
		labels[r.route] = perTier
	}
	var all []uint32
	for route, perTier := range labels {
		if min(perTier[0], perTier[1]) >= minRouteLabels {
			all = append(all, route)
		}
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
// cross-validation. The area APGR itself varies more from fold to fold, and selects worse with few labels. Without
// random labels it is the largest.
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
		for k, i := range rows {
			if d.rows[i].random() {
				sum += (gains[k] - predicted[s][k]) * (gains[k] - predicted[s][k])
			}
		}
		if sum < best {
			best, strength = sum, lambda
		}
	}
	return strength, nil
}

// foldsOf returns the part of each row. Equal requests, and neighbours in time, are in one part.
func (d *Data) foldsOf(rows []int) []int {
	fold, clusters := make([]int, len(rows)), d.clusters(rows)
	for c, cluster := range clusters {
		for _, k := range cluster {
			fold[k] = c * folds * 4 / len(clusters) % folds
		}
	}
	return fold
}

// gains returns an estimate of P(large right) − P(small right) of each row from its random labels.
func (d *Data) gains(rows []int) []float64 {
	_, gains := d.qualities(rows)
	return gains
}

// qualities returns estimates of P(small right), and of the gains P(large right) − P(small right), of each row from its
// random labels. They are exact for pairs. Each other row has the means of all unpaired rows, and its own deviation
// from the mean counts as often as labels of its tier are missing (augmented inverse probability weighting with
// constant means; Robins, Rotnitzky and Zhao, 1994). Rows without random labels have 0.
func (d *Data) qualities(rows []int) (small, gains []float64) {
	var unpaired, paired [2]tally // one label of each row
	n := 0.0
	for _, i := range rows {
		r := &d.rows[i]
		to := &unpaired
		if r.tiers[0].random.weight > 0 && r.tiers[1].random.weight > 0 {
			to = &paired
		} else if r.random() {
			n++
		}
		for tier := range to {
			if labels := r.tiers[tier].random; labels.weight > 0 {
				to[tier].weight, to[tier].right = to[tier].weight+1, to[tier].right+labels.share()
			}
		}
	}
	var mean, probability [2]float64
	for tier, labels := range unpaired {
		if probability[tier] = labels.weight / n; labels.weight == 0 {
			labels = paired[tier] // the best estimate if all single labels are of the other tier
		}
		mean[tier] = labels.share()
	}
	small, gains = make([]float64, len(rows)), make([]float64, len(rows))
	for k, i := range rows {
		r := &d.rows[i]
		right := mean
		switch a, b := r.tiers[0].random, r.tiers[1].random; {
		case a.weight > 0 && b.weight > 0:
			right = [2]float64{a.share(), b.share()}
		case a.weight > 0:
			right[0] += (a.share() - mean[0]) / probability[0]
		case b.weight > 0:
			right[1] += (b.share() - mean[1]) / probability[1]
		default:
			continue
		}
		small[k], gains[k] = right[0], right[1]-right[0]
	}
	return small, gains
}
