package tiers

import (
	"fmt"
	"math"

	"tierway/tierscore"
)

// Model is a trained score beside the rules.
type Model struct {
	Score   *tierscore.Model
	Hash    string // SHA-256 of the model's file, in hex
	Decides bool   // classifier.share orders prompts by the model's score
}

// ModelScore is the score of a model for one request.
type ModelScore struct {
	Model string `json:"model"` // the first eight hex digits of the SHA-256 of the model's file
	// rounded to 0.001; higher means the large tier. If the model has no score, it is the default score on the same scale
	Value float64 `json:"value"`
	Known bool    `json:"known"` // the model has a score: the labels of the request's route suffice
}

// Scores are the scores of a classified request.
type Scores struct {
	Default float64    // Classification.Score
	Model   ModelScore // the zero value without a model
}

const (
	// maxModelScore bounds the scores of models, whose mean is 0 and whose deviation is 1.
	maxModelScore = 999
	// belowAllScores is below every score.
	belowAllScores = -1 - maxModelScore
)

// String returns the score for an explanation.
func (s *ModelScore) String() string {
	if !s.Known {
		return fmt.Sprintf("model %s has no score: the route has too few labels", s.Model)
	}
	return fmt.Sprintf("model %s has the score %s", s.Model, number(s.Value))
}

// name returns what identifies the model in records.
func (m *Model) name() string { return m.Hash[:min(8, len(m.Hash))] }

// decides reports whether the order of prompts is that of the model's score.
func (m *Model) decides() bool { return m != nil && m.Decides }

// orderedBy returns the name of the model whose score orders prompts; empty: the default score does.
func (k *Classifier) orderedBy() string {
	if k.model.decides() {
		return k.model.name()
	}
	return ""
}

// modelScore returns the model's score of a request with a default score, or that of its record.
func (k *Classifier) modelScore(f *ClassifierInput, score float64) ModelScore {
	m := k.model
	if m == nil {
		return ModelScore{}
	}
	to := ModelScore{Model: m.name()}
	if was := f.recorded; was != nil {
		if was.model != nil && was.model.Model == to.Model && was.model.Known {
			return *was.model
		}
	} else if features := f.features(); features != nil {
		var difference float64
		if difference, to.Known = m.Score.Difference(features); to.Known {
			to.Value = m.Score.Standard(difference)
		}
	}
	if !to.Known {
		to.Value = m.Score.Default(score)
	}
	to.Value = max(-maxModelScore, min(maxModelScore, math.Round(1000*to.Value)/1000))
	return to
}

// scoresOf sets the scores of a searched request, and the one by which classifier.share orders it.
func (k *Classifier) scoresOf(f *ClassifierInput, s *search) {
	s.scores.Default = k.grading.score(s)
	s.scores.Model = k.modelScore(f, s.scores.Default)
	if s.score = s.scores.Default; k.model.decides() {
		s.score = s.scores.Model.Value
	}
}

// modelScore returns the model's score for a record, or nil without a model.
func (s *search) modelScore() *ModelScore {
	if s.scores.Model == (ModelScore{}) {
		return nil
	}
	return new(s.scores.Model)
}
