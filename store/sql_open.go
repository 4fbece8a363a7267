package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	kindSQLite   = "sqlite"
	kindPostgres = "postgres"
)

const (
	// A gateway sends one ledger batch at a time, reads its directory now and
	// then, and serves a few admins: eight are never all in use, and twelve
	// gateways stay below PostgreSQL's usual hundred.
	postgresConns = 8
	// Connections are made anew after a while, so that gateways move to the new
	// primary after a failover behind one name.
	postgresLife = 30 * time.Minute
	postgresIdle = 5 * time.Minute
	// A server that does not take a connection in this time is away: shorter than
	// usualTimeout, so that the error says so instead of "deadline exceeded".
	postgresConnect = 3 * time.Second
	// One INSERT brings this many ledger rows: five round trips for a batch, and
	// far below the 65,535 parameters that PostgreSQL takes.
	postgresChunk = 100
	// SQLite's driver looks each parameter up in a list, which makes long
	// statements slow (it is quadratic); a round trip costs nothing there.
	sqliteChunk = 1
	// Readers of a SQLite file: the directory, the admin API and the UI.
	sqliteReaders = 4
)

// open opens the pools that the URL asks for.
func (s *SQL) open(rawURL string) error {
	scheme, rest, found := strings.Cut(rawURL, "://")
	switch {
	case found && scheme == "sqlite":
		s.hide = func(text string) string { return text }
		return s.openSQLite(rest)
	case found && (scheme == "postgres" || scheme == "postgresql"):
		return s.openPostgres(rawURL)
	}
	// The URL itself may hold a password and is not repeated.
	return errors.New("unknown kind of URL: use sqlite://FILE or postgres://USER:PASSWORD@HOST:PORT/DATABASE")
}

// openSQLite opens a file, or :memory:. One connection writes: SQLite has one
// writer at a time, and waiting in the pool is fair and honours the context,
// which SQLite's own waiting does not. Commits reach the disk before they return
// (synchronous=FULL is SQLite's default): keys and the audit log outlive a loss
// of power. A file that cannot be opened is told at once: it is not away for a
// while, as a server may be.
func (s *SQL) openSQLite(file string) (err error) {
	s.kind, s.chunk = kindSQLite, sqliteChunk
	// SQLite's own waiting does not hear of the end of a context: it is kept short,
	// and begin waits on.
	const settings = "?_pragma=busy_timeout(200)&_pragma=foreign_keys(1)"
	if file == ":memory:" {
		// The connection is the database: there is one, and it is never closed.
		if s.write, err = sqlitePool("file::memory:"+settings+"&_txlock=immediate", 1); err == nil {
			s.read = s.write
		}
		return err
	}
	if file == "" || strings.ContainsAny(file, "?#\x00") {
		return fmt.Errorf("bad file name %q: write sqlite:// and a path without ? and #, such as sqlite:///var/lib/tierway/tierway.db", file)
	}
	file = filepath.Clean(file)
	made := private(file)
	name := "file:" + (&url.URL{Path: file}).EscapedPath() + settings
	if s.write, err = sqlitePool(name+"&_pragma=journal_mode(WAL)&_txlock=immediate", 1); err != nil {
		return err
	}
	if s.read, err = sqlitePool(name+"&_pragma=query_only(1)", sqliteReaders); err == nil {
		err = openable(s.write, file, made)
	}
	if err == nil {
		s.file, err = identify(file)
	}
	if err != nil {
		if s.read == nil {
			s.read = s.write
		}
		return errors.Join(err, s.Close())
	}
	return nil
}

// openFile is a SQLite file by its whole path and its identity when it was opened.
type openFile struct {
	path string
	info fs.FileInfo
}

// errMoved says that a SQLite file is not the one that was opened.
var errMoved = errors.New("the database file was removed or replaced while it was open: put it back, or restart the gateway to use the one that is there")

// identify returns the identity of a file that was opened.
func identify(file string) (*openFile, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	return &openFile{path, info}, err
}

