package server

import (
	"database/sql"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/config"
	"tierway/server/control"
	"tierway/store"
)

// TestDatabaseThatRejectsWritesIsReported: every write of the ledger fails, while the directory can be
// read.
func TestDatabaseThatRejectsWritesIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "t.db")
		r := adminRigOf(newRig(t, adminYAML("sqlite://"+path), fakeEngine()))
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		rename := func(from, to string) {
			t.Helper()
			if _, err := db.ExecContext(t.Context(), "ALTER TABLE "+from+" RENAME TO "+to); err != nil {
				t.Fatal(err)
			}
		}
		state := func() (ready, up, status string) {
			ready = r.do(http.MethodGet, "/readyz", "").body
			for line := range strings.Lines(r.ops(http.StatusOK, http.MethodGet, "/metrics", "").body) {
				if strings.HasPrefix(line, "tierway_database_up ") {
					up = strings.TrimSpace(strings.TrimPrefix(line, "tierway_database_up "))
				}
			}
			return ready, up, decode[statusShown](t, r.ops(http.StatusOK, http.MethodGet, "/admin/status", "")).SQL.State
		}
		r.runControl()
		rename("ledger", "away")
		r.control.Stores.Ledger.Add(store.Row{ID: "r1", Tenant: "acme"})
		if err := r.control.Stores.Ledger.Flush(t.Context()); err == nil {
			t.Fatal("the ledger was written")
		}
		waitUntil(t, "another state", func() bool { _, up, _ := state(); return up == "0" })
		if ready, up, status := state(); !strings.Contains(ready, `"ready":true`) ||
			!strings.Contains(ready, "database: rejects writes") || up != "0" || status != "read_only" {
			t.Errorf("/readyz %s, tierway_database_up %s, status %s", ready, up, status)
		}
		rename("away", "ledger")
		if err := r.control.Stores.Ledger.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, "the state before", func() bool { _, up, _ := state(); return up == "1" })
		if ready, up, status := state(); strings.Contains(ready, "database") || up != "1" || status != "ok" {
			t.Errorf("afterwards /readyz %s, tierway_database_up %s, status %s", ready, up, status)
		}
		if n := strings.Count(r.logs.String(), "database takes no writes"); n != 1 {
			t.Errorf("%d lines of log, want one: %s", n, r.logs)
		}
	})
}

// TestReloadErrorHasItsPrefixOnce if the configuration cannot be read.
func TestReloadErrorHasItsPrefixOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		gone := filepath.Join(t.TempDir(), "config.yaml")
		r.source = func() (*config.File, error) { return config.Load(gone, nil) }
		if _, err := r.Reload(t.Context(), control.ReloadRequest{DryRun: true}); err == nil ||
			strings.Count(err.Error(), "reading the configuration") != 1 {
			t.Error(err)
		}
	})
}
