package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// sqlError is what a method of SQL fails with. Its text holds no secret.
type sqlError struct {
	text  string
	cause error
}

// Error says what was being done, and why it failed.
func (e *sqlError) Error() string { return e.text }

// Unwrap returns the cause, to be asked what it is and not to be printed.
func (e *sqlError) Unwrap() error { return e.cause }

// fail returns err with what was being done, without secrets.
func (s *SQL) fail(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	// Drivers tell the end of a context in words of their own.
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) && !ours(err) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return &sqlError{text: s.hide(doing + ": " + err.Error()), cause: err}
}

// ours reports whether the database has answered and it is our rules that refuse.
func ours(err error) bool {
	for _, refusal := range []error{ErrNotFound, ErrExists, ErrConflict, ErrNewer, ErrLastAdmin} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// sqliteCode returns an error's result code (sqlite.org/rescode.html) without its
// extension; 0 for an error that is not SQLite's.
func sqliteCode(err error) int {
	lite, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return 0
	}
	return lite.Code() & 0xff
}

// Unwritable reports whether an error says that a SQLite file takes no writes for
// now: its disk is full, fails or became read-only. PostgreSQL's errors of that kind
// are Unreachable.
func Unwritable(err error) bool {
	switch sqliteCode(err) {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		return true
	}
	return false
}

// Unreachable reports whether an error says that the database is away, hangs or
// is too busy, so that the same call may work later, as against a refusal of what
// was asked.
func Unreachable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || ours(err) {
		return false
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return postgresAway(pg.Code)
	}
	if code := sqliteCode(err); code != 0 {
		return code == sqlite3.SQLITE_BUSY || code == sqlite3.SQLITE_LOCKED || code == sqlite3.SQLITE_INTERRUPT
	}
	for _, away := range []error{context.DeadlineExceeded, os.ErrDeadlineExceeded, driver.ErrBadConn, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, errMoved} {
		if errors.Is(err, away) {
			return true
		}
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	network, ok := errors.AsType[net.Error](err)
	if _, bare := network.(syscall.Errno); bare {
		return false // of a file: every errno passes for an error of the network
	}
	return ok || pgconn.Timeout(err) || pgconn.SafeToRetry(err)
}

// postgresAway reports whether an SQLSTATE (PostgreSQL, appendix A) passes by
// itself.
func postgresAway(code string) bool {
	switch code {
	case "57P01", "57P02", "57P03", "57P05", // shuts down, crashed, starts up, idle session ended
		"57014",          // the statement was cancelled: it took too long
		"25006",          // read only: a standby, until the name points to the primary
		"40001", "40P01", // another transaction was first
		"55P03": // a lock was not free
		return true
	}
	class := code[:min(2, len(code))]
	return class == "08" || class == "53" // connections; connections, memory or disk used up
}

// poisoned reports whether rows are refused for what they hold: writing them
// again never helps.
func poisoned(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.HasPrefix(pg.Code, "22") || strings.HasPrefix(pg.Code, "23") // data, constraints
	}
	code := sqliteCode(err)
	return code == sqlite3.SQLITE_TOOBIG || code == sqlite3.SQLITE_CONSTRAINT || code == sqlite3.SQLITE_MISMATCH
}
