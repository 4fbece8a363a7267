package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"tierway/migrations"
)

// Migrated holds the versions of the schema before and after Migrate.
type Migrated struct {
	From, To int64
}

// errUnmigrated means that Migrate has not succeeded yet.
var errUnmigrated = errors.New("the schema of the database is not migrated yet")

// hasSchema reports whether Migrate has made or found a schema that this program can use.
func (s *SQL) hasSchema() bool { return s.migrated.Load() }

// advisoryLock is the number of the PostgreSQL lock that migrations hold: "tierway" in ASCII. Other
// programs in the same database are unlikely to use it.
const advisoryLock = 0x74696572776179

// Migrate brings the schema to this program's version. If several programs migrate at the same
// time, one does and the others wait. ErrNewer means that a newer release has made the schema;
// nothing is changed then. Migrations only add, so a program one release older works with the newer
// schema.
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
			s.migrated.Store(from == latest+1) // migrations only add
			return m, s.fail(ctx, "migrating the database", newer(from, latest))
		}
		applied, err := s.up(ctx)
		if err == nil {
			if m.To = latest; applied == 0 { // another program has migrated since
				m.From = latest
			}
			s.migrated.Store(true)
			s.log.Info("the database's schema is up to date", "from", m.From, "to", m.To)
			return m, nil
		}
		// Another program's transaction was first, or SQLite was busy with it.
		now, _, again := s.Schema(ctx)
		if raced := again == nil && now > from; !raced && !Unreachable(err) || !wait(ctx, 50*time.Millisecond) {
			return m, s.fail(ctx, "migrating the database", err)
		}
	}
}

// newer returns ErrNewer with both versions and the way out.
func newer(applied, latest int64) error {
	return fmt.Errorf("%w: the schema has version %d, this program knows up to %d; run the release that made the schema "+
		"or a later one, or use another database", ErrNewer, applied, latest)
}

// wait waits for d and reports whether ctx has not ended.
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

// Schema returns the version of the database's schema (0 for an empty database) and the version of
// this program. It changes nothing.
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

// goose returns the migrator. In PostgreSQL, concurrent migrators wait for a lock, which they try
// once a second. In SQLite, the transaction of each migration is the lock. The second migrator
// fails because a version is inserted once, and checks the schema again.
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

// up runs the missing migrations, each in its own transaction, and installs the triggers. It returns how many it ran.
func (s *SQL) up(ctx context.Context) (applied int, err error) {
	p, err := s.goose()
	if err != nil {
		return 0, err
	}
	results, err := p.Up(ctx)
	if err != nil {
		return len(results), err
	}
	return len(results), s.transact(ctx, func(tx *sql.Tx) error { return s.installTriggers(ctx, tx) })
}
