package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tierway/config"
	"tierway/store"
	"tierway/tenants"
)

// database is the keys of a configuration's database. Changes are published over Redis, if
// configured.
type database struct {
	sql    *store.SQL // nil until open
	file   *config.File
	path   string // of the configuration, for messages
	actor  store.Actor
	notify func(format string, args ...any) // prints a message
}

// withDatabase calls use with the database of the configuration at path, which use opens, and
// closes it.
func withDatabase(c *cobra.Command, path string, use func(d *database) error) error {
	file, err := loadConfig(c, path)
	if err != nil {
		return err
	}
	switch file.Store.SQL {
	case "":
		return fmt.Errorf(
			"%s names no database: set store.sql, such as sqlite://tierway.db, or add digests of keys to auth.keys", path)
	case sqliteScheme + inMemory:
		return fmt.Errorf("the database of %s is in the gateway's memory: use the admin API, or set store.sql to a file, "+
			"such as sqlite://tierway.db", path)
	}
	d := &database{
		file:   file,
		path:   path,
		actor:  operator(),
		notify: func(format string, args ...any) { printMessage(c, format, args...) },
	}
	return errors.Join(use(d), d.close())
}

// Parts of store.sql for SQLite databases.
const (
	sqliteScheme = "sqlite://"
	inMemory     = ":memory:"
)

// open opens the database. It creates a missing SQLite file only if fill is set; otherwise it
// uses an empty database in memory.
func (d *database) open(fill bool) (err error) {
	address := d.file.Store.SQL
	name, isFile := strings.CutPrefix(address, sqliteScheme)
	absent := func(path string) bool { _, err := os.Stat(path); return errors.Is(err, fs.ErrNotExist) }
	switch {
	case isFile && fill && absent(filepath.Dir(name)):
		return fmt.Errorf("%s: its directory does not exist: create it, or change store.sql in %s", d.name(), d.path)
	case isFile && !fill && absent(name):
		d.notify("%s does not exist yet", d.name())
		address = sqliteScheme + inMemory
	}
	if d.sql, err = store.OpenSQL(store.SQLConfig{URL: address, PasswordFile: d.file.Store.SQLPasswordFile}); err != nil {
		return fmt.Errorf("store.sql of %s: %w", d.path, err)
	}
	return nil
}

func (d *database) close() error {
	if d.sql == nil {
		return nil
	}
	return d.sql.Close()
}

// name returns a name of the database without the secrets of its URL.
func (d *database) name() string {
	file, isFile := strings.CutPrefix(d.file.Store.SQL, sqliteScheme)
	if !isFile {
		return "the PostgreSQL database of " + d.path
	}
	if whole, err := filepath.Abs(file); err == nil {
		file = whole
	}
	return "the database " + file
}

// ready opens the database and checks that its schema is the one of this release. If fill is
// set, it creates the schema of an empty database; otherwise empty reports an empty database.
func (d *database) ready(ctx context.Context, fill bool) (empty bool, err error) {
	if err := d.open(fill); err != nil {
		return false, err
	}
	applied, latest, err := d.sql.Schema(ctx)
	switch {
	case err != nil:
		return false, d.explain(err)
	case applied == latest:
		return false, nil
	case applied > latest:
		return false, d.newer(applied, latest)
	case applied > 0:
		return false, fmt.Errorf("%s has schema %d and this release needs %d: run `tierway migrate up -c %s`", d.name(),
			applied, latest, d.path)
	case !fill:
		return true, nil
	}
	m, err := d.sql.Migrate(ctx)
	if err != nil {
		return false, d.explain(err)
	}
	if m.From == 0 {
		d.notify("%s was empty; created schema %d", d.name(), m.To)
	}
	return false, nil
}

func (d *database) newer(applied, latest int64) error {
	return fmt.Errorf("%s: %w: its schema is %d and this release supports up to %d: use the release that created the "+
		"schema, or a later one", d.name(), store.ErrNewer, applied, latest)
}

func (d *database) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case store.Unreachable(err), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s is unreachable: %w", d.name(), err)
	}
	return fmt.Errorf("%s: %w", d.name(), err)
}

// notifyGateways notifies the gateways of a change, for at most store.redis_timeout. Without Redis, they detect it when
// they poll the database.
func (d *database) notifyGateways(ctx context.Context) {
	if d.file.Store.Redis == "" {
		return
	}
	c := store.RedisConfig{URL: d.file.Store.Redis, PasswordFile: d.file.Store.RedisPasswordFile,
		Timeout: d.file.Store.RedisTimeout, Gateway: "cli"}
	r, err := store.OpenRedis(c)
	if err == nil {
		err = errors.Join(r.PublishChange(ctx), r.Close())
	}
	if err != nil {
		d.notify("warning: gateways could not be notified over Redis (%v); they apply the change within 2 s", err)
	}
}

