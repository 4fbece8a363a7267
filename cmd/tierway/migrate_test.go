package main

import (
	"database/sql"
	"os"
	"strings"
	"testing"
)

func TestMigratePrintsBothVersions(t *testing.T) {
	h := newHouse(t, "")
	s := tierway(t, "migrate", "status", "-c", h.config)
	if s.status != 1 || !strings.Contains(s.out, "schema 0, latest ") ||
		!strings.Contains(s.messages, "tierway migrate up -c "+h.config) {
		t.Errorf("of an empty database: status %d, %s%s", s.status, s.out, s.messages)
	}
	if _, err := os.Stat(h.database); err == nil {
		t.Error("to ask has made a database")
	}
	if s := must(t, "migrate", "up", "-c", h.config); !strings.Contains(s.out, h.database+": schema 0 → ") {
		t.Errorf("up: %s", s.out)
	}
	if s := must(t, "migrate", "up", "-c", h.config); !strings.Contains(s.out, "up to date") {
		t.Errorf("up again: %s", s.out)
	}
	if s := must(t, "migrate", "status", "-c", h.config); s.messages != "" {
		t.Errorf("status: %s", s.messages)
	}
}

// Only `tierway migrate up` updates a database of the release before. Its contents are kept.
func TestOnlyMigrateUpdatesAnOlderDatabase(t *testing.T) {
	h := newHouse(t, "")
	must(t, "keys", "create", "-c", h.config, "--tenant", "acme")
	for _, trigger := range []string{"tenants_added", "tenants_changed", "tenants_deleted", "keys_added", "keys_changed",
		"keys_deleted"} {
		h.execute(t, "DROP TRIGGER "+trigger)
	}
	for _, index := range []string{"tenants_revision", "keys_revision", "keys_ending"} {
		h.execute(t, "DROP INDEX "+index)
	}
	h.execute(t, "DROP TABLE deletions")
	h.execute(t, "ALTER TABLE revision DROP COLUMN pruned")
	h.execute(t, "ALTER TABLE tenants DROP COLUMN revision")
	h.execute(t, "ALTER TABLE keys DROP COLUMN revision")
	h.execute(t, "ALTER TABLE tenants DROP COLUMN weight")
	h.execute(t, "ALTER TABLE tenants DROP COLUMN response_cache")
	h.execute(t, "ALTER TABLE usage DROP COLUMN cached_requests")
	h.execute(t, "ALTER TABLE usage DROP COLUMN saved")
	h.execute(t, "DELETE FROM goose_db_version WHERE version_id > 1")
	for _, args := range [][]string{{"keys", "list"}, {"keys", "create", "--tenant", "new"}} {
		if s := tierway(t, append(args, "-c", h.config)...); s.status == 0 || s.out != "" ||
			!strings.Contains(s.messages, "has schema 1 ") || !strings.Contains(s.messages, "tierway migrate up -c "+h.config) {
			t.Errorf("%v: status %d, %s%s", args, s.status, s.out, s.messages)
		}
	}
	if s := must(t, "migrate", "up", "-c", h.config); !strings.Contains(s.out, "schema 1 → ") {
		t.Errorf("up: %s", s.out)
	}
	must(t, "keys", "create", "-c", h.config, "--tenant", "new")
	if c := h.contents(t); len(c.Tenants) != 2 || len(c.Keys) != 2 || c.Tenants[0].Name != "acme" ||
		c.Tenants[0].Weight != 1 {
		t.Errorf("it holds %+v", c.Tenants)
	}
}

// No command changes a database of a newer release; the error names the way out.
func TestNewerDatabaseIsNotChanged(t *testing.T) {
	h := newHouse(t, "")
	must(t, "keys", "create", "-c", h.config, "--tenant", "acme")
	before := h.contents(t)
	h.age(t)
	for _, args := range [][]string{{"migrate", "up"}, {"keys", "create", "--tenant", "new"}, {"keys", "list"},
		{"keys", "rotate", before.Keys[0].ID},
		{"keys", "revoke", before.Keys[0].ID, "--yes"}, {"keys", "create", "--admin", "--name", "jane"}} {
		s := tierway(t, append(args, "-c", h.config)...)
		if s.status != 2 || s.out != "" || !strings.Contains(s.messages, "newer than this program") ||
			!strings.Contains(s.messages, " the release that ") {
			t.Errorf("%v: status %d, %s%s", args, s.status, s.out, s.messages)
		}
	}
	if s := tierway(t, "migrate", "status", "-c", h.config); s.status == 0 ||
		!strings.Contains(s.messages, "newer than this program") {
		t.Errorf("status: %d, %s%s", s.status, s.out, s.messages)
	}
}

// TestNextReleasesSchemaIsServedAndReported: a gateway serves with a schema that is one
// version newer, and `migrate status` does not require another release.
func TestNextReleasesSchemaIsServedAndReported(t *testing.T) {
	h := newHouse(t, "")
	if s := tierway(t, "migrate", "up", "-c", h.config); s.status != 0 {
		t.Fatal(s.messages)
	}
	h.execute(t,
		"INSERT INTO goose_db_version (version_id, is_applied) SELECT MAX(version_id) + 1, 1 FROM goose_db_version")
	s := tierway(t, "migrate", "status", "-c", h.config)
	if s.status != 1 || !strings.Contains(s.messages, "can serve with it") ||
		strings.Contains(s.messages, "use the release") {
		t.Errorf("status %d: %s%s", s.status, s.out, s.messages)
	}
}

// age records a migration of the next release in the house's database.
func (h house) age(t *testing.T) {
	t.Helper()
	h.execute(t, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1)")
}

// execute runs a statement on the house's database without the program.
func (h house) execute(t *testing.T, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", h.database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
