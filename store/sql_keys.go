package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"

	"tierway/tenants"
)

// namesChunk is the number of names in one query: SQLite's driver searches a list for each parameter.
const namesChunk = 200

func keyColumns(k *tenants.Key) []column {
	return append(rightsColumns(&k.Rights, &k.Limits),
		textColumn("id", &k.ID), textColumn("tenant", &k.Tenant), textColumn("name", &k.Name), textColumn("hint", &k.Hint),
		digestColumn("digest", &k.Digest), textColumn("created_by", &k.CreatedBy), timeColumn("created_at", &k.CreatedAt),
		timeColumn("expires_at", &k.ExpiresAt), timeColumn("revoked_at", &k.RevokedAt),
		timeColumn("last_used_at", &k.LastUsedAt),
		textColumn("replaced_by", &k.ReplacedBy), intColumn("version", &k.Version))
}

func keyWithID(ctx context.Context, tx *sql.Tx, id string) (tenants.Key, error) {
	return single(collect(ctx, tx, keyColumns, "FROM keys WHERE id = $1", clean(id)))
}

// CreateKey adds a key made by tenants.Mint and returns it as stored. It returns ErrNotFound if the
// tenant is unknown and ErrExists if the id or digest is in use.
func (s *SQL) CreateKey(ctx context.Context, a Actor, k tenants.Key) (tenants.Key, error) {
	err := s.change(ctx, a, fmt.Sprintf("creating a key of tenant %q", k.Tenant),
		func(ctx context.Context, tx *sql.Tx, now time.Time) (edit, error) {
			if _, err := tenantNamed(ctx, tx, k.Tenant, 0); err != nil {
				return edit{}, err
			}
			k = fresh(k, a, now)
			return edit{action: "key.create", target: k.ID, after: k}, insert(ctx, tx, "keys", keyColumns(&k))
		})
	return k, err
}

// fresh returns a copy of the key with the fields of a new one.
func fresh(k tenants.Key, a Actor, now time.Time) tenants.Key {
	k.CreatedBy, k.CreatedAt, k.ExpiresAt = clean(a.Name), stamp(now), stamp(k.ExpiresAt)
	k.RevokedAt, k.LastUsedAt, k.ReplacedBy = time.Time{}, time.Time{}, ""
	k.FromConfig, k.Version = false, 1
	return k
}

// UpdateKey changes name, permissions, limits and expiry of a tenant's key and returns the key as
// stored. It returns ErrNotFound if the tenant has no key of that id, and ErrConflict if the
// version is not ifVersion; 0 accepts any version.
func (s *SQL) UpdateKey(ctx context.Context, a Actor, k tenants.Key, ifVersion int64) (after tenants.Key, err error) {
	err = s.change(ctx, a, fmt.Sprintf("changing key %q of tenant %q", k.ID, k.Tenant),
		func(ctx context.Context, tx *sql.Tx, _ time.Time) (edit, error) {
			before, err := keyWithID(ctx, tx, k.ID)
			switch {
			case err != nil:
				return edit{}, err
			case before.Tenant != k.Tenant: // a caller must not learn of another tenant's keys
				return edit{}, ErrNotFound
			case ifVersion != 0 && ifVersion != before.Version:
				return edit{}, ErrConflict
			}
			after = before
			after.Name, after.Rights, after.Limits, after.ExpiresAt = k.Name, k.Rights, k.Limits, stamp(k.ExpiresAt)
			return s.replaceKey(ctx, tx, "key.update", before, &after)
		})
	return after, err
}

// replaceKey writes the next version of a key.
func (s *SQL) replaceKey(ctx context.Context, tx *sql.Tx, action string, before tenants.Key,
	after *tenants.Key) (edit, error) {
	after.Version = before.Version + 1
	// TouchKeys does not wait for changes, so the time that it has stored meanwhile must stay.
	columns := slices.DeleteFunc(keyColumns(after), func(c column) bool { return c.name == "last_used_at" })
	return edit{
		action: action,
		target: after.ID,
		before: before,
		after:  *after,
	}, update(ctx, tx, "keys", columns, "id", after.ID)
}

