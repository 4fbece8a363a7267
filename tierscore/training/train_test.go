package training

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"tierway/fixedseed"
	"tierway/tierscore"
	"tierway/tierscore/curve"
)

// traffic is simulated requests of which the word "hard" makes the small tier fail. A share of the labels is wrong.
type traffic struct {
	n     int
	wrong float64
	pairs bool // else one tier is selected at random
	hard  string
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// data returns the labelled requests.
func (tr traffic) data(t testing.TB) *Data {
	t.Helper()
	var d Data
	source := rand.New(rand.NewPCG(1, 2))
	e := tierscore.NewExtractor("")
	for i := range tr.n {
		hard := source.IntN(2) == 0
		text := fmt.Sprintf("about %c%c and %d", 'a'+source.IntN(26), 'a'+source.IntN(26), source.IntN(100))
		if hard {
			text = tr.hard + text
		}
		var f tierscore.Features
		e.Extract(&f, &tierscore.Input{Tenant: fmt.Sprint("tenant", i%3), User: []byte(text), Turns: 1})
		small, large := !hard != (source.Float64() < tr.wrong), source.Float64() >= tr.wrong
		one := Example{Time: epoch.Add(time.Duration(i) * time.Minute), Features: &f, Baseline: float64(i % 7),
			Small: &small, Large: &large}
		if !tr.pairs {
			if source.IntN(2) == 0 {
				one.Small = nil
			} else {
				one.Large = nil
			}
		}
		if err := d.Add(one); err != nil {
			t.Fatal(err)
		}
	}
	return &d
}

func pick() func(int) int { return rand.New(rand.NewPCG(1, 1)).IntN }

// TestTrainingFindsTheSolution: half of the prompts have all of the gap, so the best order has the area 0.75.
func TestTrainingFindsTheSolution(t *testing.T) {
	m, r, err := traffic{n: 600, pairs: true, hard: "zebra "}.data(t).Train(pick())
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(r.Learned.Value-0.75) > 0.01 || !m.Enabled || r.Reason != "" {
		t.Errorf("%+v", r)
	}
	if r.Requests != 600 || r.Paired != 600 || r.Routes != 3 || r.HeldOut < 150 || r.HeldOut > 200 || r.Unseen != 0 {
		t.Errorf("%+v", r)
	}
	var hard, easy tierscore.Features
	e := tierscore.NewExtractor("")
	e.Extract(&hard, &tierscore.Input{Tenant: "tenant1", User: []byte("a zebra about xy and 3"), Turns: 1})
	e.Extract(&easy, &tierscore.Input{Tenant: "tenant1", User: []byte("a horse about xy and 3"), Turns: 1})
	a, known := m.Score(&hard)
	b, also := m.Score(&easy)
	if !known || !also || a <= b {
		t.Errorf("the hard prompt has %v, the easy one %v", a, b)
	}
}

// TestSingleLabelsSuffice: each request has a label of one tier, selected at random, and some are wrong.
func TestSingleLabelsSuffice(t *testing.T) {
	_, r, err := traffic{n: 1200, wrong: 0.1, hard: "zebra "}.data(t).Train(pick())
	if err != nil {
		t.Fatal(err)
	}
	if r.Paired != 0 || r.Learned.Value < 0.65 || r.Reason != "" {
		t.Errorf("%+v", r)
	}
}

// TestModelWithoutSignalIsNotEnabled: the large tier is always right and the small one at random.
func TestModelWithoutSignalIsNotEnabled(t *testing.T) {
	d := &Data{}
	source := rand.New(rand.NewPCG(1, 2))
	for i := range 600 {
		small, large := source.IntN(2) == 0, true
		addExample(t, d, fmt.Sprintf("about %c and %d", 'a'+source.IntN(26), source.IntN(100)),
			Example{Time: epoch.Add(time.Duration(i) * time.Minute), Baseline: float64(i % 7), Small: &small, Large: &large})
	}
	m, r, err := d.Train(pick())
	if err != nil {
		t.Fatal(err)
	}
	if m.Enabled || !r.Measured || !strings.Contains(r.Reason, "the model is not better than the default score") {
		t.Errorf("%+v", r)
	}
}

// TestRoutesOfOneRequestAreTheReason: each request has another system prompt, so that no held-out route is known.
func TestRoutesOfOneRequestAreTheReason(t *testing.T) {
	d, e := &Data{}, tierscore.NewExtractor("")
	for i := range 400 {
		small, large := i%2 == 0, true
		var f tierscore.Features
		e.Extract(&f, &tierscore.Input{System: fmt.Appendf(nil, "request %d", i), User: []byte("hello"), Turns: 1})
		err := d.Add(Example{Time: epoch.Add(time.Duration(i) * time.Minute), Features: &f, Small: &small, Large: &large})
		if err != nil {
			t.Fatal(err)
		}
	}
	m, r, err := d.Train(pick())
	if err != nil {
		t.Fatal(err)
	}
	if m.Enabled || !strings.Contains(r.Reason, "remove ids and dates from the system prompts") {
		t.Errorf("%+v", r)
	}
}

// TestRepetitionsDoNotEnableAModelWithoutSignal: 20 copies of a prompt have equal answers, so that the copies are not
// independent. At most one of 20 such data sets may pass the interval of 95 %.
func TestRepetitionsDoNotEnableAModelWithoutSignal(t *testing.T) {
	enabled, measured := 0, 0
	for seed := range uint64(20) {
		d := &Data{}
		source := rand.New(rand.NewPCG(seed, 3))
		for i := range 100 {
			small, large := source.IntN(2) == 0, true
			text := fmt.Sprintf("about %c%c and %d", 'a'+source.IntN(26), 'a'+source.IntN(26), source.IntN(100))
			baseline := source.Float64()
			for range 20 {
				addExample(t, d, text, Example{Time: epoch.Add(time.Duration(i) * time.Minute), Baseline: baseline,
					Small: &small, Large: &large})
			}
		}
		m, r, err := d.Train(pick())
		if err != nil {
			t.Fatal(err)
		}
		enabled, measured = enabled+count(m.Enabled), measured+count(r.Measured)
	}
	if enabled > 1 || measured < 20 {
		t.Errorf("%d of %d measured models are enabled", enabled, measured)
	}
}

// addExample adds an example with the features of a text.
func addExample(t testing.TB, d *Data, text string, one Example) {
	t.Helper()
	one.Features = &tierscore.Features{}
	tierscore.NewExtractor("").Extract(one.Features, &tierscore.Input{Tenant: "acme", User: []byte(text), Turns: 1})
	if err := d.Add(one); err != nil {
		t.Fatal(err)
	}
}

// TestEqualInputGivesEqualModels, to the byte.
func TestEqualInputGivesEqualModels(t *testing.T) {
	train := func() []byte {
		m, _, err := traffic{n: 300, wrong: 0.1, pairs: true, hard: "zebra "}.data(t).Train(pick())
		if err != nil {
			t.Fatal(err)
		}
		file, err := m.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	if !bytes.Equal(train(), train()) {
		t.Error("the models differ")
	}
}

// TestSolutionIsTheMinimum: the gradient of the objective is 0 there, and a constant has the closed form of its share.
func TestSolutionIsTheMinimum(t *testing.T) {
	d := traffic{n: 200, wrong: 0.2, pairs: true, hard: "zebra "}.data(t)
	p := newProblem(d, d.all(), nil, 0, 10)
	outputs, gradient := make([]float64, len(p.rows)), make([]float64, p.size)
	p.loss(make([]float64, p.size), outputs)
	first := p.gradient(make([]float64, p.size), outputs, gradient)
	w := p.solve(nil)
	p.loss(w, outputs)
	if norm := p.gradient(w, outputs, gradient); norm > tolerance*first {
		t.Errorf("the gradient is %v, and %v at 0", norm, first)
	}
	// So strong a penalty leaves the bias alone, which is the logarithm of the odds.
	p.lambda = 1e12
	right := 0.0
	for _, share := range p.right {
		right += share / float64(len(p.right))
	}
	if got, want := p.solve(nil)[p.size-1], math.Log(right/(1-right)); math.Abs(got-want) > 1e-3 {
		t.Errorf("the bias is %v, want %v", got, want)
	}
}

// TestGradientIsThatOfTheLoss compares it with differences of the loss.
func TestGradientIsThatOfTheLoss(t *testing.T) {
	d := traffic{n: 40, wrong: 0.3, pairs: true, hard: "zebra "}.data(t)
	p := newProblem(d, d.all(), map[uint32]int{d.rows[0].route: tierscore.Columns}, 1, 3)
	w, outputs, gradient := make([]float64, p.size), make([]float64, len(p.rows)), make([]float64, p.size)
	for j := range w {
		w[j] = math.Sin(float64(j)) / 10
	}
	p.loss(w, outputs)
	p.gradient(w, outputs, gradient)
	for _, j := range []int{int(d.cols[0]), int(d.cols[len(d.cols)-1]), tierscore.Columns, p.size - 1} {
		const h = 1e-5
		w[j] += h
		above := p.loss(w, outputs)
		w[j] -= 2 * h
		below := p.loss(w, outputs)
		w[j] += h
		if want := (above - below) / (2 * h); math.Abs(gradient[j]-want) > 1e-4*(1+math.Abs(want)) {
			t.Errorf("parameter %d: %v, want %v", j, gradient[j], want)
		}
	}
}

// TestRoundingLosesLittle compares a model with its weights before they are rounded to one byte.
func TestRoundingLosesLittle(t *testing.T) {
	d := traffic{n: fixedseed.Samples(800, 3000), wrong: 0.25, pairs: true, hard: "zebra "}.data(t)
	m, err := d.model(d.all(), 10, &[2][]float64{})
	if err != nil {
		t.Fatal(err)
	}
	columns := map[uint32]int{}
	for i, route := range d.routes(d.all()) {
		columns[route] = tierscore.Columns + i
	}
	var heads [2][]float64
	var problems [2]*problem
	for tier := range heads {
		problems[tier] = newProblem(d, d.all(), columns, tier, 10)
		heads[tier] = problems[tier].solve(nil)
	}
	exact, rounded := make([]float64, d.Requests()), make([]float64, d.Requests())
	for i := range exact {
		exact[i] = tierscore.Logistic(problems[1].dot(i, heads[1])) - tierscore.Logistic(problems[0].dot(i, heads[0]))
		rounded[i], _ = d.difference(m, i)
	}
	gains := d.gains(d.all())
	a, b := curve.NewOrder(exact).Append(nil, gains, nil).APGR(), curve.NewOrder(rounded).Append(nil, gains, nil).APGR()
	if math.Abs(a-b) >= 0.005 || a < 0.6 {
		t.Errorf("APGR is %v with exact and %v with rounded weights", a, b)
	}
}

func TestTooFewLabelsAreAnError(t *testing.T) {
	_, _, err := traffic{n: 49, pairs: true}.data(t).Train(pick())
	if err == nil || !strings.Contains(err.Error(), "labels on 49 requests with features, the large tier on 49") {
		t.Error(err)
	}
	if _, _, err := (&Data{}).Train(pick()); err == nil {
		t.Error("no data is trained")
	}
}

func TestRoutesAreLimited(t *testing.T) {
	d := &Data{}
	label := tierLabels{all: tally{weight: 1}}
	for i := range tierscore.MaxRoutes + 10 {
		for range minRouteLabels + i/(tierscore.MaxRoutes/2) {
			d.rows = append(d.rows, row{route: uint32(i), tiers: [2]tierLabels{label, label}})
		}
	}
	routes := d.routes(d.all())
	if len(routes) != tierscore.MaxRoutes || routes[len(routes)-1] != tierscore.MaxRoutes+9 {
		t.Errorf("%d routes, the last is %d", len(routes), routes[len(routes)-1])
	}
}

func TestRoutesWithFewLabelsAreNotKnown(t *testing.T) {
	d := &Data{}
	label := tierLabels{all: tally{weight: 1}}
	for range minRouteLabels {
		d.rows = append(d.rows, row{route: 1, tiers: [2]tierLabels{label, label}}, row{route: 2, tiers: [2]tierLabels{label}})
	}
	d.rows = append(d.rows, row{route: 3, tiers: [2]tierLabels{label, label}})
	if routes := d.routes(d.all()); !slices.Equal(routes, []uint32{1}) {
		t.Errorf("routes %v", routes)
	}
}
