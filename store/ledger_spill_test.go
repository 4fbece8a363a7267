package store

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/tenants"
)

// runFor runs a ledger for a time.
func runFor(t *testing.T, l *Ledger, d time.Duration) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { l.Run(ctx) })
	time.Sleep(d)
	stop()
	run.Wait()
}

// spilled returns the names of the files in a directory.
func spilled(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		names = append(names, f.Name())
	}
	return names
}

// TestRowsOfAnOutageAtShutdownAreWrittenByTheNextStartOnce, also if the database is still away then, and if a process
// ends between writing the rows and removing their file.
func TestRowsOfAnOutageAtShutdownAreWrittenByTheNextStartOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "[a] *?")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		s, err := OpenSQL(SQLConfig{URL: "sqlite://:memory:"})
		if err == nil {
			defer s.Close()
			_, err = s.Migrate(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		down := &shelf{down: context.DeadlineExceeded}
		at := time.Now()
		first := newLedger(LedgerConfig{SQL: s, SpillDir: dir}, down)
		const n = 1234
		for i := range n {
			first.Add(Row{ID: fmt.Sprint("a", i), At: at, Tenant: "acme", Model: "m\n\"é", Outcome: "ok", Output: 2, Money: 7,
				FromCache: i%2 == 0, Saved: 3})
		}
		runFor(t, first, time.Second)
		second := newLedger(LedgerConfig{SQL: s, SpillDir: dir}, down)
		second.Add(Row{ID: "b", At: at, Tenant: "acme", Outcome: "ok"})
		runFor(t, second, time.Minute)
		files := spilled(t, dir)
		if len(files) != 2 {
			t.Fatalf("there are %q", files)
		}
		text, err := os.ReadFile(filepath.Join(dir, files[0]))
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(filepath.Join(dir, files[0])); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, mode %v", err, info.Mode())
		}
		for range 2 { // the second time, the file is there again as after a crash
			runFor(t, newLedger(LedgerConfig{SQL: s, SpillDir: dir, Retention: time.Hour}, s), time.Minute)
			if files := spilled(t, dir); len(files) != 0 {
				t.Errorf("there are %q", files)
			}
			usage, err := s.Usage(t.Context(), UsageQuery{Tenant: "acme"})
			want := []UsageRow{{Day: at.UTC().Format(time.DateOnly), Requests: n + 1, Output: 2 * n,
				Money: tenants.Money(7 * n), CachedRequests: n / 2, Saved: tenants.Money(3 * n)}}
			if diff := cmp.Diff(want, usage); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if err := os.WriteFile(filepath.Join(dir, files[0]), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestSpilledRowsAreWrittenToTheirOwnDatabase: gateways with other databases may use the same directory. Their files
// stay, and the log names them.
func TestSpilledRowsAreWrittenToTheirOwnDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, at, log := t.TempDir(), time.Now(), &bytes.Buffer{}
		open := func(file string) *SQL {
			t.Helper()
			s, err := OpenSQL(SQLConfig{URL: "sqlite://" + filepath.Join(t.TempDir(), file)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			if _, err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			return s
		}
		own, other := open("tierway.db"), open("tierway.db")
		logger := slog.New(slog.NewTextHandler(log, nil))
		spills := newLedger(LedgerConfig{SQL: own, SpillDir: dir}, &shelf{down: context.DeadlineExceeded})
		spills.Add(Row{ID: "1", At: at, Tenant: "acme", Outcome: "ok"})
		runFor(t, spills, time.Second)
		for _, c := range []struct {
			s              *SQL
			written, files int
		}{{other, 0, 1}, {own, 1, 0}} {
			runFor(t, NewLedger(LedgerConfig{SQL: c.s, SpillDir: dir, Log: logger}), time.Second)
			usage, err := c.s.Usage(t.Context(), UsageQuery{Tenant: "acme"})
			if err != nil || len(usage) != c.written || len(spilled(t, dir)) != c.files {
				t.Errorf("%v, %v, files %q, want %d rows and %d files", usage, err, spilled(t, dir), c.written, c.files)
			}
		}
		if n := strings.Count(log.String(), "rows of another database"); n != 1 {
			t.Errorf("%d warnings of the other database's file: %s", n, log)
		}
	})
}

// TestDatabaseIsIdentifiedByItsPlace, not by its credentials.
func TestDatabaseIsIdentifiedByItsPlace(t *testing.T) {
	id := func(url string) string {
		t.Helper()
		s, err := OpenSQL(SQLConfig{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return s.id
	}
	const same = "postgres://u:secret@db:5432/tierway"
	for url, want := range map[string]bool{
		"postgres://other:pw@db/tierway?sslmode=disable": true, "postgresql://db/tierway?application_name=x&user=u": true,
		"postgres://u@db2/tierway": false, "postgres://u@db:5433/tierway": false, "postgres://u@db/other": false,
		"postgres://u@db,db2/tierway": false, "postgres://u@db/tierway?search_path=b": false, "sqlite://:memory:": false,
	} {
		if got := id(url); (got == id(same)) != want || len(got) != 12 {
			t.Errorf("%s: %s, that of %s is %s", url, got, same, id(same))
		}
	}
	if id("postgres://tierway@db") != id(same) {
		t.Error("without a name, PostgreSQL uses the database of the user's name")
	}
}

// TestUnreadableLinesOfSpilledRowsAreReported, and do not keep the others from being written.
func TestUnreadableLinesOfSpilledRowsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, up, log := t.TempDir(), &shelf{}, &bytes.Buffer{}
		name := spillPrefix + "-1" + spillSuffix // of a ledger without a database
		const text = "{\"ID\":\"1\"}\n{\n\n{}\n{\"ID\":\"2\"}"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		runFor(t, newLedger(LedgerConfig{SpillDir: dir, Log: slog.New(slog.NewTextHandler(log, nil))}, up), time.Second)
		if up.rows["1"] != 1 || up.rows["2"] != 1 || !cmp.Equal(spilled(t, dir), []string{name + spillBad}) ||
			!strings.Contains(log.String(), "rows=2") {
			t.Errorf("written %v, left %q, logged %s", up.rows, spilled(t, dir), log)
		}
	})
}

// TestRowsThatCannotBeSpilledAreReportedAsLost with the way out.
func TestRowsThatCannotBeSpilledAreReportedAsLost(t *testing.T) {
	for _, dir := range []string{"", filepath.Join(t.TempDir(), "none")} {
		synctest.Test(t, func(t *testing.T) {
			log := &bytes.Buffer{}
			l := newLedger(LedgerConfig{SpillDir: dir, Log: slog.New(slog.NewTextHandler(log, nil))},
				&shelf{down: context.DeadlineExceeded})
			l.Add(Row{ID: "1"})
			runFor(t, l, time.Second)
			if !strings.Contains(log.String(), "ledger rows lost") || !strings.Contains(log.String(), "store.spill_dir") {
				t.Errorf("the log is %s", log)
			}
		})
	}
}
