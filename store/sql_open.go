package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	// A gateway sends one ledger batch at a time, reads its directory now and then, and serves a
	// few admins: it never uses eight at once. Twelve gateways stay below PostgreSQL's default of
	// 100.
	postgresConns = 8
	// Connections are renewed after this time, so that gateways move to the new primary after a
	// failover behind one name.
	postgresLife = 30 * time.Minute
	postgresIdle = 5 * time.Minute
	// Timeout of a connection to a server: shorter than usualTimeout, so that the error names the
	// connection instead of "deadline exceeded".
	postgresConnect = 3 * time.Second
	// Ledger rows per INSERT: five round trips for a batch, and far below PostgreSQL's 65,535
	// parameters.
	postgresChunk = 100
	// SQLite's driver searches a list for each parameter, so long statements are slow (quadratic). Shorter ones
	// have the cost of a statement more often.
	sqliteChunk = 4
	// Readers of a SQLite file: the directory, the admin API and the UI.
	sqliteReaders = 4
)

// open opens the connection pools of the URL.
func (s *SQL) open(c SQLConfig) error {
	scheme, rest, found := strings.Cut(c.URL, "://")
	switch {
	case found && scheme == "sqlite":
		s.hide = func(text string) string { return text }
		return s.openSQLite(rest)
	case found && (scheme == "postgres" || scheme == "postgresql"):
		return s.openPostgres(c)
	}
	// The error does not repeat the URL, which may hold a password.
	return errors.New("unknown URL scheme; use sqlite://FILE or postgres://USER:PASSWORD@HOST:PORT/DATABASE")
}

// openSQLite opens a file, or :memory:. One connection writes, because SQLite has one writer at a
// time. Waiting in the pool is fair and honours the context; SQLite's own waiting does neither.
// Commits reach the disk before they return (synchronous=FULL is SQLite's default), so keys and the
// audit log survive a loss of power. A file that cannot be opened is an immediate error: unlike a
// server, it does not come back by itself.
func (s *SQL) openSQLite(file string) (err error) {
	s.kind, s.chunk = kindSQLite, sqliteChunk
	// SQLite's own waiting ignores the context, so it is kept short and begin waits again.
	const settings = "?_pragma=busy_timeout(200)&_pragma=foreign_keys(1)"
	if file == ":memory:" {
		s.id = databaseID(kindSQLite, file)
		// The database lives in its connection: there is exactly one, and it is never closed.
		if s.write, err = sqlitePool("file::memory:"+settings+"&_txlock=immediate", 1); err == nil {
			s.read = s.write
		}
		return err
	}
	if file == "" || strings.ContainsAny(file, "?#\x00") {
		return fmt.Errorf("bad file name %q; write sqlite:// and a path without ? and #, such as "+
			"sqlite:///var/lib/tierway/tierway.db", file)
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
	if err == nil {
		s.id = databaseID(kindSQLite, s.file.path)
	}
	if err != nil {
		if s.read == nil {
			s.read = s.write
		}
		return errors.Join(err, s.Close())
	}
	return nil
}

// openFile is the absolute path of a SQLite file and its identity when it was opened.
type openFile struct {
	path string
	info fs.FileInfo
}

// errMoved means that the path leads to another file than the one that was opened.
var errMoved = errors.New("the database file was removed or replaced while it was open; restore it, or restart the " +
	"gateway to use the new one")

// identify returns the identity of an opened file.
func identify(file string) (*openFile, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	return &openFile{path, info}, err
}

// inPlace returns an error if the path leads to another file or to none. SQLite would continue to
// write to the removed file, and the data would be lost with the process. A stat takes about a
// microsecond.
func (f *openFile) inPlace() error {
	if f == nil {
		return nil
	}
	if info, err := os.Stat(f.path); err == nil && os.SameFile(info, f.info) {
		return nil
	}
	return fmt.Errorf("%s: %w", f.path, errMoved)
}

// private creates a missing file with access for its owner only: it holds digests of keys and the
// usage of tenants.
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

// openable returns an error with the way out if the file cannot be opened, is no database, or
// cannot be written together with its journal. made is the error of creating the file. Other faults
// appear at the first call.
func openable(db *sql.DB, file string, made error) error {
	ctx, done := bounded(context.Background(), usualTimeout)
	defer done()
	// A readable file may still be read-only.
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
		return fmt.Errorf("%s is not a SQLite database, or is damaged: %w (set store.sql to another file, or restore this "+
			"one from a backup)", file, err)
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
	return fmt.Errorf("cannot open %s or write beside it: %w (set store.sql to a file in a writable folder, mount a "+
		"volume there, or run without a database: store.sql: \"\")", file, err)
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
	scheme, rest, _ := strings.Cut(rawURL, "://")
	if user, password, target, found := splitCredentials(rest, postgresTarget); found {
		info := url.User(user)
		if password != "" {
			info = url.UserPassword(user, password)
		}
		rawURL = scheme + "://" + info.String() + "@" + target
	}
	config, err := pgx.ParseConfig(rawURL)
	if err != nil {
		// The parser's own text quotes parts of the URL.
		return nil, errors.New("the URL is malformed: write postgres://USER:PASSWORD@HOST:PORT/DATABASE, percent-encode " +
			"special characters of the password, and check that the files in its parameters exist")
	}
	return config, nil
}

// databaseID returns 12 characters that identify a database by its place. They stay the same over restarts, and contain
// no secret.
func databaseID(place ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(place, "\x00")))
	return hex.EncodeToString(sum[:6])
}

// postgresID returns the id of a database of a server. Credentials may change; hosts are in any order.
func postgresID(c *pgx.ConnConfig) string {
	hosts := []string{net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))}
	for _, f := range c.Fallbacks {
		hosts = append(hosts, net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port))))
	}
	slices.Sort(hosts)
	return databaseID(kindPostgres, strings.Join(slices.Compact(hosts), ","), cmp.Or(c.Database, c.User),
		c.RuntimeParams["search_path"], c.RuntimeParams["options"])
}

// openPostgres opens a pool for a postgres:// URL.
func (s *SQL) openPostgres(c SQLConfig) error {
	config, err := parsePostgres(c.URL)
	if err != nil {
		return err
	}
	s.kind, s.chunk, s.hide = kindPostgres, postgresChunk, hider(c.URL, config.Password)
	s.id = postgresID(config)
	// Statements are sent in one round trip and leave nothing prepared on the server, so PgBouncer
	// may be used. The exceptions are `tierway migrate up` and the first start: they hold a lock of
	// their session and need a direct connection.
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.ConnectTimeout = postgresConnect
	// the kernel detects a dead peer within minutes
	config.DialFunc = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	if c.Dial != nil {
		config.DialFunc = c.Dial
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "tierway"
	}
	// A ping before each use detects a connection that the server has closed, and the pool takes
	// another one.
	ping := func(context.Context, stdlib.ShouldPingParams) bool { return true }
	password := func(_ context.Context, connection *pgx.ConnConfig) (err error) {
		if c.PasswordFile != "" {
			connection.Password, err = readPassword(c.PasswordFile)
		}
		return err
	}
	db := stdlib.OpenDB(*config, stdlib.OptionShouldPing(ping), stdlib.OptionBeforeConnect(password))
	db.SetMaxOpenConns(postgresConns)
	db.SetMaxIdleConns(postgresConns)
	db.SetConnMaxLifetime(postgresLife)
	db.SetConnMaxIdleTime(postgresIdle)
	s.write, s.read = db, db
	return nil
}

// hider returns a function that replaces the secrets of a URL in a text, in all their encodings.
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
