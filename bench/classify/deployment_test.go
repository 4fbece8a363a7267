package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"tierway/tierscore"
)

// fakeTraffic is questions of which every second one has a gain. Preset groups sends half of them to the large tier, at
// random, and the default scores are equal.
func fakeTraffic() *traffic {
	s := subjects(600)
	t := &traffic{title: "questions", prompts: samplesOf([]set{s}, false), baseline: make([]float64, 600)}
	e := tierscore.NewExtractor("")
	source := rand.New(rand.NewPCG(seed, 3))
	for i := range t.prompts {
		p := &t.prompts[i]
		e.Extract(&p.features, &tierscore.Input{Tenant: p.category, User: []byte(p.text), Turns: 1})
		t.large, t.gains = append(t.large, source.IntN(2) == 0), append(t.gains, gainOf(p.right))
	}
	return t
}

// TestADeploymentLearnsFromRepeatedRequests: without a model its order is as good as that of preset groups, and the
// learned one needs half of its share. Prompts with labels are not measured.
func TestADeploymentLearnsFromRepeatedRequests(t *testing.T) {
	traffic, periods := fakeTraffic(), make([]period, 3)
	if err := traffic.deploy(periods, repetition{share: 0.2}, rand.New(rand.NewPCG(seed, 0))); err != nil {
		t.Fatal(err)
	}
	for i := range periods {
		periods[i].finish(traffic, 40)
	}
	first, last := periods[0], periods[2]
	if first.pairs != 0 || first.enabled != 0 || math.Abs(first.ofGroups.Value-1) > 0.15 {
		t.Errorf("the first period has %v pairs, %v enabled models, %+v of the share of groups", first.pairs, first.enabled,
			first.ofGroups)
	}
	if pairs := last.pairs * deployments; pairs < 700 || pairs > 900 || math.Abs(last.enabled*deployments-1) > 1e-9 {
		t.Errorf("the last period has %v pairs, and %v of the models are enabled", pairs, last.enabled)
	}
	if v := last.ofGroups; math.Abs(v.Value-0.5) > 0.1 || v.Low > v.Value || v.High < v.Value || v.High > 0.75 {
		t.Errorf("the order has the quality of groups at %+v of its share", v)
	}
	if a, b := last.groups, last.deployment; math.Abs(b.large-0.75*a.large) > 1e-9 || b.right <= a.right {
		t.Errorf("groups has %+v, the deployment %+v", a, b)
	}
	known := 0
	for _, with := range last.orders[0].known {
		known += map[bool]int{true: 1}[with]
	}
	if known < 300 || known == 600 {
		t.Errorf("%d of 600 prompts have labels", known)
	}
	if row := last.row(repetition{share: 0.2}); row[0] != "4000 to 6000" || row[1] != "20 %" ||
		!strings.HasPrefix(row[10], "[0.") {
		t.Errorf("%q", row)
	}
}

func TestOneTrainingIsBeforeTheLastPeriod(t *testing.T) {
	traffic, periods := fakeTraffic(), make([]period, 3)
	if err := traffic.deploy(periods, repetition{share: 0.1, once: true}, rand.New(rand.NewPCG(seed, 0))); err != nil {
		t.Fatal(err)
	}
	if periods[1].enabled != 0 || periods[2].enabled == 0 {
		t.Errorf("%v and %v of the models are enabled", periods[1].enabled, periods[2].enabled)
	}
}

func TestFewLabelsTrainNoModel(t *testing.T) {
	traffic, periods := fakeTraffic(), make([]period, 2)
	if err := traffic.deploy(periods, repetition{share: 0.01}, rand.New(rand.NewPCG(seed, 0))); err != nil {
		t.Fatal(err)
	}
	if periods[1].pairs == 0 || periods[1].enabled != 0 {
		t.Errorf("%v pairs, %v enabled", periods[1].pairs, periods[1].enabled)
	}
}

// TestRepetitionsNearTheThresholdKeepTheShare: they are as many as at random, and rarer with the distance.
func TestRepetitionsNearTheThresholdKeepTheShare(t *testing.T) {
	traffic := fakeTraffic()
	for i := range traffic.baseline {
		traffic.baseline[i] = float64(i)
	}
	large, _, _ := traffic.groups(slices.Repeat([]int{1}, 600))
	threshold := int(600 * (1 - shareOfGroups*large))
	sum := 0.0
	near := traffic.nearThreshold()
	for i, n := range near {
		if sum += n; i > 0 && i < threshold-1 && n <= near[i-1] {
			t.Fatalf("prompt %d of %d is repeated %v times as often as the mean", i, threshold, n)
		}
	}
	if math.Abs(sum-600) > 1e-6 {
		t.Errorf("the sum is %v", sum)
	}
	if text := (repetition{share: 0.01, near: true, untested: true}).String(); text != "1 % near the threshold, untested" {
		t.Error(text)
	}
}

func TestAnUntestedModelIsUsed(t *testing.T) {
	traffic := fakeTraffic()
	for i := range traffic.prompts { // nothing to learn
		traffic.prompts[i].right = [2]bool{i%4 < 2, i%4 < 2}
	}
	for _, untested := range []bool{false, true} {
		periods := make([]period, 2)
		source := rand.New(rand.NewPCG(seed, 0))
		if err := traffic.deploy(periods, repetition{share: 0.1, untested: untested}, source); err != nil {
			t.Fatal(err)
		}
		if (periods[1].enabled > 0) != untested {
			t.Errorf("untested %v: %v of the models are used", untested, periods[1].enabled)
		}
	}
}
