package control

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tierway/store"
	"tierway/tenants"
)

// TestTooNewSchemaErrorNamesTheOperationOnce.
func TestTooNewSchemaErrorNamesTheOperationOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.db")
	c := newTestControl(t, "store: { sql: \"sqlite://"+file+"\" }\n"+small)
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(),
		"INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1)"); err != nil {
		t.Fatal(err)
	}
	c.Database.migrated.Store(false)
	if err := c.Database.migrate(t.Context()); !errors.Is(err, store.ErrNewer) ||
		strings.Count(err.Error(), "migrating the database") != 1 {
		t.Error(err)
	}
}

// TestRevokedKeyIsInvalidAlthoughTheLedgerFails: the directory is applied before the budgets are read.
func TestRevokedKeyIsInvalidAlthoughTheLedgerFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.db")
	c := newTestControl(t, "store: { sql: \"sqlite://"+file+"\" }\n"+small)
	secret, key, err := tenants.Mint(rand.Reader, "acme")
	if err == nil {
		_, err = c.Stores.SQL.CreateTenant(t.Context(), store.Actor{}, tenants.Tenant{Name: "acme"})
	}
	if err == nil {
		key, err = c.Stores.SQL.CreateKey(t.Context(), store.Actor{}, key)
	}
	if err == nil {
		err = c.Refresh(t.Context())
	}
	if err == nil {
		_, err = c.Snapshot().Identity.Directory.Authenticate(secret, time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "DROP TABLE usage"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stores.SQL.RevokeKey(t.Context(), store.Actor{}, key.ID, "leaked", time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := c.Database.seedBudgets(t.Context()); err == nil {
		t.Error("the ledger was read")
	}
	if err := c.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := c.Snapshot().Identity.Directory.Authenticate(secret, time.Now()); err == nil {
		t.Error("the revoked key is valid")
	}
}

// TestFirstReadingEndsWithAnEmptyPage: the number of keys is a multiple of a page.
func TestFirstReadingEndsWithAnEmptyPage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.db")
	yaml := "store: { sql: \"sqlite://" + file + "\" }\n" + small
	newTestControl(t, yaml) // makes the schema
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const columns, many = "priority, default_priority, created_at", 20_000
	for _, statement := range []string{
		"INSERT INTO tenants (name, updated_at, " + columns + ") VALUES ('acme', 1, 'batch', 'batch', 1)",
		`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
			INSERT INTO keys (id, tenant, hint, digest, ` + columns + `)
			SELECT 'k' || i, 'acme', '', printf('%064x', i), 'batch', 'batch', 1 FROM n`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	c := newTestControl(t, yaml)
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ts, ks := c.Snapshot().Identity.Directory.Stored(); ts != 1 || ks != many || c.Snapshot().Identity.ReadAt.IsZero() {
		t.Errorf("%d tenants and %d keys are in force", ts, ks)
	}
}
