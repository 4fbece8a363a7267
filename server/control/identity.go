package control

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tierway/config"
	"tierway/store"
	"tierway/tenants"
)

// Identity is the directory of tenants and admins, from config.yaml and the database. It is
// immutable; a change of either makes another.
type Identity struct {
	Directory *tenants.Directory
	admins    map[[sha256.Size]byte]store.Admin // by the key's digest
	own       []tenants.Tenant                  // of config.yaml
	ownKeys   []tenants.Key                     // of config.yaml
	contents  store.Contents                    // of the database
	repeater  *tenants.Caller                   // of learning.replay.api_key; nil without one
	ReadAt    time.Time                         // when contents was read; zero: never, so any unknown key may be valid
}

// newIdentity combines the tenants and admins of the configuration and of the database.
func newIdentity(f *config.File, c store.Contents, readAt time.Time) (*Identity, error) {
	ts, ks, err := tenants.FromConfig(f.Auth.Keys)
	if err != nil {
		return nil, fmt.Errorf("reading auth.keys: %w", err)
	}
	p := &Identity{own: ts, ownKeys: ks, contents: c, ReadAt: readAt, admins: map[[sha256.Size]byte]store.Admin{}}
	for _, a := range c.Admins {
		p.admins[a.Digest] = a
	}
	mine, digests, err := tenants.FromConfig(adminKeys(f.Admin.Keys))
	if err != nil || len(mine) > 1 {
		return nil, fmt.Errorf("reading admin.keys: %w", err)
	}
	for i, k := range digests {
		role := f.Admin.Keys[i].Role
		if role == "" {
			role = store.RoleAdmin
		}
		p.admins[k.Digest] = store.Admin{
			ID:     k.ID,
			Name:   f.Admin.Keys[i].Name,
			Role:   role,
			Hint:   "config.yaml",
			Digest: k.Digest,
		}
	}
	all, keys := p.Tenants()
	p.Directory = tenants.NewDirectory(all, keys)
	if key := f.Learning.Replay.APIKey; key != "" {
		// An error leaves a key that authenticates no request. No key has expired at the zero time.
		p.repeater, _ = p.Directory.Authenticate(key, time.Time{})
	}
	return p, nil
}

// adminKeys returns the keys of the admin plane in the form that tenants.FromConfig checks.
func adminKeys(keys []config.AdminKey) []tenants.KeyConfig {
	out := make([]tenants.KeyConfig, len(keys))
	for i, k := range keys {
		out[i] = tenants.KeyConfig{Name: "admin", SHA256: k.SHA256} // names of admins have other rules
	}
	return out
}

// Tenants returns all tenants and keys in force. If config.yaml and the database both have a
// tenant of one name, the file's settings apply to the keys of both.
func (p *Identity) Tenants() ([]tenants.Tenant, []tenants.Key) {
	ts := append([]tenants.Tenant(nil), p.own...)
	mine := make(map[string]bool, len(p.own))
	for _, t := range p.own {
		mine[t.Name] = true
	}
	for _, t := range p.contents.Tenants {
		if !mine[t.Name] {
			ts = append(ts, t)
		}
	}
	return ts, append(append([]tenants.Key(nil), p.ownKeys...), p.contents.Keys...)
}

// Revision returns a number that changes with every change of the database's tenants, keys, admins and
// overrides, on any gateway. It is 0 without a database.
func (p *Identity) Revision() int64 { return p.contents.Revision }

// Admins returns all admins, in no order.
func (p *Identity) Admins() []store.Admin { return slices.Collect(maps.Values(p.admins)) }

// applyContents puts the contents of the database in force, with the live overrides, unless a read that
// began later was applied before.
func (ctl *Control) applyContents(c store.Contents, readAt time.Time) error {
	ctl.applying.Lock()
	defer ctl.applying.Unlock()
	if readAt.Before(ctl.Snapshot().Identity.ReadAt) {
		return nil
	}
	p, err := newIdentity(ctl.Snapshot().Base, c, readAt)
	if err != nil {
		return err
	}
	ctl.amend(func(snap *Snapshot) { snap.Identity = p })
	ctl.Stores.Limiter.Forget(p.Directory.Knows)
	ctl.applied(ctl.Snapshot().File)
	ctl.Bootstrap.announceWithoutAdmin(p)
	return ctl.applyOverrides()
}

// rankEvery is the interval at which the tenants with their own metric series are selected.
const rankEvery = time.Minute

// rankTenants selects the tenants with their own metric series, by traffic, until done is closed.
func (ctl *Control) rankTenants(done <-chan struct{}) {
	ctl.Recoverer.Every(rankEvery, done, "ranking tenants", func(now time.Time) {
		directory := ctl.Snapshot().Identity.Directory
		ctl.metrics.RankTenants(now, func(tenant string) bool {
			return directory.Knows(tenant, "") || tenant == tenants.Anonymous().Tenant
		})
	})
}

// AdminOf returns the admin with that key, and whether the key is valid now. Keys are looked
// up by digest; a malformed key with this gateway's prefix is never valid.
func (p *Identity) AdminOf(key string, now time.Time) (store.Admin, bool) {
	if key == "" || strings.HasPrefix(key, tenants.TenantPrefix) && !tenants.WellFormed(key) {
		return store.Admin{}, false
	}
	return p.AdminWith(tenants.Digest(key), now)
}

// AdminWith is AdminOf by the key's digest.
func (p *Identity) AdminWith(digest [sha256.Size]byte, now time.Time) (store.Admin, bool) {
	admin, known := p.admins[digest]
	if !known || !admin.ExpiresAt.IsZero() && !now.Before(admin.ExpiresAt) {
		return store.Admin{}, false
	}
	return admin, true
}
