package control

import (
	"context"
	"sync"
	"time"
)

// lastUsed has the times of the last uses of keys on this gateway, until they are in the directory.
type lastUsed struct {
	mu   sync.Mutex
	uses map[string]keyUse
}

type keyUse struct {
	at      time.Time
	written bool // to the database
}

// RecordUse records the use of a key of the database.
func (t *lastUsed) RecordUse(key string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.uses == nil {
		t.uses = map[string]keyUse{}
	}
	t.uses[key] = keyUse{at: at}
}

// At returns the time of the last use of a key on this gateway; zero if it is in the directory by now.
func (t *lastUsed) At(key string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.uses[key].at
}

// unwritten returns the times that the database does not have, and marks them as written. It removes the times that
// are in the directory by now.
func (t *lastUsed) unwritten(now time.Time) map[string]time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	times := map[string]time.Time{}
	for key, use := range t.uses {
		switch {
		case !use.written:
			times[key] = use.at
			t.uses[key] = keyUse{use.at, true}
		case now.Sub(use.at) > 2*readInterval:
			delete(t.uses, key)
		}
	}
	return times
}

// flushLastUsed writes the recorded times when the gateway ends.
func (db *Database) flushLastUsed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second) // not worth a longer wait
	defer cancel()
	if err := db.writeLastUsed(ctx); err != nil {
		db.log.Debug("writing the last use of keys failed", "cause", err.Error())
	}
}

// writeLastUsed writes the recorded times. If the write fails they are lost until the next use of each
// key.
func (db *Database) writeLastUsed(ctx context.Context) error {
	times := db.LastUsed.unwritten(time.Now())
	if len(times) == 0 {
		return nil
	}
	return db.stores.SQL.TouchKeys(ctx, times)
}
