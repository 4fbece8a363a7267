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

// sqlError is the error of SQL's methods. Its text holds no secret.
type sqlError struct {
	text  string
	cause error
}

// Error returns the operation and the cause.
func (e *sqlError) Error() string { return e.text }

// Unwrap returns the cause for errors.Is and errors.As. The caller must not print it.
func (e *sqlError) Unwrap() error { return e.cause }

// fail wraps err with the operation and removes secrets.
func (s *SQL) fail(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	// Drivers report the end of a context with errors of their own.
	switch ended := context.Cause(ctx); {
	case ended == nil || ours(err):
	case errors.Is(ended, errStalled): // the driver's error would name the cancellation, which is no outage
		err = ended
	case !errors.Is(err, ended):
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return &sqlError{text: s.hide(doing + ": " + err.Error()), cause: err}
}

// ours reports whether the error is one of this package's, which means that the database works.
func ours(err error) bool {
	for _, refusal := range []error{ErrNotFound, ErrExists, ErrConflict, ErrNewer, ErrLastAdmin} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// sqliteCode returns an error's primary result code (sqlite.org/rescode.html), or 0 if it is not an
// error of SQLite.
func sqliteCode(err error) int {
	lite, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return 0
	}
	return lite.Code() & 0xff
}

// Unwritable reports whether a SQLite file rejects writes for now: its disk is full, fails or
// became read-only. The same errors of PostgreSQL are Unreachable.
func Unwritable(err error) bool {
	switch sqliteCode(err) {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		return true
	}
	return false
}

// Unreachable reports whether the database is down, hangs or is overloaded, so that the same call
// may succeed later.
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
	for _, away := range []error{context.DeadlineExceeded, os.ErrDeadlineExceeded, driver.ErrBadConn, io.EOF,
		io.ErrUnexpectedEOF, net.ErrClosed, errMoved, errUnmigrated} {
		if errors.Is(err, away) {
			return true
		}
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	network, ok := errors.AsType[net.Error](err)
	if _, bare := network.(syscall.Errno); bare {
		return false // errors of a file: every errno also counts as a network error
	}
	return ok || pgconn.Timeout(err) || pgconn.SafeToRetry(err)
}

// postgresAway reports whether an SQLSTATE (PostgreSQL, appendix A) is temporary.
func postgresAway(code string) bool {
	switch code {
	case "57P01", "57P02", "57P03", "57P05", // shutdown, crash, startup, idle session ended
		"57014",          // the statement was cancelled because it took too long
		"25006",          // read only: a standby, until the name points to the primary
		"40001", "40P01", // a concurrent transaction succeeded first
		"55P03": // a lock was not available
		return true
	}
	class := code[:min(2, len(code))]
	return class == "08" || class == "53" // connection errors; connections, memory or disk exhausted
}

// poisoned reports whether the contents of rows caused the error, so that a retry never helps.
func poisoned(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.HasPrefix(pg.Code, "22") || strings.HasPrefix(pg.Code, "23") // data, constraints
	}
	code := sqliteCode(err)
	return code == sqlite3.SQLITE_TOOBIG || code == sqlite3.SQLITE_CONSTRAINT || code == sqlite3.SQLITE_MISMATCH
}
