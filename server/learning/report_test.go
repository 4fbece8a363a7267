package learning

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
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
		got, err := r.Report(t.Context(), tiers, nil)
		if err == nil || !strings.Contains(err.Error(), "0 requests have labels") {
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
		if _, err := r.Report(t.Context(), tiers, nil); err == nil {
			t.Error("the files were read again at once")
		}
		time.Sleep(reportLeast)
		got, err = r.Report(t.Context(), tiers, nil)
		if err != nil || got.Requests != 40 || got.Paired != 40 || len(got.Curves) != 3 {
			t.Fatalf("40 pairs: %+v, %v", got, err)
		}
		s = open() // after a crash
		addPairs(t, s, 40, 50)
		if got, err = r.Report(t.Context(), tiers, nil); err != nil || got.Requests != 40 {
			t.Errorf("within a minute: %+v, %v", got, err)
		}
		if _, err = r.Report(t.Context(), training.Tiers{Small: "small", Large: "huge"}, nil); err == nil {
			t.Error("a tier without labels has a report")
		}
		if got, err = r.Report(t.Context(), tiers, nil); err != nil || got.Requests != 50 {
			t.Errorf("after other tiers: %+v, %v", got, err)
		}
	})
}

// TestReportsReadTheNewestLines of at most the limit, across files, as whole lines.
func TestReportsReadTheNewestLines(t *testing.T) {
	dir := t.TempDir()
	var names []string
	for i, text := range []string{"aa\nbb\n", "cc\ndd\n", "ee\nf"} {
		names = append(names, filepath.Join(dir, fmt.Sprint(i)))
		if err := os.WriteFile(names[i], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	names = slices.Insert(names, 1, filepath.Join(dir, "rotated meanwhile"))
	for limit, want := range map[int64]string{0: "", 1: "", 2: "", 3: "ee\n", 5: "ee\n", 6: "dd\nee\n", 8: "dd\nee\n",
		9: "cc\ndd\nee\n", 12: "bb\ncc\ndd\nee\n", 15: "aa\nbb\ncc\ndd\nee\n", 1 << 30: "aa\nbb\ncc\ndd\nee\n"} {
		o, err := openNewest(t.Context(), names, limit)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for _, part := range o.parts {
			if _, err := io.Copy(&got, part.In); err != nil {
				t.Fatal(err)
			}
			if limit == 6 && got.Len() == 3 && part.Name != names[2]+" after byte 3" {
				t.Error(part.Name)
			}
		}
		if o.close(); got.String() != want {
			t.Errorf("%d bytes: %q, want %q", limit, got.String(), want)
		}
	}
	long := filepath.Join(dir, "long")
	text := strings.Repeat("x", 200<<10) + "\naa\n" + strings.Repeat("y", 200<<10)
	if err := os.WriteFile(long, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int64]string{100 << 10: "aa\n", 3: "aa\n", 2: ""} {
		o, err := openNewest(t.Context(), []string{long}, limit)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(o.parts[0].In)
		if o.close(); err != nil || string(got) != want {
			t.Errorf("%d bytes of long lines: %d bytes, %v", limit, len(got), err)
		}
	}
}

// TestReadingEndsWithTheRequest, also while it waits for another one, and leaves no error for the next one.
func TestReadingEndsWithTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := openStore(t)
		addPairs(t, s, 0, 40)
		r, tiers := s.Reporter(), training.Tiers{Small: "small", Large: "large"}
		ctx, stop := context.WithCancel(t.Context())
		r.reading <- struct{}{}
		failed := make(chan error)
		go func() {
			_, err := r.Report(ctx, tiers, nil)
			failed <- err
		}()
		synctest.Wait()
		stop()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("a request that waits: %v", err)
		}
		<-r.reading
		if _, err := r.read(ctx, reported{tiers: tiers}); !errors.Is(err, context.Canceled) {
			t.Errorf("a reading: %v", err)
		}
		if got, err := r.Report(t.Context(), tiers, nil); err != nil || got.Requests != 40 {
			t.Errorf("afterwards: %+v, %v", got, err)
		}
	})
}
