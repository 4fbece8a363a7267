package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"tierway/store"
	"tierway/tenants"
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
	// marksKept is how long the database keeps the marks of deleted tenants and keys. A gateway that was away for longer
	// reads everything again.
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
	log         *slog.Logger
	recover     *Recoverer
	stores      *Stores
	state       atomic.Int32 // a DatabaseState
	migrated    atomic.Bool
	currentAt   atomic.Int64  // when the directory was last known to be current, in Unix nanoseconds; 0: never
	readDue     chan struct{} // requests the next changes at once
	refreshDue  chan struct{} // the same, unless they were read within minRefreshInterval
	maintainDue chan struct{} // requests the work of maintain at once
	LastUsed    lastUsed
	budgets     dueBudgets

	updating turn           // one reading of changes at a time; guards the fields below
	position store.Position // what was read and put in force
	first    firstReading
}

// firstReading is what was read of a database that was not read before. It is put in force once it is whole.
type firstReading struct {
	directory *tenants.Directory // nil: the database was read before
	few       store.Changes      // with the admins and overrides
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

// next reads the next changes of the database, those that withdraw rights first. change is nil if there is nothing to
// put in force. While a whole reading replaces inForce, its changes are those that withdraw rights. The caller holds
// updating, puts the change in force and calls took. It has no time limit of its own while the database sends rows.
func (db *Database) next(ctx context.Context, inForce *Identity) (change *changeDirectory, to store.Position,
	err error) {
	if err := db.migrate(ctx); err != nil {
		return nil, to, err
	}
	at := db.position
	if changed, err := db.stores.SQL.HasChanged(ctx, at); err != nil || !changed {
		return nil, at, err
	}
	c, to, err := db.stores.SQL.ChangesSince(ctx, at)
	if err != nil {
		return nil, to, err
	}
	if db.first.directory == nil && !c.Few && len(c.Tenants)+len(c.Keys) == 0 { // an entry of the audit log alone
		return nil, to, nil
	}
	change = &changeDirectory{changes: &c}
	if to.Whole() { // until then rows with earlier revisions follow
		change.revision = to.Revision
	}
	if c.Restart || at == (store.Position{}) {
		db.first.directory = tenants.NewDirectory(nil, nil)
	}
	if db.first.directory != nil {
		if db.first.directory.Add(&c.Changes); c.Few {
			db.first.few = store.Changes{Few: true, Admins: c.Admins, Overrides: c.Overrides}
		}
		switch {
		case !to.Whole() && inForce.ReadAt.IsZero():
			return nil, to, nil
		case !to.Whole():
			c.Changes = inForce.Directory.Withdrawals(&c.Changes)
			return change, to, nil
		}
		change.changes, change.whole = &db.first.few, db.first.directory
	}
	return change, to, nil
}

// took records that everything up to a position is in force. now is the time from before it was read.
func (db *Database) took(to store.Position, now time.Time) {
	if db.position = to; to.Whole() {
		db.first = firstReading{}
		db.currentAt.Store(now.UnixNano())
	}
}

// beginAgain makes the next reading the first one.
func (db *Database) beginAgain() { db.position, db.first = store.Position{}, firstReading{} }

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

// maintain reads the spent budgets, and writes when keys were last used.
func (db *Database) maintain(ctx context.Context) {
	tick := time.NewTimer(db.recover.untilTick(PollInterval))
	defer tick.Stop()
	var all, pruned time.Time // when all budgets were last read, and marks were last pruned
	failed := ""              // the last failure, which is logged once until all work succeeds
	for {
		select {
		case <-ctx.Done():
			db.recover.Run("writing when keys were last used", func() { db.flushLastUsed(ctx) })
			return
		case <-db.maintainDue:
		case <-tick.C:
			tick.Reset(db.recover.untilTick(PollInterval))
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
			if err == nil {
				failed = ""
			}
			return err
		})
		if err != nil && ctx.Err() == nil && db.State() != DatabaseAway && failed != err.Error() {
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
			db.currentAt.Load() != 0)
	case DatabaseReadOnly:
		db.log.Error("database takes no writes; buffering usage rows", "cause", cause, "rows",
			db.stores.Ledger.Stats().Waiting)
	default:
		db.log.Info("database available")
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
