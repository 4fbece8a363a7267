package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"tierway/migrations"
)

// Migrated says from which version of the schema Migrate came, and to which.
type Migrated struct {
	From, To int64
}

// advisoryLock is the number of the PostgreSQL lock that migrations hold: "tierway"
// in ASCII. Others who lock numbers in the same database are unlikely to use it.
const advisoryLock = 0x74696572776179

// Migrate brings the schema to this program's version. Of several that migrate at
// the same time one does, and the others wait for it. With ErrNewer the schema is
// of a newer release, and nothing was changed; as migrations only add, a program
// one release older works with it.
func (s *SQL) Migrate(ctx context.Context) (m Migrated, err error) {
	ctx, done := bounded(ctx, longTimeout)
	defer done()
	for {
		from, latest, err := s.Schema(ctx)
		if err != nil {
			return m, err
		}
		m = Migrated{From: from, To: from}
		if from > latest {
			return m, s.fail(ctx, "migrating the database", newer(from, latest))
		}
		applied, err := s.up(ctx)
		if err == nil {
			if m.To = latest; applied == 0 { // somebody else did it since
				m.From = latest
			}
			s.log.Info("the database's schema is up to date", "from", m.From, "to", m.To)
			return m, nil
		}
		// Somebody else's transaction was first, or SQLite was busy with it.
		now, _, again := s.Schema(ctx)
		if raced := again == nil && now > from; !raced && !Unreachable(err) || !wait(ctx, 50*time.Millisecond) {
			return m, s.fail(ctx, "migrating the database", err)
		}
	}
}

// newer tells both versions, and the way out.
func newer(applied, latest int64) error {
	return fmt.Errorf("%w: the schema is version %d and this program knows up to %d: run the release that made the schema, or a later one, or give this one a database of its own", ErrNewer, applied, latest)
}

// wait waits, and reports whether ctx still lasts.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Schema returns the version of the database's schema, 0 for an empty database,
// and the version that this program brings. It changes nothing.
func (s *SQL) Schema(ctx context.Context) (applied, latest int64, err error) {
	ctx, done := bounded(ctx, usualTimeout)
	defer done()
	p, err := s.goose()
	if err != nil {
		return 0, 0, s.fail(ctx, "reading the migrations of this program", err)
	}
	for _, source := range p.ListSources() {
		latest = max(latest, source.Version)
	}
	exists := "SELECT COUNT(*) FROM sqlite_master WHERE name = 'goose_db_version'"
	if s.kind == kindPostgres {
		exists = "SELECT COUNT(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'goose_db_version'"
	}
	var tables int64
	if err = s.read.QueryRowContext(ctx, exists).Scan(&tables); err == nil && tables > 0 {
		err = s.read.QueryRowContext(ctx, "SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version").Scan(&applied)
	}
	return applied, latest, s.fail(ctx, "reading the schema's version", err)
}

// goose returns what migrates. In PostgreSQL those who migrate wait for a lock, which
// they ask for once a second. In SQLite the transaction of each migration is the lock:
// whoever comes second fails, as the version stands there once, and looks again.
func (s *SQL) goose() (*goose.Provider, error) {
	if s.kind == kindSQLite {
		return goose.NewProvider(goose.DialectSQLite3, s.write, migrations.Files, goose.WithDisableGlobalRegistry(true))
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(advisoryLock),
		lock.WithLockTimeout(1, uint64(longTimeout/time.Second)))
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, s.write, migrations.Files, goose.WithDisableGlobalRegistry(true),
		goose.WithSessionLocker(locker))
}

// up runs the migrations that are missing, each in a transaction of its own, and
// sees to the guard of the audit log. It returns how many it ran.
func (s *SQL) up(ctx context.Context) (applied int, err error) {
	p, err := s.goose()
	if err != nil {
		return 0, err
	}
	results, err := p.Up(ctx)
	if err != nil {
		return len(results), err
	}
	return len(results), s.transact(ctx, func(tx *sql.Tx) error { return s.guardAudit(ctx, tx) })
}

// guardAudit makes the database itself refuse to change or drop entries of the
// audit log. The statements stand here and not in migrations/, as no trigger is
// written the same way in both databases.
func (s *SQL) guardAudit(ctx context.Context, tx *sql.Tx) error {
	statements := []string{
		`CREATE TRIGGER IF NOT EXISTS audit_keeps_entries BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END`,
		`CREATE TRIGGER IF NOT EXISTS audit_keeps_words BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END`,
	}
	if s.kind == kindPostgres {
		// One that migrates at the same time does the same.
		if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", int64(advisoryLock)); err != nil {
			return err
		}
		var there int64
		err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM pg_trigger WHERE tgrelid = 'audit'::regclass AND tgname = 'audit_keeps_entries'").Scan(&there)
		if err != nil || there > 0 {
			return err
		}
		statements = []string{
			`CREATE OR REPLACE FUNCTION audit_keeps_entries() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$`,
			`CREATE TRIGGER audit_keeps_entries BEFORE UPDATE OR DELETE OR TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION audit_keeps_entries()`,
		}
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
