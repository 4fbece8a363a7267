package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tierway/store"
)

// openDatabase brings the schema up to date and reads the directory. An unavailable database is not an error, nor is a
// reading that takes longer than a start may wait: followDatabase reads the rest.
func (ctl *Control) openDatabase(ctx context.Context) error {
	db := ctl.Database
	if db.stores.SQL == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := ctl.Refresh(ctx)
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

// Refresh puts all changes of the database in force that were made before the call, by any gateway.
func (ctl *Control) Refresh(ctx context.Context) error {
	for {
		if whole, err := ctl.readChanges(ctx); err != nil || whole {
			return err
		}
	}
}

// readChanges puts the next changes of the database in force, those that withdraw rights first. whole reports that
// nothing is missing.
func (ctl *Control) readChanges(ctx context.Context) (whole bool, err error) {
	db := ctl.Database
	if err := db.updating.lock(ctx); err != nil {
		return false, fmt.Errorf("reading the changes of the directory: %w", err)
	}
	defer db.updating.unlock()
	now := time.Now()
	change, to, err := db.next(ctx, ctl.Snapshot().Identity)
	if err != nil {
		return false, err
	}
	if change != nil {
		inForce := false
		defer func() {
			if !inForce && change.whole != nil { // requests may use it, so that no more may be added
				db.beginAgain()
			}
		}()
		ctl.changing.Lock()
		defer ctl.changing.Unlock()
		if err := ctl.change(*change); err != nil {
			return false, err
		}
		inForce = true
		db.budgets.add(change)
		wake(db.maintainDue)
	}
	db.took(to, now)
	return to.Whole(), nil
}

// followDatabase puts each change of the database in force until ctx ends. What may take long is work of
// Database.maintain, so that a revocation never waits for it.
func (ctl *Control) followDatabase(ctx context.Context) {
	db := ctl.Database
	if db.stores.SQL == nil {
		return
	}
	var owned sync.WaitGroup
	owned.Go(func() { db.maintain(ctx) })
	defer owned.Wait()
	poll := time.NewTimer(db.recover.untilTick(PollInterval))
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
			poll.Reset(db.recover.untilTick(PollInterval))
		}
		polled = time.Now()
		err := db.recover.Try("following the database", func() error {
			whole, err := ctl.readChanges(ctx)
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

// Changed puts a change in force that this gateway has made in the database, and notifies the
// other gateways. If the read fails, it is repeated in the background.
func (ctl *Control) Changed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqlTimeout)
	defer cancel()
	if ctl.Stores.Redis != nil {
		if err := ctl.Stores.Redis.PublishChange(ctx); err != nil {
			ctl.log.Debug("notifying other gateways failed; they read the change from the database", "cause", err.Error())
		}
	}
	if err := ctl.Refresh(ctx); err != nil {
		ctl.log.Warn("reading the directory after a change failed; it is read again shortly", "cause", err.Error())
		ctl.Database.requestRead()
	}
}

// HasCallers reports whether any request could be authenticated. Before the first read of the database,
// this needs a configuration that has keys or requires none.
func (ctl *Control) HasCallers() bool {
	snap := ctl.Snapshot()
	return ctl.Stores.SQL == nil || !snap.Identity.ReadAt.IsZero() || len(snap.File.Auth.Keys) > 0 ||
		!snap.File.Auth.Required
}
