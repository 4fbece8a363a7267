package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"tierway/store"
	"tierway/telemetry"
)

// Intervals and time limits of the database.
const (
	// PollInterval is the interval at which the revision of the database, one row, is read. Without
	// Redis, a revoked key works for at most this time.
	PollInterval = time.Second
	// minRefreshInterval is the shortest interval between additional reads because of unknown keys.
	minRefreshInterval = 100 * time.Millisecond
	// readInterval is the interval at which everything is read even if the revision is the same. The
	// last uses of keys do not change the revision.
	readInterval = time.Minute
	// spentInterval is the interval at which spent budgets are read from the ledger. Without Redis,
	// it is the only source of the usage on other gateways.
	spentInterval = 10 * time.Second
	// sqlTimeout limits one step of work on the database. Changes by the admin API wait for such a
	// step; requests of the data plane never do.
	sqlTimeout = 5 * time.Second
	// startTimeout is the longest time that a start waits for an unavailable database.
	startTimeout = 3 * time.Second
)

// DatabaseState says whether the gateway can read and write the SQL database.
type DatabaseState int32

// The states of the database.
const (
	DatabaseOK       DatabaseState = iota // reads and writes
	DatabaseAway                          // neither
	DatabaseReadOnly                      // reads only, for example because the disk is full
)

// String names the state as GET /admin/status shows it.
func (s DatabaseState) String() string { return [...]string{"ok", "away", "read_only"}[s] }

// Database follows the SQL database: it reads the directory of tenants, keys and admins
// after each change, and writes when keys were last used. Without a database it does
// nothing. It is safe for concurrent use.
type Database struct {
	log      *slog.Logger
	recover  *Recoverer
	stores   *Stores
	snapshot func() *Snapshot
	apply    func(store.Contents, time.Time) error // puts the contents in force
	sharing  func() telemetry.SharingGauges        // called with Redis only

	state      atomic.Int32 // a DatabaseState
	migrated   atomic.Bool
	currentAt  atomic.Int64  // when the directory was last known to be current, in Unix nanoseconds; 0: never
	readDue    chan struct{} // requests a comparison of the revision at once
	refreshDue chan struct{} // the same, unless it was compared within minRefreshInterval
	LastUsed   lastUsed
}

// open brings the schema up to date and reads the directory. An unavailable database is not an error:
// follow tries it again.
func (db *Database) open(ctx context.Context) error {
	if db.stores.SQL == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := db.Read(ctx)
	if err != nil && !store.Unreachable(err) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	db.updateState(err, nil)
	return nil
}

// Read brings the schema up to date, once, and puts the directory that it reads in force.
// It needs a database.
func (db *Database) Read(ctx context.Context) error {
	if err := db.migrate(ctx); err != nil {
		return err
	}
	began := time.Now()
	c, err := db.stores.SQL.Contents(ctx)
	if err != nil {
		return fmt.Errorf("reading the directory: %w", err)
	}
	if err := db.apply(c, began); err != nil {
		return err
	}
	return db.seedBudgets(ctx) // last, so that a failing ledger keeps no revoked key valid
}

// migrate brings the schema up to date, once. It has no time limit if the database responds. The schema
// of the next release is accepted too: it only adds to this one, and gateways of both releases share a
// database during an upgrade.
func (db *Database) migrate(ctx context.Context) error {
	if db.migrated.Load() {
		return nil
	}
	if err := db.stores.SQL.Ping(ctx); err != nil {
		return fmt.Errorf("migrating the database: %w", err)
	}
	_, err := db.stores.SQL.Migrate(context.WithoutCancel(ctx))
	if errors.Is(err, store.ErrNewer) {
		applied, latest, schemaErr := db.stores.SQL.Schema(ctx)
		if schemaErr == nil && applied == latest+1 {
			db.log.Warn("the database schema belongs to the next release; this release continues to serve", "schema", applied,
				"known", latest)
			err = nil
		}
	}
	if err != nil {
		return err
	}
	db.migrated.Store(true)
	return nil
}

// seedBudgets sets the limiter's spent budgets to the ledger's sums.
func (db *Database) seedBudgets(ctx context.Context) error {
	now := time.Now()
	rows, err := db.stores.SQL.Spent(ctx, now)
	if err != nil {
		return fmt.Errorf("reading the spent budgets: %w", err)
	}
	for _, r := range rows {
		db.stores.Limiter.Seed(r.Tenant, r.Key, now, r.Day, r.Month)
	}
	return nil
}

