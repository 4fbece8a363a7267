package admin

import (
	"context"
	"crypto/rand"
	"errors"
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

func (a *Plane) key(id string) (tenants.Key, error) {
	_, ks := a.control.Snapshot().Identity.Tenants()
	return find(ks, "key", id, func(k tenants.Key) bool { return k.ID == id })
}

// changeTenant changes a tenant of the database by f, at the version that If-Match asks for.
func (a *Plane) changeTenant(ctx context.Context, name, ifMatch string, f func(tenants.Tenant) (tenants.Tenant, error)) (tenants.Tenant, error) {
	return changeStored(ctx, a, ifMatch, func() (tenants.Tenant, stored, error) {
		t, err := a.tenant(name)
		return t, stored{"tenant", name, t.FromConfig, t.Version}, err
	}, f)
}

// changeKey changes a key of the database by f, at the version that If-Match asks for.
func (a *Plane) changeKey(ctx context.Context, id, ifMatch string, f func(tenants.Key) (tenants.Key, error)) (tenants.Key, error) {
	return changeStored(ctx, a, ifMatch, func() (tenants.Key, stored, error) {
		k, err := a.key(id)
		return k, stored{"key", id, k.FromConfig, k.Version}, err
	}, f)
}

// changeStored changes by f what find finds in memory, which another gateway may have
// changed since. With If-Match the change fails then; without, the database is read again
// and the change repeated.
func changeStored[T any](ctx context.Context, a *Plane, ifMatch string, find func() (T, stored, error), f func(T) (T, error)) (made T, err error) {
	match, err := tagOf(ifMatch)
	if err != nil {
		return made, err
	}
	if match == 0 { // what stands in config.yaml has version 0, and is not changed here
		return made, store.ErrConflict
	}
	a.changing.Lock()
	defer a.changing.Unlock()
	const tries = 3 // each loses only to another gateway's change in the same millisecond
	for range tries {
		v, is, err := find()
		if err == nil && !is.fromConfig && match != anyVersion {
			if err = a.control.Database.Read(ctx); err == nil {
				v, is, err = find()
			}
		}
		switch {
		case err != nil:
			return made, err
		case is.fromConfig:
			return made, fromConfig(is.what, is.name)
		case !match.is(is.version):
			return made, store.ErrConflict
		}
		if made, err = f(v); err == nil {
			a.control.Database.Changed(ctx)
			return made, nil
		}
		if !errors.Is(err, store.ErrConflict) || match != anyVersion {
			return made, err
		}
		if err = a.control.Database.Read(ctx); err != nil {
			return made, err
		}
	}
	return made, store.ErrConflict
}

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
