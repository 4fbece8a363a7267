package control

import (
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"tierway/store"
)

// TestASchemaThatIsTooNewIsNamedOnce: with what was being done.
func TestASchemaThatIsTooNewIsNamedOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.db")
	c := newTestControl(t, "store: { sql: \"sqlite://"+file+"\" }\n"+small)
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1)"); err != nil {
		t.Fatal(err)
	}
	c.Database.migrated.Store(false)
	if err := c.Database.migrate(t.Context()); !errors.Is(err, store.ErrNewer) || strings.Count(err.Error(), "migrating the database") != 1 {
		t.Error(err)
	}
}