// follow reads the directory after each change of the database, until ctx ends.
func (db *Database) follow(ctx context.Context) {
	if db.stores.SQL == nil {
		return
	}
	poll := time.NewTicker(PollInterval)
	defer poll.Stop()
	var spent time.Time // when the budgets were last read
	polled := time.Now()
	for {
		select {
		case <-db.refreshDue:
			if time.Since(polled) < minRefreshInterval {
				continue
			}
		case <-ctx.Done():
			db.recover.Run("writing when keys were last used", func() { db.flushLastUsed(ctx) })
			return
		case <-db.readDue:
		case <-poll.C:
		}
		polled = time.Now()
		err := db.recover.Try("following the database", func() error {
			ctx, cancel := context.WithTimeout(ctx, sqlTimeout)
			defer cancel()
			if err := db.refreshIfChanged(ctx); err != nil {
				spent = time.Time{} // perhaps the budgets alone could not be read
				return err
			}
			if time.Since(spent) < spentInterval {
				return nil
			}
			err := db.seedBudgets(ctx)
			if err == nil {
				spent = time.Now()
			}
			return errors.Join(err, db.writeLastUsed(ctx))
		})
		if ctx.Err() == nil {
			db.updateState(err, db.stores.Ledger.Stats().Err)
		}
	}
}

// refreshIfChanged reads the directory if it may have changed.
func (db *Database) refreshIfChanged(ctx context.Context) error {
	p := db.snapshot().Identity
	if time.Since(p.ReadAt) < readInterval {
		revision, err := db.stores.SQL.Revision(ctx)
		if err != nil {
			return err
		}
		if revision == p.contents.Revision {
			db.currentAt.Store(time.Now().UnixNano())
			return nil
		}
	}
	return db.Read(ctx)
}

// State returns the current state of the database.
func (db *Database) State() DatabaseState { return DatabaseState(db.state.Load()) }

// updateState derives the state from the errors of the last read and the last write, and logs each
// change of it.
func (db *Database) updateState(read, write error) {
	now, cause := DatabaseOK, ""
	switch {
	case read != nil:
		now, cause = DatabaseAway, read.Error()
	case store.Unreachable(write): // the read may have succeeded just before or after
		now, cause = DatabaseAway, write.Error()
	case write != nil:
		now, cause = DatabaseReadOnly, write.Error()
	}
	if DatabaseState(db.state.Swap(int32(now))) == now {
		return
	}
	switch now {
	case DatabaseAway:
		db.log.Error("database unavailable; serving tenants from memory, buffering usage rows", "cause", cause, "read",
			!db.snapshot().Identity.ReadAt.IsZero())
	case DatabaseReadOnly:
		db.log.Error("database takes no writes; buffering usage rows", "cause", cause, "rows",
			db.stores.Ledger.Stats().Waiting)
	default:
		db.log.Info("database available")
	}
}

// HasCallers reports whether any request could be authenticated. Before the first read of the database,
// this needs a configuration that has keys or requires none.
func (db *Database) HasCallers() bool {
	snap := db.snapshot()
	return db.stores.SQL == nil || !snap.Identity.ReadAt.IsZero() || len(snap.Identity.ownKeys) > 0 ||
		!snap.File.Auth.Required
}

// Changed reads the directory after this gateway has changed the database, and notifies the
// other gateways. If the read fails, it is repeated in the background.
func (db *Database) Changed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqlTimeout)
	defer cancel()
	if err := db.Read(ctx); err != nil {
		db.log.Warn("reading the directory after a change failed; it is read again shortly", "cause", err.Error())
		db.requestRead()
	}
	if db.stores.Redis != nil {
		if err := db.stores.Redis.PublishChange(ctx); err != nil {
			db.log.Debug("notifying other gateways failed; they read the change from the database", "cause", err.Error())
		}
	}
}

// RequestRefresh makes Run read the directory soon if the database has changed, because a
// client has sent an unknown key. It does not block.
func (db *Database) RequestRefresh() { wake(db.refreshDue) }

// requestRead makes Run read the directory as soon as possible if the database has changed.
func (db *Database) requestRead() { wake(db.readDue) }

// wake makes the loop that receives from due run once more. due has a buffer of one signal.
func wake(due chan<- struct{}) {
	select {
	case due <- struct{}{}:
	default:
	}
}
