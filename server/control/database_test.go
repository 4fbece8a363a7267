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