// RotateKey adds the key next as the successor of a key. The old key stays valid until now+overlap,
// at most until its own expiry. next comes from tenants.Mint; without an expiry it gets the
// lifetime of the old key. It takes the old key's name, permissions and limits. Both keys are
// returned as stored. RotateKey returns ErrNotFound if the key is unknown or not of next's tenant.
// It returns ErrConflict if the key is revoked, expired or replaced.
func (s *SQL) RotateKey(ctx context.Context, a Actor, id string, next tenants.Key, overlap time.Duration,
	now time.Time) (old, made tenants.Key, err error) {
	err = s.change(ctx, a, fmt.Sprintf("rotating key %q", id),
		func(ctx context.Context, tx *sql.Tx, _ time.Time) (edit, error) {
			before, err := keyWithID(ctx, tx, id)
			switch {
			case err != nil:
				return edit{}, err
			case next.Tenant != "" && next.Tenant != before.Tenant:
				return edit{}, ErrNotFound
			case !before.Valid(now) || before.ReplacedBy != "":
				return edit{}, fmt.Errorf("the key is already %s: %w", before.State(now), ErrConflict)
			}
			made = fresh(next, a, now)
			made.Tenant, made.Name, made.Rights, made.Limits = before.Tenant, before.Name, before.Rights, before.Limits
			if made.ExpiresAt.IsZero() {
				made.ExpiresAt = stamp(before.SuccessorExpiry(now))
			}
			if err := insert(ctx, tx, "keys", keyColumns(&made)); err != nil {
				return edit{}, err
			}
			old = before
			old.ReplacedBy = made.ID
			if end := stamp(now.Add(max(overlap, 0))); old.ExpiresAt.IsZero() || end.Before(old.ExpiresAt) {
				old.ExpiresAt = end
			}
			e, err := s.replaceKey(ctx, tx, "key.rotate", before, &old)
			e.after = map[string]tenants.Key{"old": old, "new": made}
			return e, err
		})
	return old, made, err
}

// RevokeKey revokes a key permanently and returns it as stored. A revoked key stays unchanged. It
// returns ErrNotFound if the key is unknown.
func (s *SQL) RevokeKey(ctx context.Context, a Actor, id, reason string, now time.Time) (after tenants.Key, err error) {
	err = s.change(ctx, a, fmt.Sprintf("revoking key %q", id),
		func(ctx context.Context, tx *sql.Tx, _ time.Time) (edit, error) {
			before, err := keyWithID(ctx, tx, id)
			after = before
			if err != nil || !before.RevokedAt.IsZero() {
				return edit{}, err
			}
			after.RevokedAt = stamp(now)
			e, err := s.replaceKey(ctx, tx, "key.revoke", before, &after)
			if err == nil {
				_, err = tx.ExecContext(ctx, "UPDATE keys SET revoked_reason = $1 WHERE id = $2", clean(reason), after.ID)
			}
			e.after = struct {
				tenants.Key
				Reason string `json:"reason,omitempty"`
			}{after, reason}
			return e, err
		})
	return after, err
}

// KeyLastUsed returns when a key was last used, to the minute; zero: never.
func (s *SQL) KeyLastUsed(ctx context.Context, id string) (time.Time, error) {
	ctx, done := context.WithTimeout(ctx, searchTimeout)
	defer done()
	at, err := single(collect(ctx, s.read, func(at *time.Time) []column {
		return []column{timeColumn("last_used_at", at)}
	}, "FROM keys WHERE id = $1", clean(id)))
	return at, s.fail(ctx, "reading when a key was used", err)
}

// TouchKeys stores when keys were last used, by id, to the minute. A stored time never goes back.
// Unknown ids are ignored. The revision stays unchanged.
func (s *SQL) TouchKeys(ctx context.Context, used map[string]time.Time) error {
	ctx, done := bounded(ctx, usualTimeout)
	defer done()
	err := s.transact(ctx, func(tx *sql.Tx) error {
		update, err := tx.PrepareContext(ctx, "UPDATE keys SET last_used_at = $1 WHERE id = $2 AND last_used_at < $1")
		if err != nil {
			return err
		}
		defer update.Close() // the transaction reports errors
		// A fixed order, so that two gateways cannot deadlock on each other's rows.
		for _, id := range slices.Sorted(maps.Keys(used)) {
			at := micros(used[id].UTC().Truncate(time.Minute))
			if _, err := update.ExecContext(ctx, at, clean(id)); err != nil {
				return err
			}
		}
		return nil
	})
	return s.fail(ctx, "noting when keys were used", err)
}
