package main

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"testing"

	"tierway/store"
)

func TestMigrateSaysWhereItBeganAndEnded(t *testing.T) {
	h := newHouse(t, "")
	s := tierway(t, "migrate", "status", "-c", h.config)
	if s.status != 1 || !strings.Contains(s.out, "schema 0, latest ") || !strings.Contains(s.messages, "tierway migrate up -c "+h.config) {
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

// A database of a newer release is left alone by every verb, with the way out.
func TestANewerDatabaseIsLeftAlone(t *testing.T) {
	h := newHouse(t, "")
	must(t, "keys", "create", "-c", h.config, "--tenant", "acme")
	before := h.contents(t)
	h.age(t)
	for _, args := range [][]string{{"migrate", "up"}, {"keys", "create", "--tenant", "new"}, {"keys", "list"}, {"keys", "rotate", before.Keys[0].ID},
		{"keys", "revoke", before.Keys[0].ID, "--yes"}, {"keys", "create", "--admin", "--name", "jane"}} {
		s := tierway(t, append(args, "-c", h.config)...)
		if s.status != 2 || s.out != "" || !strings.Contains(s.messages, "newer than this program") || !strings.Contains(s.messages, "run the release that made ") {
			t.Errorf("%v: status %d, %s%s", args, s.status, s.out, s.messages)
		}
	}
	if s := tierway(t, "migrate", "status", "-c", h.config); s.status == 0 || !strings.Contains(s.messages, "newer than this program") {
		t.Errorf("status: %d, %s%s", s.status, s.out, s.messages)
	}
}

// age notes a migration of the next release in the house's database.
func (h house) age(t *testing.T) {
	t.Helper()
	query(t, h, func(ctx context.Context, _ *store.SQL) (int, error) {
		db, err := sql.Open("sqlite", h.database)
		if err != nil {
			return 0, err
		}
		defer db.Close()
		_, err = db.ExecContext(ctx, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1)")
		return 0, err
	})
}
