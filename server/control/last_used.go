package control

import (
	"context"
	"sync"
	"time"
)

// lastUsed is when keys were last used, until that is written to the database.
type lastUsed struct {
	mu   sync.Mutex
	used map[string]time.Time
}

// NoteUse records the use of a key of the database.
func (t *lastUsed) NoteUse(key string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.used == nil {
		t.used = map[string]time.Time{}
	}
	t.used[key] = at
}

// takeAll returns what was recorded since its last call.
func (t *lastUsed) takeAll() map[string]time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	used := t.used
	t.used = nil
	return used
}

// lastTouches writes at the end what was not yet written.
func (db *Database) lastTouches(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second) // a minute's precision is worth no more
	defer cancel()
	if err := db.writeTouches(ctx); err != nil {
		db.log.Debug("writing the last use of keys failed", "cause", err.Error())
	}
}

// writeTouches writes when keys were last used. What could not be written is recorded
// again by the key's next use.
func (db *Database) writeTouches(ctx context.Context) error {
	used := db.LastUsed.takeAll()
	if len(used) == 0 {
		return nil
	}
	return db.stores.SQL.TouchKeys(ctx, used)
}