// inPlace returns an error while the path leads to another file or to none. SQLite
// would go on writing to the removed file, and all of it would be lost with the
// process. A stat takes about a microsecond.
func (f *openFile) inPlace() error {
	if f == nil {
		return nil
	}
	if info, err := os.Stat(f.path); err == nil && os.SameFile(info, f.info) {
		return nil
	}
	return fmt.Errorf("%s: %w", f.path, errMoved)
}

// private makes the file, if there is none, for its owner alone: it holds digests
// of keys and who used what.
func private(file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err == nil {
		_ = f.Close() // nothing was written
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// openable returns why a file, which made says could not be made, cannot be opened
// either, is no database, or cannot be written to with its journal beside it, with
// the way out.
// Anything else is told by what it happens to.
func openable(db *sql.DB, file string, made error) error {
	ctx, done := bounded(context.Background(), usualTimeout)
	defer done()
	// What can be read may still not be written to.
	tx, err := db.BeginTx(ctx, nil)
	if err == nil {
		return tx.Rollback()
	}
	if whole, absErr := filepath.Abs(file); absErr == nil {
		file = whole
	}
	switch sqliteCode(err) {
	case sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN:
	case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("%s is no SQLite database, or a damaged one: %w (name another file in store.sql, or restore this one from a backup)", file, err)
	default:
		return nil
	}
	var path *fs.PathError
	switch {
	case errors.As(made, &path):
		err = path.Err
	case made != nil:
		err = made
	}
	return fmt.Errorf("%s cannot be opened, or nothing can be written beside it: %w (name a file in a folder that this user may write to in store.sql, mount a volume there, or go without a database: store.sql: \"\")", file, err)
}

func sqlitePool(name string, conns int) (*sql.DB, error) {
	connector, err := sqlite.NewConnector(name)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

func parsePostgres(rawURL string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(rawURL)
	if err != nil {
		// The parser's own text quotes parts of the URL.
		return nil, errors.New("the URL is not understood: write postgres://USER:PASSWORD@HOST:PORT/DATABASE, with what is special in the password percent-encoded, and check that the files that its parameters name are there")
	}
	return config, nil
}

// openPostgres opens a pool for a postgres:// URL.
func (s *SQL) openPostgres(rawURL string) error {
	config, err := parsePostgres(rawURL)
	if err != nil {
		return err
	}
	s.kind, s.chunk, s.hide = kindPostgres, postgresChunk, hider(rawURL, config.Password)
	// Statements are sent whole, in one round trip, and leave nothing prepared on
	// the server, so that PgBouncer may stand between; `tierway migrate up` and the
	// first start, which hold a lock of their session, go to the server itself.
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.ConnectTimeout = postgresConnect
	config.DialFunc = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext // a dead peer is noticed within minutes, by the kernel
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "tierway"
	}
	// A connection that the server has ended since it was last used is found by a ping
	// before anything is asked of it, and another one is taken.
	ping := func(context.Context, stdlib.ShouldPingParams) bool { return true }
	db := stdlib.OpenDB(*config, stdlib.OptionShouldPing(ping))
	db.SetMaxOpenConns(postgresConns)
	db.SetMaxIdleConns(postgresConns)
	db.SetConnMaxLifetime(postgresLife)
	db.SetConnMaxIdleTime(postgresIdle)
	s.write, s.read = db, db
	return nil
}

// hider returns what replaces the secrets of a URL in a text, in all the ways in
// which they may be written.
func hider(rawURL, password string) func(string) string {
	var pairs []string
	add := func(secret string) {
		if secret != "" {
			pairs = append(pairs, secret, "***", url.QueryEscape(secret), "***", url.PathEscape(secret), "***")
		}
	}
	add(password)
	_, info, _ := strings.Cut(rawURL, "://")
	if end := strings.LastIndex(info, "@"); end >= 0 {
		_, written, _ := strings.Cut(info[:end], ":")
		add(written)
	}
	_, query, _ := strings.Cut(rawURL, "?")
	parameters, _ := url.ParseQuery(query)
	add(parameters.Get("password"))
	add(parameters.Get("sslpassword"))
	return strings.NewReplacer(pairs...).Replace
}
