package control

import (
	"context"
	"sync"
	"time"
)

// lastUsed buffers the times of the last uses of keys until they are written to the database.
type lastUsed struct {
	mu   sync.Mutex
	used map[string]time.Time
}

// RecordUse records the use of a key of the database.
func (t *lastUsed) RecordUse(key string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.used == nil {
		t.used = map[string]time.Time{}
	}
	t.used[key] = at
}

// removeAll returns the recorded times and removes them.
func (t *lastUsed) removeAll() map[string]time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	used := t.used
	t.used = nil
	return used
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
	used := db.LastUsed.removeAll()
	if len(used) == 0 {
		return nil
	}
	return db.stores.SQL.TouchKeys(ctx, used)
}
