package server

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"tierway/config"
	"tierway/server/control"
	"tierway/store"
)

// TestDatabaseThatTakesNoWritesIsReported lets every write of the ledger fail, as a
// full disk does, while the directory can be read.
func TestDatabaseThatTakesNoWritesIsReported(t *testing.T) {
	r := newAdminRig(t)
	full, err := store.OpenSQL(store.SQLConfig{URL: "sqlite://" + filepath.Join(t.TempDir(), "full.db")})
	if err != nil {
		t.Fatal(err)
	}
	if err := full.Close(); err != nil {
		t.Fatal(err)
	}
	writable := r.control.Stores.Ledger
	r.control.Stores.Ledger = store.NewLedger(store.LedgerConfig{SQL: full})
	r.control.Stores.Ledger.Add(store.Row{ID: "r1", Tenant: "acme"})
	state := func() (ready, up, status string) {
		ready = r.do(http.MethodGet, "/readyz", "").body
		for line := range strings.Lines(r.ops(http.StatusOK, http.MethodGet, "/metrics", "").body) {
			if strings.HasPrefix(line, "tierway_database_up ") {
				up = strings.TrimSpace(strings.TrimPrefix(line, "tierway_database_up "))
			}
		}
		return ready, up, decoded[statusShown](t, r.ops(http.StatusOK, http.MethodGet, "/admin/status", "")).SQL.State
	}
	for range 3 {
		if err := r.control.Stores.Ledger.Flush(context.Background()); err == nil {
			t.Fatal("the ledger was written")
		}
		r.control.Database.NoteState(nil, r.control.Stores.Ledger.Stats().Err)
	}
	if ready, up, status := state(); !strings.Contains(ready, `"ready":true`) || !strings.Contains(ready, "database: takes no writes") || up != "0" || status != "read_only" {
		t.Errorf("/readyz %s, tierway_database_up %s, status %s", ready, up, status)
	}
	if n := strings.Count(r.logs.String(), "database takes no writes"); n != 1 {
		t.Errorf("%d lines of log, want one: %s", n, r.logs)
	}
	r.control.Stores.Ledger = writable
	r.control.Database.NoteState(nil, r.control.Stores.Ledger.Stats().Err)
	if ready, up, status := state(); strings.Contains(ready, "database") || up != "1" || status != "ok" {
		t.Errorf("afterwards /readyz %s, tierway_database_up %s, status %s", ready, up, status)
	}
}

// TestAnErrorSaysOnceWhatWasBeingDone: of a configuration that cannot be read.
func TestAnErrorSaysOnceWhatWasBeingDone(t *testing.T) {
	r := newAdminRig(t)
	gone := filepath.Join(t.TempDir(), "config.yaml")
	r.source = func() (*config.File, error) { return config.Load(gone, nil) }
	if _, err := r.Reload(t.Context(), control.ReloadRequest{DryRun: true}); err == nil || strings.Count(err.Error(), "reading the configuration") != 1 {
		t.Error(err)
	}
}
