package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"tierway/store"
)

// Intervals and time limits of the database.
const (
	// AskEvery is how often the database's revision is read: one row. Without Redis it is
	// how long a revoked key still works.
	AskEvery = time.Second
	// askPause is the shortest interval of additional reads because of unknown keys.
	askPause = 100 * time.Millisecond
	// readEvery is how often all is read anyway, for what is no change of the
	// directory: when keys were last used.
	readEvery = time.Minute
	// spentEvery is how often what was spent is read from the ledger, for what
	// other gateways spend without a common Redis.
	spentEvery = 10 * time.Second
	// sqlPatience bounds one step of work on the database. Requests of the data plane never wait
	// for it; changes by the admin API do.
	sqlPatience = 5 * time.Second
	// startPatience is how long a start waits for an unavailable database.
	startPatience = 3 * time.Second
)

// DatabaseState is what the gateway can do with the SQL database.
type DatabaseState int32

// The states.
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
	apply    func(store.Contents, time.Time) error // puts what was read in force

	state      atomic.Int32 // a DatabaseState
	migrated   atomic.Bool
	currentAt  atomic.Int64  // when the directory was last known to be the database's; Unix nanoseconds, 0: never
	readDue    chan struct{} // the revision is to be compared at once
	refreshDue chan struct{} // the same, unless it was compared within askPause
	LastUsed   lastUsed
}

// open brings the schema up to date and reads the directory. A database
// that is away is no error: it is tried again while serving.
func (db *Database) open(ctx context.Context) error {
	if db.stores.SQL == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	err := db.Read(ctx)
	if err != nil && !store.Unreachable(err) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	db.noteState(err, nil)
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
	return db.seedBudgets(ctx) // last: a ledger that fails must keep no revoked key valid
}

// migrate brings the schema up to date, once. It takes as long as it takes, on a
// database that answers. The next release's schema is served too: it only adds, and
// gateways of both share a database while they are replaced.
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
		return fmt.Errorf("reading what was spent: %w", err)
	}
	for _, r := range rows {
		db.stores.Limiter.Seed(r.Tenant, r.Key, now, r.Day, r.Month)
	}
	return nil
}

// follow reads the directory whenever it has changed, until ctx ends.
func (db *Database) follow(ctx context.Context) {
	if db.stores.SQL == nil {
		return
	}
	poll := time.NewTicker(AskEvery)
	defer poll.Stop()
	var spent time.Time // when the budgets were last read
	asked := time.Now()
	for {
		select {
		case <-db.refreshDue:
			if time.Since(asked) < askPause {
				continue
			}
		case <-ctx.Done():
			db.recover.Run("writing when keys were last used", func() { db.lastTouches(ctx) })
			return
		case <-db.readDue:
		case <-poll.C:
		}
		asked = time.Now()
		err := db.recover.Try("following the database", func() error {
			ctx, cancel := context.WithTimeout(ctx, sqlPatience)
			defer cancel()
			if err := db.refreshIfChanged(ctx); err != nil {
				spent = time.Time{} // perhaps the budgets alone could not be read
				return err
			}
			if time.Since(spent) < spentEvery {
				return nil
			}
			err := db.seedBudgets(ctx)
			if err == nil {
				spent = time.Now()
			}
			return errors.Join(err, db.writeTouches(ctx))
		})
		if ctx.Err() == nil {
			db.noteState(err, db.stores.Ledger.Stats().Err)
		}
	}
}

// refreshIfChanged reads the directory if it may have changed.
func (db *Database) refreshIfChanged(ctx context.Context) error {
	p := db.snapshot().Identity
	if time.Since(p.ReadAt) < readEvery {
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

// State returns what the gateway can do with the database now.
func (db *Database) State() DatabaseState { return DatabaseState(db.state.Load()) }

// noteState derives the state from the errors of the last read and the last write, and
// logs each change once.
func (db *Database) noteState(read, write error) {
	now, cause := DatabaseOK, ""
	switch {
	case read != nil:
		now, cause = DatabaseAway, read.Error()
	case store.Unreachable(write): // a read may be the first to succeed, or the last
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

// HasCallers reports whether any request could be served: before the database was read for
// the first time, only if the configuration has keys or requires none.
func (db *Database) HasCallers() bool {
	snap := db.snapshot()
	return db.stores.SQL == nil || !snap.Identity.ReadAt.IsZero() || len(snap.Identity.ownKeys) > 0 ||
		!snap.File.Auth.Required
}

// Changed reads the directory after this gateway has changed the database, and notifies the
// other gateways. If the read fails, it is repeated in the background.
func (db *Database) Changed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqlPatience)
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

// wake has a loop that reads from due, which holds one signal, take its next step.
func wake(due chan<- struct{}) {
	select {
	case due <- struct{}{}:
	default:
	}
}
