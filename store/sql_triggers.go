package store

import (
	"context"
	"database/sql"
)

// The triggers are not in migrations/, because the two databases have different syntax. They also act on changes by the
// release before, which shares the database during an upgrade.
//
//   - Entries of the audit log are neither changed nor deleted.
//   - A tenant or key that is added or changed gets the number of the revision. Each change increments that number
//     first (SQL.change). A new time of last use is no change.
//   - A deleted tenant or key leaves a row in deletions.

// sqliteTriggers returns the statements for SQLite, where a trigger cannot change the row before it is written.
func sqliteTriggers() []string {
	const number, now = "(SELECT number FROM revision)", "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"
	return []string{
		`CREATE TRIGGER IF NOT EXISTS audit_keeps_entries BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END`,
		`CREATE TRIGGER IF NOT EXISTS audit_keeps_words BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END`,

		`CREATE TRIGGER IF NOT EXISTS tenants_added AFTER INSERT ON tenants BEGIN UPDATE tenants SET revision = ` + number +
			` WHERE name = NEW.name; END`,
		`CREATE TRIGGER IF NOT EXISTS tenants_changed AFTER UPDATE ON tenants WHEN NEW.revision = OLD.revision
			BEGIN UPDATE tenants SET revision = ` + number + ` WHERE name = NEW.name; END`,
		`CREATE TRIGGER IF NOT EXISTS tenants_deleted AFTER DELETE ON tenants
			BEGIN INSERT OR REPLACE INTO deletions VALUES (OLD.name, '', ` + number + `, ` + now + `); END`,

		`CREATE TRIGGER IF NOT EXISTS keys_added AFTER INSERT ON keys BEGIN UPDATE keys SET revision = ` + number +
			` WHERE id = NEW.id; END`,
		`CREATE TRIGGER IF NOT EXISTS keys_changed AFTER UPDATE ON keys
			WHEN NEW.revision = OLD.revision AND NEW.last_used_at = OLD.last_used_at
			BEGIN UPDATE keys SET revision = ` + number + ` WHERE id = NEW.id; END`,
		`CREATE TRIGGER IF NOT EXISTS keys_deleted AFTER DELETE ON keys
			BEGIN INSERT OR REPLACE INTO deletions VALUES (OLD.tenant, OLD.id, ` + number + `, ` + now + `); END`,
	}
}

// postgresTriggerCount is the number of triggers that postgresTriggers creates.
const postgresTriggerCount = 6

// postgresTriggers returns the statements for PostgreSQL. A list of columns would miss those that a later release adds.
func postgresTriggers() []string {
	const number, now = "(SELECT number FROM revision)", "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
	deletion := func(values string) string {
		return `BEGIN INSERT INTO deletions VALUES (` + values + `, ` + number + `, ` + now + `)
			ON CONFLICT (tenant, key_id) DO UPDATE SET revision = excluded.revision, at = excluded.at; RETURN NULL; END`
	}
	function := func(name, body string) string {
		// With the rights of the owner: a role that may change keys need not see the tables that follow.
		return `CREATE OR REPLACE FUNCTION ` + name + `() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
			SET search_path FROM CURRENT AS $$ ` + body + ` $$`
	}
	return []string{
		function("audit_keeps_entries", `BEGIN RAISE EXCEPTION 'the audit log is append-only'; END`),
		`CREATE OR REPLACE TRIGGER audit_keeps_entries BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
			FOR EACH STATEMENT EXECUTE FUNCTION audit_keeps_entries()`,

		function("directory_changed", `BEGIN NEW.revision := `+number+`; RETURN NEW; END`),
		`CREATE OR REPLACE TRIGGER tenants_changed BEFORE INSERT OR UPDATE ON tenants
			FOR EACH ROW EXECUTE FUNCTION directory_changed()`,
		`CREATE OR REPLACE TRIGGER keys_added BEFORE INSERT ON keys FOR EACH ROW EXECUTE FUNCTION directory_changed()`,
		`CREATE OR REPLACE TRIGGER keys_changed BEFORE UPDATE ON keys FOR EACH ROW
			WHEN (NEW.last_used_at = OLD.last_used_at) EXECUTE FUNCTION directory_changed()`,

		function("tenant_deleted", deletion("OLD.name, ''")),
		`CREATE OR REPLACE TRIGGER tenants_deleted AFTER DELETE ON tenants FOR EACH ROW EXECUTE FUNCTION tenant_deleted()`,
		function("key_deleted", deletion("OLD.tenant, OLD.id")),
		`CREATE OR REPLACE TRIGGER keys_deleted AFTER DELETE ON keys FOR EACH ROW EXECUTE FUNCTION key_deleted()`,
	}
}

// installTriggers installs the triggers that are missing.
func (s *SQL) installTriggers(ctx context.Context, tx *sql.Tx) error {
	statements := sqliteTriggers()
	if s.kind == kindPostgres {
		// A concurrent migrator does the same.
		if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", int64(advisoryLock)); err != nil {
			return err
		}
		// Installing a trigger waits for the transactions of other gateways.
		var there int64
		err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM pg_trigger WHERE NOT tgisinternal
			AND tgrelid IN ('audit'::regclass, 'tenants'::regclass, 'keys'::regclass)`).Scan(&there)
		if err != nil || there >= postgresTriggerCount {
			return err
		}
		statements = postgresTriggers()
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
