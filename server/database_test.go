package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"tierway/config"
	"tierway/store"
)

// TestDatabaseThatTakesNoWritesIsReported lets every write of the ledger fail, as a
// full disk does, while the directory can be read.
func TestDatabaseThatTakesNoWritesIsReported(t *testing.T) {
	r := newAdminRig(t)
	log := &lines{}
	r.log = slog.New(slog.NewJSONHandler(log, nil))
	full, err := store.OpenSQL(store.SQLConfig{URL: "sqlite://" + filepath.Join(t.TempDir(), "full.db")})
	if err != nil {
		t.Fatal(err)
	}
	if err := full.Close(); err != nil {
		t.Fatal(err)
	}
	writable := r.ledger
	r.ledger = store.NewLedger(store.LedgerConfig{SQL: full})
	r.ledger.Add(store.Row{ID: "r1", Tenant: "acme"})
	state := func() (ready, up, status string) {
		ready = r.do(http.MethodGet, "/readyz", "").body
		for line := range strings.Lines(r.ops(http.StatusOK, http.MethodGet, "/metrics", "").body) {
			if strings.HasPrefix(line, "tierway_database_up ") {
				up = strings.TrimSpace(strings.TrimPrefix(line, "tierway_database_up "))
			}
		}
		return ready, up, decoded[StatusView](t, r.ops(http.StatusOK, http.MethodGet, "/admin/status", "")).SQL.State
	}
	for range 3 {
		if err := r.ledger.Flush(context.Background()); err == nil {
			t.Fatal("the ledger was written")
		}
		r.noteDatabase(nil, r.ledger.Stats().Err)
	}
	if ready, up, status := state(); !strings.Contains(ready, `"ready":true`) || !strings.Contains(ready, "database: takes no writes") || up != "0" || status != "read_only" {
		t.Errorf("/readyz %s, tierway_database_up %s, status %s", ready, up, status)
	}
	if n := strings.Count(log.String(), "database takes no writes"); n != 1 {
		t.Errorf("%d lines of log, want one: %s", n, log)
	}
	r.ledger = writable
	r.noteDatabase(nil, r.ledger.Stats().Err)
	if ready, up, status := state(); strings.Contains(ready, "database") || up != "1" || status != "ok" {
		t.Errorf("afterwards /readyz %s, tierway_database_up %s, status %s", ready, up, status)
	}
}

// TestAFullDatabaseIsAnsweredAsOneThatIsAway: the change may be sent again once there
// is room, so that 500 would be wrong.
func TestAFullDatabaseIsAnsweredAsOneThatIsAway(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "full.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // the pragma is the connection's
	var full error
	for _, do := range []string{"PRAGMA max_page_count = 1", "CREATE TABLE a (b)", "CREATE TABLE c (d)", "CREATE TABLE e (f)"} {
		_, full = db.ExecContext(t.Context(), do)
	}
	if full == nil || !strings.Contains(full.Error(), "full") {
		t.Fatalf("the database is not full: %v", full)
	}
	r := newAdminRig(t)
	answer := (&adminPlane{s: r.Server}).failed("creating a tenant", fmt.Errorf("creating a tenant: %w", full))
	var status huma.StatusError
	var headers huma.HeadersError
	if !errors.As(answer, &status) || status.GetStatus() != http.StatusServiceUnavailable ||
		!errors.As(answer, &headers) || headers.GetHeaders().Get("Retry-After") == "" {
		t.Errorf("%v", answer)
	}
}

// TestAnErrorSaysOnceWhatWasBeingDone: of a schema that is too new, and of a
// configuration that cannot be read.
func TestAnErrorSaysOnceWhatWasBeingDone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.db")
	r := adminRigOf(newRig(t, adminYAML("sqlite://"+file), fakeEngine(), fakeEngine()))
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1)"); err != nil {
		t.Fatal(err)
	}
	r.migrated.Store(false)
	if err := r.migrate(t.Context()); !errors.Is(err, store.ErrNewer) || strings.Count(err.Error(), "migrating the database") != 1 {
		t.Error(err)
	}
	gone := filepath.Join(t.TempDir(), "config.yaml")
	r.source = func() (*config.File, error) { return config.Load(gone, nil) }
	if _, err := r.Reload(t.Context(), ReloadRequest{DryRun: true}); err == nil || strings.Count(err.Error(), "reading the configuration") != 1 {
		t.Error(err)
	}
}
