package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"tierway/tierscore"
	"tierway/tierscore/curve"
	"tierway/tierscore/training"
)

// The simulated deployments.
const (
	deployments   = 10     // number of deployments; figures are their means
	requestsEach  = 20_000 // requests of a deployment
	trainingEvery = 2000   // requests from one training to the next
	// minPairs is the number of repeated requests from which on a model is trained, as in package training.
	minPairs = 50
	// shareOfGroups is the share of requests at the large tier, as a part of the share of preset groups.
	shareOfGroups = 0.75
)

// traffic is the prompts from which requests are drawn, with the tier of preset groups and the default score of each.
type traffic struct {
	title    string
	prompts  []sample
	large    []bool    // preset groups sends the prompt to a tier above the small one
	baseline []float64 // default score
	gains    []float64
	near     []float64 // relative frequency of repetitions by their distance from the threshold; the mean is 1
}

// repetition selects the requests that are repeated, so that they have a pair of labels, one of each tier.
type repetition struct {
	share    float64 // of all requests
	near     bool    // more often requests with a default score near the threshold, else at random
	untested bool    // the model is used without its own test
	once     bool    // the model is trained only before the last period, which alone is printed
}

func repetitions() []repetition {
	return []repetition{{share: 0.01}, {share: 0.01, near: true, once: true}, {share: 0.01, untested: true, once: true},
		{share: 0.01, near: true, untested: true, once: true}, {share: 0.02, once: true}, {share: 0.05, once: true},
		{share: 0.1, once: true}}
}

// String returns how the requests are selected, and whether the model is tested.
func (r repetition) String() string {
	text := percent(r.share)
	if r.near {
		text += " near the threshold"
	}
	if r.untested {
		text += ", untested"
	}
	return text
}

