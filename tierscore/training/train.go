// Package training fits models of package tierscore to recorded features and labels, and evaluates them on held-out
// requests. Equal input gives equal output.
package training

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"tierway/tierscore"
	"tierway/tierscore/curve"
)

// minLabels is the least number of labels of each tier. With fewer, intervals are too wide to be useful.
const minLabels = 50

// Report is the result of a training.
type Report struct {
	Requests int       `json:"requests"` // with labels
	Small    int       `json:"small"`    // requests with labels of the tier
	Large    int       `json:"large"`
	Paired   int       `json:"paired"`
	Explored int       `json:"explored"` // requests with labels whose tier was selected at random
	Routes   int       `json:"routes"`
	From     time.Time `json:"from"` // time of the first request
	To       time.Time `json:"to"`
	Lambda   float64   `json:"lambda"` // strength of the regularisation

	HeldOut    int            `json:"held_out"`   // requests of the evaluation
	Unseen     int            `json:"unseen"`     // of these, with a route that the evaluated model does not know
	Measured   bool           `json:"measured"`   // the intervals are known
	Learned    curve.Interval `json:"learned"`    // APGR
	Baseline   curve.Interval `json:"baseline"`   // APGR
	Difference curve.Interval `json:"difference"` // learned − baseline
	Reason     string         `json:"reason"`     // why the model is not enabled; empty if it is
}

// Train fits a model and evaluates it. About a quarter of each route is held out. The evaluated model is fitted to the
// other requests, and the returned model to all. pick(n) returns a random number from 0 to n − 1.
//
// The model is enabled if the lower bound of the difference is above 0. It is an error if a tier has too few labels.
func (d *Data) Train(pick func(n int) int) (*tierscore.Model, *Report, error) {
	d.rows = slices.DeleteFunc(d.rows, func(one row) bool { return !one.labelled() })
	slices.SortStableFunc(d.rows, func(a, b row) int {
		return cmp.Or(a.time.Compare(b.time), cmp.Compare(a.first, b.first))
	})
	r := d.describe()
	if min(r.Small, r.Large) < minLabels {
		return nil, nil, fmt.Errorf("the small tier has labels on %d requests with features, the large tier on %d; "+
			"at least %d each are needed: collect more", r.Small, r.Large, minLabels)
	}
	lambda, err := d.evaluate(r, pick)
	if err != nil {
		return nil, nil, err
	}
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
		r.Small += count(one.tiers[0].all.weight > 0)
		r.Large += count(one.tiers[1].all.weight > 0)
		r.Paired += count(one.paired())
		r.Explored += count(one.explored > 0)
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

// minHeldOut is the least number of labels of each tier on both sides of the evaluation, and of different held-out
// requests. With fewer, a bootstrap interval states little about other requests.
const minHeldOut = 20

// evaluate compares a model with the default score on held-out rows and sets the result in the report. It returns the
// strength of regularisation. Only rows with random labels are evaluated.
func (d *Data) evaluate(r *Report, pick func(n int) int) (lambda float64, err error) {
	train, test := d.split()
	test = slices.DeleteFunc(test, func(i int) bool { return !d.rows[i].random() })
	clusters := d.clusters(test)
	r.HeldOut = len(test)
	if r.Reason = d.tooFew(train, test, clusters); r.Reason != "" {
		return d.chooseLambda(d.all())
	}
	m, lambda, err := d.fit(train)
	if err != nil {
		return 0, err
	}
	learned, baseline := make([]float64, len(test)), make([]float64, len(test))
	for k, i := range test {
		baseline[k] = d.rows[i].baseline
		difference, ok := d.difference(m, i)
		if learned[k] = m.Standard(difference); !ok {
			learned[k] = m.Default(baseline[k])
			r.Unseen++
		}
	}
	intervals, ok := compare(learned, baseline, d.gains(test), clusters, pick)
	if !ok {
		r.Reason = "the large tier is not better than the small one on the held-out requests"
		return lambda, nil
	}
	r.Measured = true
	r.Learned, r.Baseline, r.Difference = intervals[0], intervals[1], intervals[2]
	switch {
	case r.Unseen == r.HeldOut:
		r.Reason = "no held-out request has a route with enough other labels: remove ids and dates from the system prompts"
	case r.Difference.High < 0:
		r.Reason = "the model is worse than the default score"
	case r.Difference.Low <= 0:
		r.Reason = "the model is not better than the default score: the 95 % interval of the difference includes 0"
	}
	return lambda, nil
}

// tooFew returns why the rows of the two sides cannot evaluate a model; empty if they can.
func (d *Data) tooFew(train, test []int, clusters [][]int) string {
	var rest, held [2]int
	for tier := range rest {
		for _, i := range train {
			rest[tier] += count(d.rows[i].tiers[tier].all.weight > 0)
		}
		for _, i := range test {
			held[tier] += count(d.rows[i].tiers[tier].random.weight > 0)
		}
	}
	switch {
	case min(held[0], held[1]) < minHeldOut:
		return fmt.Sprintf("%d labels of the small and %d of the large tier are held out, %d of each are needed: "+
			"collect more labels of the sources replay and exploration", held[0], held[1], minHeldOut)
	case len(clusters) < minHeldOut:
		return fmt.Sprintf("%d different requests are held out, %d are needed: label more different requests",
			len(clusters), minHeldOut)
	case min(rest[0], rest[1]) < minHeldOut:
		return fmt.Sprintf("%d labels of the small and %d of the large tier remain beside the held-out requests, "+
			"%d of each are needed: label more different requests", rest[0], rest[1], minHeldOut)
	}
	return ""
}
