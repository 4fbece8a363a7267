package main

import (
	"math"
	"strings"
	"testing"
)

// TestTrafficHasTheTiersAndScoresOfTheGateway: of ordinary prompts and of maths, by both configurations.
func TestTrafficHasTheTiersAndScoresOfTheGateway(t *testing.T) {
	exam := set{name: examName, points: 100, prompts: []promptRow{
		{text: "Say hello", category: "history", right: [2]bool{true, true}},
		{text: "Prove that the equation x^2 = 2 has no rational solution", category: "maths", right: [2]bool{false, true}},
		{text: strings.Repeat("tea ", 100), category: "history", right: [2]bool{true, false}},
	}}
	maths := set{name: gsm8kName, points: 100, prompts: []promptRow{
		{text: "What is the probability of two heads in three tosses of a coin?", right: [2]bool{false, true}}}}
	for mixed, want := range map[bool]struct {
		title string
		large []bool
		gains []float64
	}{
		false: {"exam questions with choices, requests", []bool{false, true, false}, []float64{0, 1, -1}},
		true:  {"three sets, requests", []bool{false, true, false, true}, []float64{0, 1, -1, 1}},
	} {
		got, err := newTraffic([]set{exam, maths}, mixed)
		if err != nil {
			t.Fatal(err)
		}
		if got.title != want.title || len(got.prompts) != len(want.large) || len(got.baseline) != len(want.large) {
			t.Fatalf("%+v", got)
		}
		near := 0.0
		for i, p := range got.prompts {
			if got.large[i] != want.large[i] || got.gains[i] != want.gains[i] || p.features.WordCount() == 0 {
				t.Errorf("%q: large %v, gain %v, %d words", p.text, got.large[i], got.gains[i], p.features.WordCount())
			}
			near += got.near[i]
		}
		if math.Abs(near-float64(len(want.large))) > 1e-9 {
			t.Errorf("replays near the threshold add up to %v", near)
		}
		if length := math.Log2(1 + 9.0); math.Abs(got.baseline[0]-length) > 0.001 || got.baseline[2] <= got.baseline[0] {
			t.Errorf("the default scores are %v", got.baseline)
		}
		if same := got.prompts[0].features.Route() == got.prompts[1].features.Route(); same != mixed {
			t.Errorf("mixed %v: two subjects have one route: %v", mixed, same)
		}
	}
}
