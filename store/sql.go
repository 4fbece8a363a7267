package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"
)

const (
	// For calls without a deadline: a hanging database is reported within the time that a person
	// waits for a page.
	usualTimeout = 5 * time.Second
	// A search of the audit log or of usage that takes longer covers too much.
	searchTimeout = 2 * time.Second
	// Building an index over a large ledger, or reading the whole audit log, takes longer than any
	// other call.
	longTimeout = 5 * time.Minute
)

// SQLConfig configures a SQL.
type SQLConfig struct {
	URL string       // sqlite://FILE, sqlite://:memory: or postgres://USER:PASSWORD@HOST:PORT/DATABASE
	Log *slog.Logger // nil: no log
	// PasswordFile has the password for PostgreSQL and is read for each connection; empty: the URL has it.
	PasswordFile string
	// Dial opens the connections to PostgreSQL; nil: net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// OnRow is called before each row of Contents is read; nil: nothing. Tests slow a database with it.
	OnRow func()
}

// SQL is a SQLite or PostgreSQL database for the data that must not be lost. It is safe for
// concurrent use. Every method honours its context. Without a deadline it gives up after five
// seconds, except Migrate, Prune, Spent and VerifyAudit. Contents and ChangesSince give up after
// five seconds without a row. No error holds the URL's password or the digest
// of a key.
type SQL struct {
	kind  string
	write *sql.DB
	read  *sql.DB // same as write, except for a SQLite file
	chunk int     // rows per INSERT
	hide  func(string) string
	log   *slog.Logger
	file  *openFile // nil: not a SQLite file
	id    string    // see databaseID
	onRow func()

	audited  atomic.Int64 // see NewestAudit
	migrated atomic.Bool  // see hasSchema
}

// OpenSQL checks the URL and returns its database. It does not connect to a server until the first
// use, so an unreachable server is no error. A file that cannot be written is an error. The caller
// must call Close.
func OpenSQL(c SQLConfig) (*SQL, error) {
	s := &SQL{log: cmp.Or(c.Log, slog.New(slog.DiscardHandler)), onRow: c.OnRow}
	if s.onRow == nil {
		s.onRow = func() {}
	}
	if err := s.open(c); err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	return s, nil
}

// Close closes all connections after their calls have ended.
func (s *SQL) Close() error {
	var err error
	if s.read != s.write {
		err = s.read.Close()
	}
	return errors.Join(err, s.write.Close())
}

// Kind returns sqlite or postgres.
func (s *SQL) Kind() string { return s.kind }

// Ping checks that the database answers.
func (s *SQL) Ping(ctx context.Context) error {
	var one int64
	return s.readOne(ctx, "pinging the database", "SELECT 1", &one)
}

// readOne reads one row.
func (s *SQL) readOne(ctx context.Context, doing, query string, to ...any) error {
	ctx, done := bounded(ctx, usualTimeout)
	defer done()
	err := s.file.inPlace()
	if err == nil {
		err = s.read.QueryRowContext(ctx, query).Scan(to...)
	}
	return s.fail(ctx, doing, err)
}

// snapshot runs f on a consistent snapshot of the database. f must only read.
func (s *SQL) snapshot(ctx context.Context, doing string, limit time.Duration,
	f func(context.Context, *sql.Tx) error) error {
	ctx, done := bounded(ctx, limit)
	defer done()
	tx, err := s.begin(ctx, s.read, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err == nil {
		defer tx.Rollback() // it only read
		err = f(ctx, tx)
	}
	return s.fail(ctx, doing, err)
}

// transact runs f in a transaction and rolls it back if f fails.
func (s *SQL) transact(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := s.begin(ctx, s.write, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		// The error of f is the cause. A rollback fails if the connection broke, which undoes the
		// transaction too.
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

// begin begins a transaction. If another process writes to the SQLite file, begin waits until ctx
// ends.
func (s *SQL) begin(ctx context.Context, db *sql.DB, o *sql.TxOptions) (*sql.Tx, error) {
	if err := s.file.inPlace(); err != nil {
		return nil, err
	}
	for {
		tx, err := db.BeginTx(ctx, o)
		if err == nil || s.kind != kindSQLite || !Unreachable(err) || !wait(ctx, time.Millisecond) {
			return tx, err
		}
	}
}

// edit is one change for the audit log. The zero edit means that nothing changed.
type edit struct {
	action, target string
	before, after  any // public form; nil if there is none
}

// change runs f in a transaction together with the audit entry and the next revision. Changes are
// serialised, so f may read and then write what it has read.
func (s *SQL) change(ctx context.Context, a Actor, doing string,
	f func(ctx context.Context, tx *sql.Tx, now time.Time) (edit, error)) error {
	ctx, done := bounded(ctx, usualTimeout)
	defer done()
	now := stamp(time.Now())
	var entry AuditEntry
	err := s.transact(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE revision SET number = number + 1"); err != nil {
			return err
		}
		e, err := f(ctx, tx, now)
		if err != nil {
			return err
		}
		if e.action == "" {
			return errUnchanged
		}
		if entry, err = e.entry(a, now); err != nil {
			return err
		}
		return appendAudit(ctx, tx, &entry)
	})
	switch {
	case err == nil:
		s.recordAudit(entry.ID)
	case errors.Is(err, errUnchanged):
		return nil
	}
	return s.fail(ctx, doing, err)
}

// errUnchanged rolls back a transaction that would change nothing.
var errUnchanged = errors.New("nothing is changed")

// bounded returns a context with a timeout of limit, unless ctx has a deadline.
func bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}

// stamp rounds a time to its stored precision.
func stamp(t time.Time) time.Time { return instant(micros(t)) }

// micros returns the stored form of a time: microseconds since 1970, or 0 for the zero time.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// instant returns the time of a stored form.
func instant(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// number returns the stored form of a boolean.
func number(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