// create creates a key of k's tenant with k's name, rights, limits and expiry, and the tenant if
// it does not exist.
func (d *database) create(ctx context.Context, k tenants.Key) (madeKey, error) {
	if _, err := d.ready(ctx, true); err != nil {
		return madeKey{}, err
	}
	secret, minted, err := tenants.Mint(rand.Reader, k.Tenant)
	if err != nil {
		return madeKey{}, err
	}
	k.ID, k.Hint, k.Digest, k.CreatedBy = minted.ID, minted.Hint, minted.Digest, d.actor.Name
	made := madeKey{Secret: secret}
	made.Key, err = d.sql.CreateKey(ctx, d.actor, k)
	if errors.Is(err, store.ErrNotFound) {
		_, err = d.sql.CreateTenant(ctx, d.actor, tenants.Tenant{Name: k.Tenant})
		made.NewTenant = err == nil
		if err == nil || errors.Is(err, store.ErrExists) { // created concurrently
			made.Key, err = d.sql.CreateKey(ctx, d.actor, k)
		}
	}
	if err != nil {
		return madeKey{}, d.explain(err)
	}
	if slices.ContainsFunc(d.file.Auth.Keys, func(c tenants.KeyConfig) bool { return c.Name == k.Tenant }) {
		d.notify("the tenant %s is also in %s: its settings there apply to this key", k.Tenant, d.path)
		made.NewTenant = false
	}
	d.notifyGateways(ctx)
	return made, nil
}

// list returns the keys of the database and of the configuration: of a tenant, or all for an empty name.
func (d *database) list(ctx context.Context, tenant string) ([]tenants.Key, error) {
	empty, err := d.ready(ctx, false)
	if err != nil {
		return nil, err
	}
	_, keys, err := tenants.FromConfig(d.file.Auth.Keys)
	if err != nil {
		return nil, fmt.Errorf("reading auth.keys of %s: %w", d.path, err)
	}
	if !empty {
		all, err := d.sql.Contents(ctx)
		if err != nil {
			return nil, d.explain(err)
		}
		keys = append(keys, all.Keys...)
	}
	return slices.DeleteFunc(keys, func(k tenants.Key) bool { return tenant != "" && k.Tenant != tenant }), nil
}

// rotate creates a key that replaces the one with this ID, which stays valid for overlap.
func (d *database) rotate(ctx context.Context, id string, overlap time.Duration) (madeKey, error) {
	if err := d.checkID(ctx, id); err != nil {
		return madeKey{}, err
	}
	secret, next, err := tenants.Mint(rand.Reader, "") // the tenant comes from the old key
	if err != nil {
		return madeKey{}, err
	}
	next.CreatedBy = d.actor.Name
	old, made, err := d.sql.RotateKey(ctx, d.actor, id, next, overlap, time.Now())
	if err != nil {
		return madeKey{}, d.explainKey(id, err)
	}
	d.notifyGateways(ctx)
	return madeKey{Key: made, Secret: secret, Old: &old}, nil
}

// revoke invalidates a key immediately. Revoking it again is not an error.
func (d *database) revoke(ctx context.Context, id, reason string) (tenants.Key, error) {
	if err := d.checkID(ctx, id); err != nil {
		return tenants.Key{}, err
	}
	k, err := d.sql.RevokeKey(ctx, d.actor, id, reason, time.Now())
	if err != nil {
		return tenants.Key{}, d.explainKey(id, err)
	}
	d.notifyGateways(ctx)
	return k, nil
}

// checkID checks that the database may contain a key of this ID.
func (d *database) checkID(ctx context.Context, id string) error {
	if strings.HasPrefix(id, "config-") {
		return fmt.Errorf("the key %s is in %s: change it under auth.keys there", id, d.path)
	}
	empty, err := d.ready(ctx, false)
	if err == nil && empty {
		err = d.explainKey(id, store.ErrNotFound)
	}
	return err
}

func (d *database) explainKey(id string, err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("%s has no key %s; `tierway keys list -c %s` lists all keys", d.name(), id, d.path)
	case errors.Is(err, store.ErrConflict):
		return fmt.Errorf("the key %s is already revoked, expired or replaced; create another one with `tierway keys create`",
			id)
	}
	return d.explain(err)
}
