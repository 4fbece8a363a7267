package main

import (
	"fmt"
	"math"

	"tierway/tiers"
)

// scorer orders prompts: a higher score is sent to the strong model sooner. Routing
// goes by no order; the orders show what a threshold on them could be worth.
type scorer struct {
	name  string
	score func(text string) float64
}

// line is one scorer on one set.
type line struct {
	name string
	measured
}

// judge is a preset's classifier.
type judge struct{ classifier *tiers.Classifier }

func newJudge(preset string) (judge, error) {
	k, err := tiers.NewClassifier(tiers.Rules{Preset: preset}, []string{"small", "large"})
	if err != nil {
		return judge{}, fmt.Errorf("compiling the preset %q: %w", preset, err)
	}
	return judge{k}, nil
}

// score is what the classifier adds up for a prompt: the weights of the matched groups,
// and less than the least weight for its length.
func (j judge) score(text string) float64 {
	return j.classifier.Classify(&tiers.ClassifierInput{User: func() []byte { return []byte(text) }}).Score
}

// ordersOf measures every scorer.
func ordersOf(prompts []promptRow, resamples int) (lines []line, err error) {
	groups, err := newJudge("groups")
	if err != nil {
		return nil, err
	}
	lesson, err := newJudge("lesson")
	if err != nil {
		return nil, err
	}
	for _, by := range scorers(groups, lesson) {
		lines = append(lines, line{by.name, bootstrap(outcomes(prompts, by), resamples, seed)})
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

// scorers are all that is compared. The lesson's groups weigh 1 each and length adds
// less than that, so the whole part of its score is their number; the preset groups
// weigh a half or more.
func scorers(groups, lesson judge) []scorer {
	return []scorer{
		{"groups", func(text string) float64 { return math.Floor(2*groups.score(text)) / 2 }},
		{"groups, then length", groups.score},
		{"lesson, any match", func(text string) float64 { return min(math.Floor(lesson.score(text)), 1) }},
		{"lesson, number of groups", func(text string) float64 { return math.Floor(lesson.score(text)) }},
		{"prompt length", func(text string) float64 { return float64(len(text)) }},
		{"digit count", digits},
		{"random", func(string) float64 { return 0 }}, // all equal: the expectation of any random order
	}
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
