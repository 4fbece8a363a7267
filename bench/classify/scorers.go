package main

import (
	"fmt"

	"tierway/tiers"
)

// scorer orders prompts: a higher score is sent to the strong model sooner. The orders show what
// a threshold on them is worth.
type scorer struct {
	name  string
	score func(text string) float64
}

// line is one scorer on one set.
type line struct {
	name string
	worth
}

// judge is a preset's classifier.
type judge struct{ classifier *tiers.Classifier }

// newJudge compiles a preset with a weight of the length in its score.
func newJudge(preset string, lengthWeight float64) (judge, error) {
	rules := tiers.Rules{Preset: preset, LengthWeight: &lengthWeight, Share: map[string]float64{"large": 0.5}}
	k, err := tiers.NewClassifier(rules, []string{"small", "large"}, nil)
	if err != nil {
		return judge{}, fmt.Errorf("compiling the preset %q: %w", preset, err)
	}
	return judge{k}, nil
}

// score is what the classifier adds up for a prompt.
func (j judge) score(text string) float64 {
	return j.classifier.Classify(&tiers.ClassifierInput{User: func() []byte { return []byte(text) }}).Score
}

// ordersOf measures the scorers: those by which routing goes, or all of them.
func ordersOf(prompts []promptRow, resamples int, all bool) (lines []line, err error) {
	by, err := newScorers()
	if err != nil {
		return nil, err
	}
	if !all {
		by = by[:mainScorers]
	}
	for _, one := range by {
		lines = append(lines, line{one.name, worthOf(outcomes(prompts, one), resamples, seed)})
	}
	return lines, nil
}

func outcomes(prompts []promptRow, by scorer) []outcome {
	all := make([]outcome, len(prompts))
	for i, p := range prompts {
		all[i] = outcome{by.score(p.text), p.gain}
	}
	return all
}

// mainScorers is the number of scorers without -orders.
const mainScorers = 4

// newScorers returns all that is compared. The lesson's groups weigh 1 each.
func newScorers() ([]scorer, error) {
	var judges [3]judge
	for i, of := range [...]struct {
		preset       string
		lengthWeight float64
	}{{"groups", 0}, {"graded", 1}, {"lesson", 0}} {
		var err error
		if judges[i], err = newJudge(of.preset, of.lengthWeight); err != nil {
			return nil, err
		}
	}
	groups, graded, lesson := judges[0], judges[1], judges[2]
	return []scorer{
		{"score of preset graded", graded.score},
		{"groups alone", groups.score},
		{"prompt length", func(text string) float64 { return float64(len(text)) }},
		{"random", func(string) float64 { return 0 }}, // all equal: the expectation of any random order
		{"lesson, any match", func(text string) float64 { return min(lesson.score(text), 1) }},
		{"lesson, number of groups", lesson.score},
		{"digit count", digits},
	}, nil
}

func digits(text string) float64 {
	n := 0
	for i := range len(text) {
		if '0' <= text[i] && text[i] <= '9' {
			n++
		}
	}
	return float64(n)
}
