package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"tierway/store"
	"tierway/tenants"
)

// stored is the state of a tenant or key that decides whether it may be changed.
type stored struct {
	what, name string
	fromConfig bool
	version    int64
}

// key returns the key of an id.
func (a *Plane) key(id string) (tenants.Key, error) {
	_, ks := a.control.Snapshot().Identity.Tenants()
	i := slices.IndexFunc(ks, func(k tenants.Key) bool { return k.ID == id })
	if i < 0 {
		return tenants.Key{}, notFound("key", id)
	}
	return ks[i], nil
}

// changeTenant changes a tenant of the database by f, at the version that If-Match asks for.
func (a *Plane) changeTenant(ctx context.Context, name, ifMatch string, f func(tenants.Tenant) error) error {
	var t tenants.Tenant
	return a.changeDirectory(ctx, ifMatch, func() (is stored, err error) {
		t, err = a.tenant(name)
		return stored{"tenant", name, t.FromConfig, t.Version}, err
	}, func() error { return f(t) })
}

// changeKey changes a key of the database by f, at the version that If-Match asks for.
func (a *Plane) changeKey(ctx context.Context, id, ifMatch string, f func(tenants.Key) error) error {
	var k tenants.Key
	return a.changeDirectory(ctx, ifMatch, func() (is stored, err error) {
		k, err = a.key(id)
		return stored{"key", id, k.FromConfig, k.Version}, err
	}, func() error { return f(k) })
}

// changeDirectory makes a change by f of what find finds in memory, which another gateway may have
// changed since. With If-Match the change fails then; without, the database is read again
// and the change repeated.
func (a *Plane) changeDirectory(ctx context.Context, ifMatch string, find func() (stored, error), f func() error) error {
	match, err := tagOf(ifMatch)
	if err != nil {
		return err
	}
	if match == (tag{}) { // what stands in config.yaml has version 0, and is not changed here
		return store.ErrConflict
	}
	a.changing.Lock()
	defer a.changing.Unlock()
	const tries = 3 // each loses only to another gateway's change in the same millisecond
	for range tries {
		is, err := find()
		if err == nil && !is.fromConfig && !match.any {
			if err = a.control.Database.Read(ctx); err == nil {
				is, err = find()
			}
		}
		switch {
		case err != nil:
			return err
		case is.fromConfig:
			return fromConfig(is.what, is.name)
		case !match.is(is.version):
			return store.ErrConflict
		}
		if err = f(); err == nil {
			a.control.Database.Changed(ctx)
			return nil
		}
		if !errors.Is(err, store.ErrConflict) || !match.any {
			return err
		}
		if err = a.control.Database.Read(ctx); err != nil {
			return err
		}
	}
	return store.ErrConflict
}

// mint makes a key and stores what may be known of it.
func (a *Plane) mint(ctx context.Context, k tenants.Key) (tenants.Key, string, error) {
	secret, made, err := tenants.Mint(rand.Reader, k.Tenant)
	if err != nil {
		return k, "", err
	}
	k.ID, k.Hint, k.Digest, k.CreatedBy = made.ID, made.Hint, made.Digest, actorOf(ctx).Name
	k, err = a.control.Stores.SQL.CreateKey(ctx, actorOf(ctx), k)
	return k, secret, err
}

// usedNow asks the limiter of this process, which knows at least what passed
// through it.
func (a *Plane) usedNow(tenant, key string, now time.Time) *usedNow {
	local := a.control.Stores.Limiter
	day, month := local.Spent(tenant, key, now)
	return &usedNow{Inflight: local.Inflight(tenant, key), Day: spentView(day), Month: spentView(month)}
}
