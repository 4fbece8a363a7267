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
	// readInterval is the interval at which everything is read even if the revision is the same. The
	// last uses of keys do not change the revision.
	readInterval = time.Minute
	// spentInterval is the interval at which spent budgets are read from the ledger. Without Redis,
	// it is the only source of the usage on other gateways.
	spentInterval = 10 * time.Second
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

	state       atomic.Int32 // a DatabaseState
	migrated    atomic.Bool
	currentAt   atomic.Int64  // when the directory was last known to be current, in Unix nanoseconds; 0: never
	readAllAt   atomic.Int64  // see wholeAt
	partial     atomic.Bool   // the directory in force lacks changes: all of it must be read
	changed     atomic.Bool   // the directory has changed since the budgets were last read because of a change
	readDue     chan struct{} // requests a comparison of the revision at once
	refreshDue  chan struct{} // the same, unless it was compared within minRefreshInterval
	maintainDue chan struct{} // requests the work of maintain at once
	LastUsed    lastUsed

	reading  turn // one reading of the whole directory at a time; taken before updating
	updating turn // one change of the directory at a time
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
// directory whose reading takes longer than a start may wait: maintain reads it then.
func (db *Database) open(ctx context.Context) error {
	if db.stores.SQL == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	switch err := db.Read(ctx); {
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

// Read brings the schema up to date, once, and puts the whole directory that it reads in force. It needs a database.
// It has no time limit of its own while the database sends rows. Several callers share one reading.
func (db *Database) Read(ctx context.Context) error {
	asked := time.Now()
	if err := db.reading.lock(ctx); err != nil {
		return fmt.Errorf("reading the directory: %w", err)
	}
	defer db.reading.unlock()
	if db.wholeAt().After(asked) {
		return nil
	}
	if err := db.migrate(ctx); err != nil {
		return err
	}
	began := time.Now()
	db.partial.Store(false)
	c, err := db.stores.SQL.Contents(ctx)
	if err == nil {
		err = db.applyWhole(ctx, c)
	}
	if err != nil {
		db.partial.Store(true)
		return fmt.Errorf("reading the directory: %w", err)
	}
	db.readAllAt.Store(began.UnixNano())
	return db.seedBudgets(ctx) // last, so that a failing ledger keeps no revoked key valid
}

// applyWhole puts contents that may have been read for long in force, with the changes since.
func (db *Database) applyWhole(ctx context.Context, c store.Contents) error {
	if err := db.updating.lock(ctx); err != nil {
		return err
	}
	defer db.updating.unlock()
	now := time.Now()
	c, whole, err := db.stores.SQL.ContentsSince(ctx, c)
	if err == nil {
		err = db.apply(c, now)
	}
	if err == nil && whole {
		db.currentAt.Store(now.UnixNano())
	}
	return err
}

// Refresh puts the changes of the database in force that were made before the call, by any gateway. It reads only what
// has changed if that is little.
func (db *Database) Refresh(ctx context.Context) error {
	whole, err := db.readChanges(ctx)
	if err != nil || whole {
		return err
	}
	return db.Read(ctx)
}

// readChanges puts the changes of the database in force, those that withdraw rights in any case. whole reports that
// nothing is missing; otherwise the whole directory must be read.
func (db *Database) readChanges(ctx context.Context) (whole bool, err error) {
	if err := db.updating.lock(ctx); err != nil {
		return false, fmt.Errorf("reading the changes of the directory: %w", err)
	}
	defer db.updating.unlock()
	p, now := db.snapshot().Identity, time.Now()
	if p.ReadAt.IsZero() {
		return false, db.stores.SQL.Ping(ctx)
	}
	revision, err := db.stores.SQL.Revision(ctx)
	if err != nil {
		return false, err
	}
	if whole = revision == p.contents.Revision; !whole {
		var c store.Contents
		if c, whole, err = db.stores.SQL.ContentsSince(ctx, p.contents); err == nil {
			err = db.apply(c, now)
		}
		if err != nil {
			return false, err
		}
		db.changed.Store(true)
	}
	if whole {
		db.currentAt.Store(now.UnixNano())
	}
	return whole, nil
}

// wholeAt returns when the last reading of the whole directory began; the zero time if there was none.
func (db *Database) wholeAt() time.Time {
	if at := db.readAllAt.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
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
				db.partial.Store(true)
			}
			if err == nil && (!whole || db.changed.Swap(false)) {
				wake(db.maintainDue)
			}
			return err
		})
		// Until the schema exists, a database that responds is not available.
		if ctx.Err() == nil && (err != nil || db.migrated.Load()) {
			db.updateState(err, db.stores.Ledger.Stats().Err)
		}
	}
}

// maintain reads the whole directory when its changes alone are not enough, and once in readInterval. It also reads the
// spent budgets and writes when keys were last used.
func (db *Database) maintain(ctx context.Context) {
	tick := time.NewTicker(PollInterval)
	defer tick.Stop()
	var spent time.Time // when the budgets were last read
	failed := ""        // the last failure, which is logged once
	for {
		select {
		case <-ctx.Done():
			db.recover.Run("writing when keys were last used", func() { db.flushLastUsed(ctx) })
			return
		case <-db.maintainDue:
			spent = time.Time{}
		case <-tick.C:
		}
		err := db.recover.Try("reading the whole database", func() error {
			if db.partial.Load() || time.Since(db.wholeAt()) >= readInterval {
				if err := db.Read(ctx); err != nil {
					return err
				}
				spent = time.Now()
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
		switch {
		case err == nil:
			failed = ""
		case ctx.Err() == nil && db.State() != DatabaseAway && failed != err.Error():
			failed = err.Error()
			db.log.Warn("reading all tenants and keys or the spent budgets failed; it is tried again, and single changes "+
				"are still applied", "cause", failed)
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
	return db.stores.SQL == nil || !snap.Identity.ReadAt.IsZero() || len(snap.Identity.ownKeys) > 0 ||
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
