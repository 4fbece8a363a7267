package control

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// lastUsed has the times of the last uses of keys on this gateway, until they are in the database.
type lastUsed struct {
	mu   sync.Mutex
	uses map[string]time.Time // by the key's id
}

// RecordUse records the use of a key of the database.
func (t *lastUsed) RecordUse(key string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.uses == nil {
		t.uses = map[string]time.Time{}
	}
	t.uses[key] = at
}

// At returns the time of the last use of a key on this gateway; zero if it is in the database by now.
func (t *lastUsed) At(key string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.uses[key]
}

// all returns a copy of the times.
func (t *lastUsed) all() map[string]time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.uses)
}

// forget removes times that were written, unless a key was used again.
func (t *lastUsed) forget(written map[string]time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.uses, func(key string, at time.Time) bool { return at.Equal(written[key]) })
}

// usesChunk is the number of times that one transaction writes: a few milliseconds, because revocations wait for it.
const usesChunk = 200

// flushLastUsed writes the recorded times when the gateway ends.
func (db *Database) flushLastUsed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second) // not worth a longer wait
	defer cancel()
	if err := db.writeLastUsed(ctx); err != nil {
		db.log.Debug("writing the last use of keys failed", "cause", err.Error())
	}
}

// writeLastUsed writes the recorded times.
func (db *Database) writeLastUsed(ctx context.Context) error {
	times := db.LastUsed.all()
	if len(times) == 0 {
		return nil
	}
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(times)), usesChunk) {
		part := make(map[string]time.Time, len(ids))
		for _, id := range ids {
			part[id] = times[id]
		}
		if err := db.stores.SQL.TouchKeys(ctx, part); err != nil {
			return err
		}
		db.LastUsed.forget(part)
	}
	return nil
}
