package learning

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"tierway/config"
	"tierway/spool"
	"tierway/telemetry"
	"tierway/tierscore"
)

// Sources of labels that a gateway writes, as package training reads them.
const (
	SourceReplay     = "replay"     // the request was repeated on the tier
	SourceEscalation = "escalation" // a client sent the prompt again to a higher tier
	SourceFeedback   = "feedback"   // a client labelled the answer
)

// ErrFull means that too many labels wait for the disk. Try again later.
var ErrFull = errors.New("too many labels wait to be written")

// Features is a line of features.jsonl: a classified request that an engine answered.
type Features struct {
	ID     string    `json:"id"` // of the request, as in X-Request-ID
	Time   time.Time `json:"ts"`
	Tenant string    `json:"tenant"`
	Tier   string    `json:"tier"` // that answered
	Rule   string    `json:"rule"`
	// Explored is tiers.Propensity of a tier that was selected at random; otherwise 0.
	Explored float64            `json:"explored,omitempty"`
	Baseline float64            `json:"baseline"`        // the default score
	Model    *float64           `json:"model,omitempty"` // score of the model; nil: unknown
	Features tierscore.Features `json:"features"`
}

// Label is a line of labels.jsonl.
type Label struct {
	ID     string    `json:"id"` // of the request
	Time   time.Time `json:"ts"`
	Tenant string    `json:"tenant"`
	Tier   string    `json:"tier,omitempty"` // of the labelled answer; empty: that of the line of features
	OK     bool      `json:"ok"`             // the answer was right
	Weight float64   `json:"weight"`         // above 0, at most 1
	Source string    `json:"source"`
}

// Store writes features and labels. It is safe for concurrent use.
type Store struct {
	features *spool.File[*Features]
	labels   *spool.File[Label]
	answered *answers
}

// Config configures a Store.
type Config struct {
	Learning config.Learning
	Log      *slog.Logger
	// Recover runs a step and returns an error if the step panics.
	Recover func(work string, step func() error) error
}

// Open opens the files in learning.directory, which must not be empty. It creates the directory for its owner only. Run
// writes the lines. The caller must close the store after Run has returned.
func Open(c Config) (s *Store, err error) {
	if err := os.MkdirAll(c.Learning.Directory, 0o700); err != nil {
		return nil, fmt.Errorf("creating learning.directory: %w", err)
	}
	file := func(path string) spool.FileConfig {
		return spool.FileConfig{Key: "learning.directory", Path: path, MaxSize: int64(c.Learning.MaxSize),
			Files: c.Learning.MaxFiles, Log: c.Log, Recover: c.Recover}
	}
	s = &Store{answered: newAnswers(maxAnswers)}
	if s.features, err = spool.OpenFile[*Features](file(c.Learning.FeaturesFile())); err != nil {
		return nil, err
	}
	if s.labels, err = spool.OpenFile[Label](file(c.Learning.LabelsFile())); err != nil {
		s.features.Close()
		return nil, err
	}
	return s, nil
}

// Run writes lines until ctx ends, and then those that wait.
func (s *Store) Run(ctx context.Context) {
	var owned sync.WaitGroup
	owned.Go(func() { s.features.Run(ctx) })
	s.labels.Run(ctx)
	owned.Wait()
}

// Close closes the files.
func (s *Store) Close() {
	s.features.Close()
	s.labels.Close()
}

// AddFeatures writes a line of features. f must not change afterwards. If too many lines wait, the oldest is lost.
func (s *Store) AddFeatures(f *Features) { s.features.Add(f) }

// AddLabels writes all labels, or returns ErrFull and writes none. An accepted label is lost if the disk fails, or in a
// crash of the gateway within 200 ms.
func (s *Store) AddLabels(labels ...Label) error {
	if !s.labels.TryAdd(labels...) {
		return ErrFull
	}
	return nil
}

// Remember stores that a tier answered a prompt, for Escalate. prompt is a hash of tenant and all turns.
func (s *Store) Remember(prompt uint64, l Answer) { s.answered.remember(prompt, l) }

// Escalate writes a label if a lower tier answered the same prompt in the last ten minutes: the answer was not good
// enough. lower reports whether a tier is lower than the one of the repeated request. An answer is labelled once.
func (s *Store) Escalate(prompt uint64, now time.Time, lower func(tier string) bool) {
	was, ok := s.answered.removeIfLower(prompt, now, lower)
	if ok {
		// If too many labels wait, the metric counts it.
		_ = s.AddLabels(Label{ID: was.ID, Time: now.UTC(), Tenant: was.Tenant, Tier: was.Tier, Weight: 1,
			Source: SourceEscalation})
	}
}

// Counts returns the numbers of lines for a scrape. A nil Store has none.
func (s *Store) Counts() (g telemetry.LearningFiles) {
	if s == nil {
		return g
	}
	features, labels := s.features.Stats(), s.labels.Stats()
	return telemetry.LearningFiles{Features: features.Written, FeaturesDropped: features.Dropped,
		Labels: labels.Written, LabelsDropped: labels.Dropped}
}
