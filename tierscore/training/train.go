// Package training fits models of package tierscore to recorded features and labels, and evaluates them on held-out
// requests. Equal input gives equal output.
package training

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"tierway/tierscore"
)

// minLabels is the least number of labels of each tier. With fewer, no interval excludes 0.
const minLabels = 50

// Report is the result of a training.
type Report struct {
	Requests int       `json:"requests"` // with labels
	Small    int       `json:"small"`    // requests with labels of the tier
	Large    int       `json:"large"`
	Paired   int       `json:"paired"`
	Routes   int       `json:"routes"`
	From     time.Time `json:"from"` // time of the first request
	To       time.Time `json:"to"`
	Lambda   float64   `json:"lambda"` // strength of the regularisation

	HeldOut    int      `json:"held_out"`    // requests of the evaluation
	Unseen     int      `json:"unseen"`      // of these, with a route without labels in the training
	Measured   bool     `json:"measured"`    // the intervals are known
	Learned    Interval `json:"learned"`     // APGR
	Baseline   Interval `json:"baseline"`    // APGR
	Difference Interval `json:"difference"`  // learned − baseline
	Reason     string   `json:"not_enabled"` // why the model is not enabled; empty if it is
}

// Train fits a model and evaluates it. The newest quarter of each route is held out. The evaluated model is fitted to
// the other requests, and the returned model to all. pick(n) returns a random number from 0 to n − 1.
//
// The model is enabled if the lower bound of the difference is above 0. It is an error if a tier has too few labels.
func (d *Data) Train(pick func(n int) int) (*tierscore.Model, *Report, error) {
	slices.SortStableFunc(d.rows, func(a, b row) int {
		return cmp.Or(a.time.Compare(b.time), cmp.Compare(a.first, b.first))
	})
	r := d.describe()
	if min(r.Small, r.Large) < minLabels {
		return nil, nil, fmt.Errorf("%d labels of the small and %d of the large tier have features: %d of each are needed",
			r.Small, r.Large, minLabels)
	}
	train, test := d.split()
	evaluated, lambda, err := d.fit(train)
	if err != nil {
		return nil, nil, err
	}
	d.evaluate(r, evaluated, test, pick)
	m, err := d.model(d.all(), lambda, &[2][]float64{})
	if err != nil {
		return nil, nil, err
	}
	r.Lambda, m.Enabled = lambda, r.Reason == ""
	if m.Report, err = json.Marshal(r); err != nil {
		return nil, nil, fmt.Errorf("writing the report: %w", err)
	}
	return m, r, nil
}

// describe returns the report of the data. The rows are sorted by time.
func (d *Data) describe() *Report {
	r := &Report{Requests: len(d.rows)}
	routes := map[uint32]bool{}
	for i := range d.rows {
		one := &d.rows[i]
		routes[one.route] = true
		r.Small += count(one.sides[0].weight > 0)
		r.Large += count(one.sides[1].weight > 0)
		r.Paired += count(one.paired())
	}
	if r.Routes = len(routes); r.Requests > 0 {
		r.From, r.To = d.rows[0].time, d.rows[len(d.rows)-1].time
	}
	return r
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// blocks is the number of parts of the time of all requests. Requests of one part and one route are held out together,
// because neighbours may be repetitions.
const blocks = 20

// group is the requests of one route in one part of the time.
type group struct {
	block int
	rows  []int
}

// split returns the rows to train with and the held-out ones. Of each route, the newest groups are held out until they
// have a quarter of its rows. The oldest group is never held out, unless it is the only one: then every fourth route
// is, so that the fallback for routes without labels is evaluated too.
func (d *Data) split() (train, test []int) {
	byRoute := map[uint32][]group{}
	from, span := d.rows[0].time, d.rows[len(d.rows)-1].time.Sub(d.rows[0].time)+1
	for i, one := range d.rows {
		block := int(float64(one.time.Sub(from)) / float64(span) * blocks)
		groups := byRoute[one.route]
		if len(groups) == 0 || groups[len(groups)-1].block != block {
			groups = append(groups, group{block: block})
		}
		last := &groups[len(groups)-1]
		last.rows = append(last.rows, i)
		byRoute[one.route] = groups
	}
	for _, route := range slices.Sorted(maps.Keys(byRoute)) {
		groups, n := byRoute[route], 0
		for _, g := range groups {
			n += len(g.rows)
		}
		held := 0
		for k, g := range slices.Backward(groups) {
			if alone := len(groups) == 1; 4*held < n && k > 0 || alone && route%4 == 0 && len(byRoute) > 1 {
				held, test = held+len(g.rows), append(test, g.rows...)
			} else {
				train = append(train, g.rows...)
			}
		}
	}
	slices.Sort(train)
	slices.Sort(test)
	return train, test
}

// minHeldOut is the least number of held-out labels of each tier.
const minHeldOut = 20

// evaluate compares a model with the default score on held-out rows and sets the result in the report.
func (d *Data) evaluate(r *Report, m *tierscore.Model, test []int, pick func(n int) int) {
	var rows []int
	var labels [2]int
	for _, i := range test {
		sides := &d.rows[i].sides
		if slices.ContainsFunc(sides[:], func(s side) bool { return s.weight > 0 && !s.chance }) {
			continue
		}
		rows = append(rows, i)
		for tier := range labels {
			labels[tier] += count(sides[tier].weight > 0)
		}
	}
	r.HeldOut = len(rows)
	if min(labels[0], labels[1]) < minHeldOut {
		r.Reason = fmt.Sprintf("%d labels of the small and %d of the large tier are held out, %d of each are needed: "+
			"collect more labels of the sources replay and exploration", labels[0], labels[1], minHeldOut)
		return
	}
	learned, baseline := make([]float64, len(rows)), make([]float64, len(rows))
	for k, i := range rows {
		baseline[k] = d.rows[i].baseline
		difference, ok := d.difference(m, i)
		if learned[k] = m.Standard(difference); !ok {
			learned[k] = m.Default(baseline[k])
			r.Unseen++
		}
	}
	of, ok := compare(learned, baseline, d.gains(rows), pick)
	if !ok {
		r.Reason = "the large tier is not better than the small one on the held-out requests"
		return
	}
	r.Measured = true
	r.Learned, r.Baseline, r.Difference = of[0], of[1], of[2]
	if r.Difference.Low <= 0 {
		r.Reason = "the model is not better than the default score: the 95 % interval of the difference includes 0"
		if r.Difference.High < 0 {
			r.Reason = "the model is worse than the default score"
		}
	}
}
