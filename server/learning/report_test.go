package learning

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/config"
	"tierway/tierscore"
	"tierway/tierscore/training"
)

// addPairs adds requests with labels of both tiers and writes them to the files.
func addPairs(t *testing.T, s *Store, from, to int) {
	t.Helper()
	e := tierscore.NewExtractor("")
	for i := from; i < to; i++ {
		id := fmt.Sprint("r", i)
		f := &Features{ID: id, Time: start(), Tenant: "acme", Tier: "small", Rule: "default", Baseline: float64(i % 7)}
		e.Extract(&f.Features, &tierscore.Input{Tenant: "acme", User: []byte(strings.Repeat("tea ", i%9))})
		s.AddFeatures(f)
		for _, tier := range []string{"small", "large"} {
			l := Label{ID: id, Time: start(), Tenant: "acme", Tier: tier, OK: tier == "large" || i%2 == 0, Weight: 1,
				Source: SourceReplay}
			if err := s.AddLabels(l); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	s.Run(ctx)
}

// TestTheReportReadsTheFilesOfTheStore: those that rotation keeps, up to their last whole line, at most once a minute.
func TestTheReportReadsTheFilesOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config.Learning{Directory: t.TempDir(), MaxSize: 1 << 10, MaxFiles: 9}
		open := func() *Store {
			s, err := Open(Config{Learning: c, Log: slog.New(slog.DiscardHandler),
				Recover: func(_ string, step func() error) error { return step() }})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
			return s
		}
		s := open()
		r, tiers := s.Reporter(), training.Tiers{Small: "small", Large: "large"}
		if got, err := r.Report(tiers, nil); err == nil || !strings.Contains(err.Error(), "0 requests have labels") {
			t.Errorf("without lines: %+v, %v", got, err)
		}
		addPairs(t, s, 0, 20)
		addPairs(t, s, 20, 40)
		if _, err := os.Stat(c.FeaturesFile() + ".1"); err != nil {
			t.Errorf("nothing is rotated: %v", err)
		}
		torn, err := os.OpenFile(c.LabelsFile(), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := torn.WriteString(`{"id":"r1`); err != nil {
			t.Fatal(err)
		}
		torn.Close()
		if _, err := r.Report(tiers, nil); err == nil {
			t.Error("the files were read again at once")
		}
		time.Sleep(minReportPause)
		got, err := r.Report(tiers, nil)
		if err != nil || got.Requests != 40 || got.Paired != 40 || len(got.Curves) != 3 {
			t.Fatalf("40 pairs: %+v, %v", got, err)
		}
		s = open() // after a crash
		addPairs(t, s, 40, 50)
		if got, err = r.Report(tiers, nil); err != nil || got.Requests != 40 {
			t.Errorf("within a minute: %+v, %v", got, err)
		}
		if _, err = r.Report(training.Tiers{Small: "small", Large: "huge"}, nil); err == nil {
			t.Error("a tier without labels has a report")
		}
		if got, err = r.Report(tiers, nil); err != nil || got.Requests != 50 {
			t.Errorf("after other tiers: %+v, %v", got, err)
		}
	})
}
