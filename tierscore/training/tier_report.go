package training

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"tierway/tierscore"
	"tierway/tierscore/curve"
)

// TierReport is the quality of the tiers by the labels so far.
type TierReport struct {
	Lines    int `json:"lines" doc:"Lines of features, with and without labels."`
	Requests int `json:"requests" doc:"Requests with labels."`
	Small    int `json:"small" doc:"Requests with labels of the small tier."`
	Large    int `json:"large" doc:"Requests with labels of the large tier."`
	Paired   int `json:"paired" doc:"Requests with labels of both tiers."`

	Tiers []TierRequests `json:"tiers" nullable:"false" doc:"Tiers of the lines of features that have one."`

	Evaluated int            `json:"evaluated" doc:"Requests of the curves: those with labels of replay or exploration. With a model, only those after its training, if their labels suffice."`
	From      time.Time      `json:"from" doc:"Time of the first request of the curves."`
	To        time.Time      `json:"to" doc:"Time of the last request of the curves."`
	InSample  bool           `json:"in_sample" doc:"The model may have been trained on the requests of the curves, so its curve is too good."`
	Curves    []QualityCurve `json:"curves" nullable:"false"`
}

// TierRequests is the number of requests that a tier answered.
type TierRequests struct {
	Tier     string  `json:"tier"`
	Requests int     `json:"requests"`
	Share    float64 `json:"share"`
}

// Names of the curves.
const (
	CurveDefault = "default"
	CurveLength  = "length"
	CurveRandom  = "random"
	CurveModel   = "model"
)

// QualityCurve is the quality by the share of requests at the large tier, if these are the requests with the highest
// scores.
type QualityCurve struct {
	Name   string          `json:"name" enum:"default,length,random,model"`
	APGR   *curve.Interval `json:"apgr,omitempty" doc:"Absent: the large tier is not better than the small one, or not in 95 % of the bootstrap samples."`
	Points []QualityPoint  `json:"points" nullable:"false" doc:"From 0 to 100 % in steps of 10 %."`
}

// QualityPoint is a point of a QualityCurve.
type QualityPoint struct {
	Share     float64        `json:"share" doc:"Share of requests at the large tier, 0 to 1."`
	Threshold *float64       `json:"threshold,omitempty" doc:"Requests with a higher default score are at the large tier. Absent at 100 %, and for other curves."`
	Quality   curve.Interval `json:"quality" doc:"Share of right answers, 0 to 1, with its 95 % interval."`
}

// reportSteps is the number of steps of the share of requests at the large tier.
const reportSteps = 10

// TierReport returns the quality of orders of the labelled requests: those of the default score, of the length in steps
// of a factor of √2, a random one, and that of a model unless it is nil. pick(n) returns a random number from 0 to
// n − 1. If one tier of a request has no label, its quality is estimated as in a training.
//
// The requests of the curves are those after the training of the model, if their labels suffice, and all otherwise. It
// is an error if a tier has fewer than 20 labels of replay or exploration.
func (d *Data) TierReport(m *tierscore.Model, pick func(n int) int) (*TierReport, error) {
	r := d.describeTiers()
	rows := slices.DeleteFunc(d.all(), func(i int) bool { return !d.rows[i].random() })
	if n := d.randomLabels(rows); min(n[0], n[1]) < minHeldOut {
		err := fmt.Errorf("of the sources replay and exploration, %d requests have labels of the small tier and %d "+
			"have labels of the large one; each tier needs %d: collect more", n[0], n[1], minHeldOut)
		if n := d.Unevaluated(); n > 0 {
			err = fmt.Errorf("%w; feedback about %d explored requests does not evaluate, unless clients give it about all "+
				"answers: tierway tiers report --evaluate-feedback", err, n)
		}
		return nil, err
	}
	if m != nil {
		newer, err := d.newerThan(m, rows)
		if err != nil {
			return nil, err
		}
		n := d.randomLabels(newer)
		if r.InSample = min(n[0], n[1]) < minHeldOut; !r.InSample {
			rows = newer
		}
	}
	r.Evaluated = len(rows)
	byTime := func(a, b int) int { return d.rows[a].time.Compare(d.rows[b].time) }
	r.From, r.To = d.rows[slices.MinFunc(rows, byTime)].time, d.rows[slices.MaxFunc(rows, byTime)].time
	r.Curves = d.curves(rows, m, pick)
	return r, nil
}

func (d *Data) describeTiers() *TierReport {
	labels := d.describe()
	r := &TierReport{Lines: d.Lines, Requests: d.Requests(), Small: labels.Small, Large: labels.Large,
		Paired: labels.Paired, Tiers: []TierRequests{}}
	all := 0
	for tier, n := range d.tiers {
		all += n
		r.Tiers = append(r.Tiers, TierRequests{Tier: tier, Requests: n})
	}
	for i := range r.Tiers {
		r.Tiers[i].Share = float64(r.Tiers[i].Requests) / float64(all)
	}
	slices.SortFunc(r.Tiers, func(a, b TierRequests) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Tier, b.Tier))
	})
	return r
}

