package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
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
	// spentInterval is the interval at which spent budgets are read from the ledger. Without Redis,
	// it is the only source of the usage on other gateways.
	spentInterval = 10 * time.Second
	// marksKept is how long the database keeps the marks of deleted tenants and keys. A gateway that has not read the
	// changes for half of it reads everything again.
	marksKept = 24 * time.Hour
	// pruneInterval is the interval at which older marks are deleted.
	pruneInterval = time.Hour
	// sqlTimeout limits the wait of a change by the admin API until the change is in force. Requests of the data plane
	// never wait.
	sqlTimeout = 5 * time.Second
	// startTimeout is the longest time that a start waits for the database.
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

// Database follows the SQL database: it reads the changes of tenants, keys and admins, and writes when keys were last
// used. Without a database it does nothing. It is safe for concurrent use.
type Database struct {
	log      *slog.Logger
	recover  *Recoverer
	stores   *Stores
	snapshot func() *Snapshot
	// apply puts changes in force that lead to a position.
	apply   func(c *store.Changes, to *store.Position, now time.Time) error
	sharing func() telemetry.SharingGauges // called with Redis only

	state       atomic.Int32 // a DatabaseState
	migrated    atomic.Bool
	currentAt   atomic.Int64  // when the directory was last known to be current, in Unix nanoseconds; 0: never
	readDue     chan struct{} // requests the next changes at once
	refreshDue  chan struct{} // the same, unless they were read within minRefreshInterval
	maintainDue chan struct{} // requests the work of maintain at once
	LastUsed    lastUsed
	budgets     dueBudgets

	updating turn           // one reading of changes at a time
	position store.Position // what was read; guarded by updating
	readAt   time.Time      // when it was read; guarded by updating
}

// turn is a lock whose wait ends with a context. It holds one value while it is locked.
type turn chan struct{}

func (t turn) lock(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) unlock() { <-t }

// open brings the schema up to date and reads the directory. An unavailable database is not an error, nor is a
// directory whose reading takes longer than a start may wait: follow reads the rest.
func (db *Database) open(ctx context.Context) error {
	if db.stores.SQL == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := db.Refresh(ctx)
	if err == nil {
		err = db.seedBudgets(ctx)
	}
	switch {
	case err != nil && db.migrated.Load() && errors.Is(err, context.DeadlineExceeded):
		db.log.Warn("reading tenants and keys takes longer than a start waits; the gateway is ready once they are read",
			"waited", startTimeout.String())
	case err != nil && !store.Unreachable(err) && !errors.Is(err, context.DeadlineExceeded):
		return err
	default:
		db.updateState(err, nil)
	}
	return nil
}

// Refresh puts all changes in force that were made before the call, by any gateway.
func (db *Database) Refresh(ctx context.Context) error {
	for {
		if whole, err := db.readChanges(ctx); err != nil || whole {
			return err
		}
	}
}

// readChanges puts the next changes of the database in force, those that withdraw rights first. whole reports that
// nothing is missing. It has no time limit of its own while the database sends rows.
func (db *Database) readChanges(ctx context.Context) (whole bool, err error) {
	if err := db.updating.lock(ctx); err != nil {
		return false, fmt.Errorf("reading the changes of the directory: %w", err)
	}
	defer db.updating.unlock()
	if err := db.migrate(ctx); err != nil {
		return false, err
	}
	now := time.Now()
	if !db.readAt.IsZero() && now.Round(0).Sub(db.readAt.Round(0)) > marksKept/2 {
		db.position = db.position.Expired()
	}
	if changed, err := db.stores.SQL.HasChanged(ctx, db.position); err != nil {
		return false, err
	} else if changed {
		c, to, err := db.stores.SQL.ChangesSince(ctx, db.position)
		if err == nil {
			err = db.apply(&c, &to, now)
		}
		if err != nil {
			return false, err
		}
		db.position = to
		if db.budgets.add(&c) {
			wake(db.maintainDue)
		}
	}
	db.readAt = now
	if whole = db.position.Whole(); whole {
		db.currentAt.Store(now.UnixNano())
	}
	return whole, nil
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

// follow puts each change of the database in force until ctx ends. What may take long is work of maintain, so that a
// revocation never waits for it.
func (db *Database) follow(ctx context.Context) {
	if db.stores.SQL == nil {
		return
	}
	var owned sync.WaitGroup
	owned.Go(func() { db.maintain(ctx) })
	defer owned.Wait()
	poll := time.NewTicker(PollInterval)
	defer poll.Stop()
	polled := time.Now()
	for {
		select {
		case <-db.refreshDue:
			if time.Since(polled) < minRefreshInterval {
				continue
			}
		case <-ctx.Done():
			return
		case <-db.readDue:
		case <-poll.C:
		}
		polled = time.Now()
		err := db.recover.Try("following the database", func() error {
			whole, err := db.readChanges(ctx)
			if err == nil && !whole {
				db.requestRead()
			}
			return err
		})
		// Until the schema exists, a database that responds is not available.
		if ctx.Err() == nil && (err != nil || db.migrated.Load()) {
			db.updateState(err, db.stores.Ledger.Stats().Err)
		}
	}
}

// maintain reads the spent budgets, and writes when keys were last used.
func (db *Database) maintain(ctx context.Context) {
	tick := time.NewTicker(PollInterval)
	defer tick.Stop()
	var all, pruned time.Time // when all budgets were last read, and marks were last pruned
	failed := ""              // the last failure, which is logged once
	for {
		select {
		case <-ctx.Done():
			db.recover.Run("writing when keys were last used", func() { db.flushLastUsed(ctx) })
			return
		case <-db.maintainDue:
		case <-tick.C:
		}
		if !db.migrated.Load() {
			continue
		}
		err := db.recover.Try("reading the spent budgets", func() error {
			err := db.seedChangedBudgets(ctx)
			if time.Since(all) < spentInterval || err != nil {
				return err
			}
			if err = db.seedBudgets(ctx); err == nil {
				all = time.Now()
			}
			err = errors.Join(err, db.writeLastUsed(ctx))
			if time.Since(pruned) >= pruneInterval && err == nil {
				pruned = time.Now()
				err = db.stores.SQL.PruneDeletions(ctx, pruned.Add(-marksKept))
			}
			return err
		})
		switch {
		case err == nil:
			failed = ""
		case ctx.Err() == nil && db.State() != DatabaseAway && failed != err.Error():
			failed = err.Error()
			db.log.Warn("reading the spent budgets or writing when keys were last used failed; it is tried again, and "+
				"changes of tenants and keys are still applied", "cause", failed)
		}
	}
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
	return db.stores.SQL == nil || !snap.Identity.ReadAt.IsZero() || len(snap.File.Auth.Keys) > 0 ||
		!snap.File.Auth.Required
}

// Changed puts a change in force that this gateway has made in the database, and notifies the
// other gateways. If the read fails, it is repeated in the background.
func (db *Database) Changed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqlTimeout)
	defer cancel()
	if err := db.Refresh(ctx); err != nil {
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
