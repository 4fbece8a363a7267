package main

import (
	"fmt"
	"math"

	"tierway/tiers"
)

// scorer orders prompts: a higher score is sent to the strong model sooner.
type scorer struct {
	name  string
	score func(text string) float64
}

// judge is a preset as the gateway runs it.
type judge struct{ classifier *tiers.Classifier }

func newJudge(preset string) (judge, error) {
	k, err := tiers.NewClassifier(tiers.Rules{Preset: preset}, []string{"small", "large"})
	if err != nil {
		return judge{}, fmt.Errorf("compiling the preset %q: %w", preset, err)
	}
	return judge{k}, nil
}

// class is what the classifier says of a prompt that is the whole request.
func (j judge) class(text string) tiers.Class {
	return j.classifier.Classify(&tiers.Features{
		PromptTokens: int64(len(text) / 4),
		User:         func() []byte { return []byte(text) },
	})
}

// large tells whether a prompt goes to the last of two tiers.
func (j judge) large(text string) bool { return j.class(text).Tier == 1 }

// scorers are all that is compared. The lesson's groups weigh 1 each and length
// adds less than that, so the whole part of its score is their number.
func scorers(groups, lesson judge) []scorer {
	return []scorer{
		{"groups, then length (shipped)", func(text string) float64 { return groups.class(text).Score }},
		{"lesson, any match", func(text string) float64 { return min(math.Floor(lesson.class(text).Score), 1) }},
		{"lesson, number of groups", func(text string) float64 { return math.Floor(lesson.class(text).Score) }},
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
