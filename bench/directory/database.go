package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"
)

const (
	sqlite   = "sqlite"
	postgres = "postgres"
)

// database is a database of one run with its seeds.
type database struct {
	kind   string
	url    string // for store.sql
	secret string // of a key in it
	remove func() error
}

// newDatabase makes a database in dir, or on the PostgreSQL server that backends.Main has started. The gateway's
// binary makes the tables.
func newDatabase(ctx context.Context, binary, kind, dir string, s seeds) (_ *database, err error) {
	d := &database{kind: kind, remove: func() error { return nil }}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.remove())
		}
	}()
	driver, source := "sqlite", ""
	switch kind {
	case sqlite:
		file := filepath.Join(dir, "directory.db")
		d.url, source = "sqlite://"+file, "file:"+file+"?_pragma=synchronous(0)&_pragma=cache_size(-262144)"
	case postgres:
		driver = "pgx"
		if d.url, d.remove, err = newPostgres(ctx); err != nil {
			return nil, err
		}
		source = d.url
	}
	config := filepath.Join(dir, "migrate.yaml")
	if err := os.WriteFile(config, []byte(gatewayConfig(d.url, "", 1, 1, "")), 0o600); err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	if out, err := exec.CommandContext(ctx, binary, "migrate", "up", "-c", config).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("making the tables: %w\n%s", err, out)
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if d.secret, err = s.fill(ctx, db, time.Now()); err != nil {
		return nil, err
	}
	finish := map[string]string{sqlite: "PRAGMA wal_checkpoint(TRUNCATE)", postgres: "VACUUM ANALYZE"}[kind]
	if _, err := db.ExecContext(ctx, finish); err != nil {
		return nil, fmt.Errorf("%s: %w", finish, err)
	}
	return d, nil
}

// newPostgres makes a database on the server that TIERWAY_POSTGRES names.
func newPostgres(ctx context.Context) (address string, remove func() error, err error) {
	u, err := url.Parse(os.Getenv("TIERWAY_POSTGRES"))
	if err != nil {
		return "", nil, errors.New("TIERWAY_POSTGRES is not a URL") // its value has a password and is not printed
	}
	server, err := sql.Open("pgx", u.String())
	if err != nil {
		return "", nil, fmt.Errorf("opening the PostgreSQL server: %w", err)
	}
	name := fmt.Sprintf("bench_directory_%d", os.Getpid())
	if _, err := server.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return "", nil, errors.Join(fmt.Errorf("making a PostgreSQL database: %w", err), server.Close())
	}
	u.Path = "/" + name
	return u.String(), func() error {
		_, err := server.Exec("DROP DATABASE " + name + " WITH (FORCE)") // also after an interrupt
		return errors.Join(err, server.Close())
	}, nil
}