// writeDeployments compares a model that learns from repeated requests with preset groups, in a table for each kind of
// traffic.
func writeDeployments(sets []set, resamples int, markdown bool, out io.Writer) error {
	for _, mixed := range []bool{false, true} {
		t, err := newTraffic(sets, mixed)
		if err != nil {
			return err
		}
		rows := [][]string{{t.title, "repeated", "pairs", "enabled", "groups: at large", "right", "deployment: at large",
			"right", "as right as groups at", "of its share", "95 %", "random order"}}
		for _, r := range repetitions() {
			measured, err := t.measure(r, resamples)
			if err != nil {
				return err
			}
			if r.once {
				measured = measured[len(measured)-1:]
			}
			for _, p := range measured {
				rows = append(rows, p.row(r))
			}
		}
		var b strings.Builder
		writeTable(&b, rows, markdown)
		if _, err := io.WriteString(out, b.String()+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// newTraffic returns the exam questions with a route for each subject, or three sets with a route for each set.
func newTraffic(sets []set, mixed bool) (*traffic, error) {
	t := &traffic{title: examName + ", requests", prompts: samplesOf(sets, mixed)}
	if mixed {
		t.title = "three sets, requests"
	}
	groups, err := newGateway("classifier: { preset: groups }\n")
	if err != nil {
		return nil, err
	}
	graded, err := newJudge("graded", 1)
	if err != nil {
		return nil, err
	}
	extractor, routes := tierscore.NewExtractor(""), trial{subject: true, mixed: mixed}
	for i := range t.prompts {
		p := &t.prompts[i]
		tier, err := groups.tier(*p.promptRow)
		if err != nil {
			return nil, err
		}
		extractor.Extract(&p.features, &tierscore.Input{Tenant: routes.route(p), User: []byte(p.text), Turns: 1})
		t.large, t.gains = append(t.large, tier > 0), append(t.gains, gainOf(p.right))
		t.baseline = append(t.baseline, graded.score(p.text))
	}
	t.near = t.nearThreshold()
	return t, nil
}

// nearWidth is the distance from the threshold at which repetitions are e times rarer. It is a share of the prompts in
// the order of their default scores.
const nearWidth = 0.1

// nearThreshold returns how often each prompt is repeated, by its distance from the threshold of the share.
func (t *traffic) nearThreshold() []float64 {
	n := float64(len(t.prompts))
	large, _, _ := t.groups(slices.Repeat([]int{1}, len(t.prompts)))
	order := make([]int, len(t.prompts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(t.baseline[b], t.baseline[a]) })
	near, sum := make([]float64, len(t.prompts)), 0.0
	for k, i := range order {
		near[i] = math.Exp(-math.Abs(float64(k)/n-shareOfGroups*large) / nearWidth)
		sum += near[i]
	}
	for i := range near {
		near[i] *= n / sum
	}
	return near
}

// period is the requests between two trainings, as the mean of all deployments.
type period struct {
	requests   int     // number of requests at the end of the period
	pairs      float64 // pairs of labels before the period
	enabled    float64 // share of deployments with an enabled model
	groups     routedShare
	deployment routedShare
	orders     []measuredOrder
	reached    curve.Interval // share of the large tier at which the order has the quality of preset groups
	ofGroups   curve.Interval // reached, as a part of the share of preset groups
	random     curve.Interval // ofGroups of a random order
}

// routedShare is the share of requests at the large tier, and the share of right answers.
type routedShare struct{ large, right float64 }

// measuredOrder is the order of all prompts in one deployment.
type measuredOrder struct {
	order curve.Order
	known []bool // prompts with labels, which are not measured
}

func (p *period) row(r repetition) []string {
	exact := func(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }
	return []string{fmt.Sprintf("%d to %d", p.requests-trainingEvery, p.requests), r.String(),
		fmt.Sprintf("%.0f", p.pairs), percent(p.enabled),
		exact(p.groups.large), exact(p.groups.right), exact(p.deployment.large), exact(p.deployment.right),
		exact(p.reached.Value), fmt.Sprintf("%.2f", p.ofGroups.Value),
		fmt.Sprintf("[%.2f, %.2f]", p.ofGroups.Low, p.ofGroups.High), fmt.Sprintf("%.2f", p.random.Value)}
}

// measure simulates the deployments. For the intervals of the shares, the prompts are resampled, each time in the order
// of another deployment. So an interval has the uncertainty of the prompts and that of the labels.
func (t *traffic) measure(r repetition, resamples int) ([]period, error) {
	periods := make([]period, requestsEach/trainingEvery)
	for n := range deployments {
		if err := t.deploy(periods, r, rand.New(rand.NewPCG(seed, uint64(n)))); err != nil {
			return nil, err
		}
	}
	for i := range periods {
		periods[i].finish(t, resamples)
	}
	return periods, nil
}

// deploy adds one deployment to the periods. Without an enabled model, the order is that of the default score.
func (t *traffic) deploy(periods []period, r repetition, source *rand.Rand) error {
	var data training.Data
	var model *tierscore.Model // nil: none is enabled
	known, pairs := make([]bool, len(t.prompts)), 0
	at := time.Unix(0, 0)
	for i := range periods {
		p := &periods[i]
		p.requests = (i + 1) * trainingEvery
		p.pairs += float64(pairs) / deployments
		if model != nil {
			p.enabled += 1.0 / deployments
		}
		scores := t.scores(model)
		p.orders = append(p.orders, measuredOrder{curve.NewOrder(scores), append([]bool{}, known...)})
		drawn := make([]int, len(t.prompts)) // how often each prompt was requested
		for range trainingEvery {
			prompt := source.IntN(len(t.prompts))
			drawn[prompt]++
			at = at.Add(time.Second)
			chance := r.share
			if r.near {
				chance *= t.near[prompt]
			}
			if source.Float64() >= chance {
				continue
			}
			one := &t.prompts[prompt]
			known[prompt], pairs = true, pairs+1
			if err := data.Add(training.Example{Time: at, Features: &one.features, Baseline: t.baseline[prompt],
				Small: &one.right[0], Large: &one.right[1]}); err != nil {
				return fmt.Errorf("labelling a request: %w", err)
			}
		}
		p.add(t, drawn, p.orders[len(p.orders)-1].order)
		if i+1 == len(periods) || r.once && i+2 != len(periods) {
			continue
		}
		var err error
		if model, err = trained(&data, pairs, r.untested, source); err != nil {
			return err
		}
	}
	return nil
}

// trained returns a model of the labels; nil if its own test does not enable it, unless it is used untested.
func trained(data *training.Data, pairs int, untested bool, source *rand.Rand) (*tierscore.Model, error) {
	if pairs < minPairs {
		return nil, nil
	}
	model, _, err := data.Train(source.IntN)
	if err != nil {
		return nil, fmt.Errorf("training a model: %w", err)
	}
	model.Enabled = model.Enabled || untested
	if !model.Enabled {
		return nil, nil
	}
	return model, nil
}

// scores returns the scores of all prompts.
func (t *traffic) scores(model *tierscore.Model) []float64 {
	if model == nil {
		return t.baseline
	}
	scores := make([]float64, len(t.prompts))
	for i := range t.prompts {
		score, ok := model.Score(&t.prompts[i].features)
		if !ok {
			score = model.Default(t.baseline[i])
		}
		scores[i] = score
	}
	return scores
}

// add adds the requests of one deployment to the means.
func (p *period) add(t *traffic, drawn []int, order curve.Order) {
	large, gained, small := t.groups(drawn)
	points := order.Append(nil, t.gains, drawn)
	p.groups.large += large / deployments
	p.groups.right += (small + gained) / deployments
	p.deployment.large += shareOfGroups * large / deployments
	p.deployment.right += (small + points.GainAt(shareOfGroups*large)) / deployments
}

// groups returns the share of requests that preset groups sends to the large tier, the gain of these, and the share of
// right answers of the small tier alone. times has how often each prompt counts.
func (t *traffic) groups(times []int) (large, gained, small float64) {
	n := 0.0
	for i, count := range times {
		weight := float64(count)
		n += weight
		if t.large[i] {
			large, gained = large+weight, gained+weight*t.gains[i]
		}
		if t.prompts[i].right[0] {
			small += weight
		}
	}
	return large / n, gained / n, small / n
}

// finish measures the orders on the prompts without labels.
func (p *period) finish(t *traffic, resamples int) {
	points, turn := curve.Curve(nil), 0
	counted := make([]int, len(t.prompts))
	// reach returns the share of the large tier with the quality of preset groups, and as parts of the share of preset
	// groups that of the order and that of a random order.
	reach := func(m measuredOrder, times []int) (figures [3]float64) {
		for i := range counted {
			switch {
			case m.known[i]:
				counted[i] = 0
			case times == nil:
				counted[i] = 1
			default:
				counted[i] = times[i]
			}
		}
		large, gained, _ := t.groups(counted)
		points = m.order.Append(points[:0], t.gains, counted)
		share := points.Reach(gained)
		return [3]float64{share, share / large, gained / points.GainAt(1) / large}
	}
	all := bootstrap(len(t.prompts), resamples, seed, func(times []int) []float64 {
		if times != nil {
			turn++
			figures := reach(p.orders[turn%len(p.orders)], times)
			return figures[:]
		}
		sum := make([]float64, 3)
		for _, m := range p.orders {
			for i, figure := range reach(m, nil) {
				sum[i] += figure / float64(len(p.orders))
			}
		}
		return sum
	})
	p.reached, p.ofGroups, p.random = all[0], all[1], all[2]
}