// randomLabels returns the number of rows with random labels of each tier.
func (d *Data) randomLabels(rows []int) (n [2]int) {
	for _, i := range rows {
		for tier := range n {
			n[tier] += count(d.rows[i].tiers[tier].random.weight > 0)
		}
	}
	return n
}

// newerThan returns the rows after the training of a model.
func (d *Data) newerThan(m *tierscore.Model, rows []int) (newer []int, err error) {
	var trained Report
	switch {
	case m.Key() != d.key:
		return nil, errors.New("the model was trained with another key than that of the features: use one key")
	case json.Unmarshal(m.Report, &trained) != nil || trained.To.IsZero():
		return nil, errors.New("the report of the model has no time of its training: train it again")
	}
	for _, i := range rows {
		if d.rows[i].time.After(trained.To) {
			newer = append(newer, i)
		}
	}
	return newer, nil
}

// scoresOf returns the names of the curves with the scores of rows.
func (d *Data) scoresOf(rows []int, m *tierscore.Model) (names []string, scores [][]float64) {
	names, scores = []string{CurveDefault, CurveLength, CurveRandom}, make([][]float64, 3)
	for _, i := range rows {
		scores[0] = append(scores[0], d.rows[i].baseline)
		scores[1] = append(scores[1], float64(tierscore.LengthLevel(d.columns(i))))
	}
	scores[2] = make([]float64, len(rows)) // equal: the expectation of all orders
	if m == nil {
		return names, scores
	}
	learned := make([]float64, len(rows))
	for k, i := range rows {
		difference, ok := d.difference(m, i)
		if learned[k] = m.Standard(difference); !ok {
			learned[k] = m.Default(d.rows[i].baseline)
		}
	}
	return append(names, CurveModel), append(scores, learned)
}

// curves measures the orders of rows by their scores. A resample draws equal requests together, as in a training.
func (d *Data) curves(rows []int, m *tierscore.Model, pick func(n int) int) (all []QualityCurve) {
	names, scores := d.scoresOf(rows, m)
	small, gains := d.qualities(rows)
	orders, points := make([]curve.Order, len(scores)), curve.Curve(nil)
	for k := range orders {
		orders[k] = curve.NewOrder(scores[k])
	}
	bootstrap := curve.Bootstrap{Requests: len(rows), Clusters: d.clusters(rows), Resamples: resamples, Pick: pick}
	const figures = reportSteps + 2 // of each curve: APGR and the qualities
	intervals, valid := bootstrap.Intervals(func(times []int) (values []float64) {
		base := meanOf(small, times)
		for _, order := range orders {
			points = order.Append(points[:0], gains, times)
			values = append(values, points.APGR())
			for step := range reportSteps + 1 {
				values = append(values, base+points.GainAt(float64(step)/reportSteps))
			}
		}
		return values
	})
	baseline := slices.SortedFunc(slices.Values(scores[0]), func(a, b float64) int { return cmp.Compare(b, a) })
	for k, name := range names {
		own := intervals[k*figures : (k+1)*figures]
		c := QualityCurve{Name: name}
		if apgr := own[0]; apgr.Value == apgr.Value && mostly(valid) { // no NaN
			c.APGR = &apgr
		}
		for step := range reportSteps + 1 {
			p := QualityPoint{Share: float64(step) / reportSteps, Quality: own[1+step]}
			if above := step * len(rows) / reportSteps; name == CurveDefault && above < len(rows) {
				p.Threshold = &baseline[above]
			}
			c.Points = append(c.Points, p)
		}
		all = append(all, c)
	}
	return all
}

// meanOf returns the mean of values, of which each counts as often as times has it; nil means once each.
func meanOf(values []float64, times []int) float64 {
	var sum, n float64
	for i, v := range values {
		weight := 1.0
		if times != nil {
			weight = float64(times[i])
		}
		sum, n = sum+weight*v, n+weight
	}
	return sum / n
}

// resamples is the number of bootstrap resamples of an interval.
const resamples = 1000

// compare returns the APGR of two scores and of their difference, with bootstrap intervals. A resample draws whole
// clusters, which are indexes of requests, because the requests of a cluster are not independent. pick(n) returns a
// random number from 0 to n − 1. ok is false if the gap is not positive in 95 % of the resamples.
func compare(learned, baseline, gains []float64, clusters [][]int, pick func(int) int) (all []curve.Interval, ok bool) {
	a, b, points := curve.NewOrder(learned), curve.NewOrder(baseline), curve.Curve(nil)
	bootstrap := curve.Bootstrap{Requests: len(gains), Clusters: clusters, Resamples: resamples, Pick: pick}
	all, valid := bootstrap.Intervals(func(times []int) []float64 {
		points = a.Append(points[:0], gains, times)
		first := points.APGR()
		points = b.Append(points[:0], gains, times)
		second := points.APGR()
		return []float64{first, second, first - second}
	})
	return all, !math.IsNaN(all[0].Value) && mostly(valid)
}

// mostly reports whether enough bootstrap samples are valid for an interval of the area. The area has no meaning
// without a gap between the tiers. Its interval has none if more than 5 % of the samples have no gap.
func mostly(valid int) bool { return valid >= resamples*95/100 }
