package learning

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tierway/config"
	"tierway/tierscore"
	"tierway/tierscore/training"
)

// openStore opens a store in a directory that does not exist.
func openStore(t *testing.T) (*Store, config.Learning) {
	t.Helper()
	c := config.Learning{Directory: filepath.Join(t.TempDir(), "learning"), MaxSize: 1 << 20, MaxFiles: 2}
	s, err := Open(Config{Learning: c, Log: slog.New(slog.DiscardHandler),
		Recover: func(_ string, step func() error) error { return step() }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, c
}

// written ends the store and returns a file.
func written(t *testing.T, s *Store, path string) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	s.Run(ctx)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func start() time.Time { return time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC) }

// TestLinesAreThoseOfTheTraining: every line that a store writes is one that package training reads, and the two join.
func TestLinesAreThoseOfTheTraining(t *testing.T) {
	s, c := openStore(t)
	model := 0.25
	for i, tenant := range []string{"acme", "other"} {
		f := &Features{ID: fmt.Sprint("r", i), Time: start(), Tenant: tenant, Tier: "large", Rule: "exploration",
			Explored: 0.5, Baseline: 3.5, Model: &model}
		tierscore.NewExtractor("").Extract(&f.Features, &tierscore.Input{Tenant: tenant, User: []byte("What is it?")})
		s.AddFeatures(f)
	}
	for _, l := range []Label{
		{ID: "r0", Time: start(), Tenant: "acme", OK: true, Weight: 1, Source: SourceFeedback},
		{ID: "r0", Time: start(), Tenant: "acme", Tier: "small", Weight: 1, Source: SourceEscalation},
		{ID: "r0", Time: start(), Tenant: "acme", Tier: "small", OK: true, Weight: 1, Source: SourceReplay},
		{ID: "r1", Time: start(), Tenant: "acme", OK: true, Weight: 1, Source: SourceFeedback}, // of another tenant's request
	} {
		if err := s.AddLabels(l); err != nil {
			t.Fatal(err)
		}
	}
	labels := training.NewLabels(training.Tiers{Small: "small", Large: "large"})
	if err := labels.Read("labels", strings.NewReader(written(t, s, c.LabelsFile()))); err != nil {
		t.Fatal(err)
	}
	features, err := os.ReadFile(c.FeaturesFile())
	if err != nil {
		t.Fatal(err)
	}
	var d training.Data
	if err := d.ReadFeatures("features", strings.NewReader(string(features)), labels); err != nil {
		t.Fatal(err)
	}
	d.Join(labels)
	if d.Lines != 2 || d.Requests() != 1 || labels.Lines != 3 || labels.OtherTenant != 1 {
		t.Errorf("%d lines of features, %d requests, %d labels, %d of another tenant", d.Lines, d.Requests(), labels.Lines,
			labels.OtherTenant)
	}
	if g := s.Counts(); g.Features != 2 || g.Labels != 4 || g.FeaturesDropped+g.LabelsDropped != 0 {
		t.Errorf("%+v", g)
	}
	for _, path := range []string{c.FeaturesFile(), c.LabelsFile()} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

// TestAFullStoreRefusesLabels: no accepted label makes room for another one.
func TestAFullStoreRefusesLabels(t *testing.T) {
	s, c := openStore(t)
	n := 1 // odd, so that one label more fits when two are refused
	if err := s.AddLabels(Label{ID: "first", Time: start(), Weight: 1, Source: SourceFeedback}); err != nil {
		t.Fatal(err)
	}
	for one := (Label{Time: start(), Weight: 1, Source: SourceReplay}); s.AddLabels(one, one) == nil; n += 2 {
	}
	for ; s.AddLabels(Label{ID: fmt.Sprint(n), Time: start(), Weight: 1, Source: SourceFeedback}) == nil; n++ {
	}
	if err := s.AddLabels(Label{}); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	lines := strings.Count(written(t, s, c.LabelsFile()), "\n")
	if lines != n || n%2 != 0 || s.Counts().LabelsDropped != 4 {
		t.Errorf("%d lines of %d accepted labels, %+v", lines, n, s.Counts())
	}
	if err := s.AddLabels(Label{ID: "later", Weight: 1}); err != nil {
		t.Error(err)
	}
}

// TestOpenFailsInAnUnwritableDirectory: with the key and the cause.
func TestOpenFailsInAnUnwritableDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, os.DevNull} {
		_, err := Open(Config{Learning: config.Learning{Directory: path}})
		if err == nil || !strings.Contains(err.Error(), "creating learning.directory: ") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestEscalationsLabelTheEarlierAnswer: only a higher tier within ten minutes is an escalation, and once.
func TestEscalationsLabelTheEarlierAnswer(t *testing.T) {
	tiers := []string{"small", "medium", "large"}
	for name, c := range map[string]struct {
		prompt uint64
		tier   string // of the repeated request
		after  time.Duration
		times  int
		want   int
	}{
		"a higher tier":          {1, "large", time.Minute, 1, 1},
		"the next tier":          {1, "medium", escalationTime, 1, 1},
		"the same tier":          {1, "small", time.Minute, 1, 0},
		"another prompt":         {2, "large", time.Minute, 1, 0},
		"too late":               {1, "large", escalationTime + 1, 1, 0},
		"twice":                  {1, "large", time.Minute, 2, 1},
		"a tier that is no more": {1, "", time.Minute, 1, 0},
	} {
		s, f := openStore(t)
		s.Remember(1, Answer{ID: "first", Tenant: "acme", Tier: "small", At: start()})
		lower := func(tier string) bool { return slices.Index(tiers, tier) < slices.Index(tiers, c.tier) }
		for range c.times {
			s.Escalate(c.prompt, start().Add(c.after), lower)
		}
		text := written(t, s, f.LabelsFile())
		if got := strings.Count(text, "\n"); got != c.want {
			t.Errorf("%s: %d labels, want %d", name, got, c.want)
		}
		if c.want == 1 && !strings.Contains(text, `"tenant":"acme","tier":"small","ok":false,"weight":1,"source":"escalation"}`) {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// TestAnswersAreBounded: the oldest answer is dropped, and a repeated prompt keeps its last answer.
func TestAnswersAreBounded(t *testing.T) {
	a, anyTier := newAnswers(3), func(string) bool { return true }
	for i := range 4 {
		a.remember(uint64(i), Answer{ID: fmt.Sprint(i)})
	}
	a.remember(1, Answer{ID: "again"})
	a.remember(4, Answer{ID: "4"}) // in place of 2
	for prompt, want := range map[uint64]string{0: "", 1: "again", 2: "", 3: "3", 4: "4"} {
		if got, ok := a.removeIfLower(prompt, time.Time{}, anyTier); got.ID != want || ok != (want != "") {
			t.Errorf("prompt %d has the answer %q, want %q", prompt, got.ID, want)
		}
	}
	if a.uses.Len() != 0 || len(a.byPrompt) != 0 {
		t.Errorf("%d and %d answers are left", a.uses.Len(), len(a.byPrompt))
	}
}

// TestAnswersAreSafeForConcurrentUse: each answer is taken once.
func TestAnswersAreSafeForConcurrentUse(t *testing.T) {
	a := newAnswers(1000)
	var owned sync.WaitGroup
	taken := make([]int, 4)
	for i := range taken {
		owned.Go(func() {
			for prompt := range uint64(100) {
				a.remember(1000*uint64(i+1)+prompt, Answer{})
			}
			for prompt := range uint64(400) {
				if _, ok := a.removeIfLower(1000*(1+prompt%4)+prompt/4, time.Time{}, func(string) bool { return true }); ok {
					taken[i]++
				}
			}
		})
	}
	owned.Wait()
	left := a.uses.Len()
	if sum := taken[0] + taken[1] + taken[2] + taken[3]; sum+left != 400 {
		t.Errorf("%d were taken and %d are left of 400", sum, left)
	}
}
