package control

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"tierway/config"
	"tierway/store"
	"tierway/tenants"
)

// Identity is the directory of tenants and admins, from config.yaml and the database. It is
// immutable; a change of either makes another, which shares with it what is unchanged.
type Identity struct {
	Directory *tenants.Directory
	ReadAt    time.Time // when all of the database was first read; zero: never, so any unknown key may be valid
	Revision  int64     // changes with every change of the database, on any gateway; 0 without a database

	fileAdmins   []store.Admin // of config.yaml
	storedAdmins []store.Admin // of the database
	overrides    []store.Override
	admins       map[[sha256.Size]byte]*store.Admin // all of them, by the key's digest
	repeaterKey  string                             // learning.replay.api_key
	repeater     *tenants.Caller                    // of that key; nil without one
}

// newIdentity returns the directory with the tenants and admins of the configuration, and with what was has of the
// database. was may be nil.
func newIdentity(f *config.File, was *Identity) (*Identity, error) {
	ts, ks, err := tenants.FromConfig(f.Auth.Keys)
	if err != nil {
		return nil, fmt.Errorf("reading auth.keys: %w", err)
	}
	mine, digests, err := tenants.FromConfig(adminKeys(f.Admin.Keys))
	if err != nil || len(mine) > 1 {
		return nil, fmt.Errorf("reading admin.keys: %w", err)
	}
	p := &Identity{repeaterKey: f.Learning.Replay.APIKey}
	if was == nil {
		p.Directory = tenants.NewDirectory(ts, ks)
	} else {
		p.Directory = was.Directory.WithFile(ts, ks)
		p.ReadAt, p.Revision, p.storedAdmins, p.overrides = was.ReadAt, was.Revision, was.storedAdmins, was.overrides
	}
	for i, k := range digests {
		role := f.Admin.Keys[i].Role
		if role == "" {
			role = store.RoleAdmin
		}
		p.fileAdmins = append(p.fileAdmins, store.Admin{
			ID:     k.ID,
			Name:   f.Admin.Keys[i].Name,
			Role:   role,
			Hint:   "config.yaml",
			Digest: k.Digest,
		})
	}
	p.index()
	return p, nil
}

// index sets the fields that follow from the others.
func (p *Identity) index() {
	p.admins = make(map[[sha256.Size]byte]*store.Admin, len(p.storedAdmins)+len(p.fileAdmins))
	for _, some := range [][]store.Admin{p.storedAdmins, p.fileAdmins} {
		for i := range some {
			p.admins[some[i].Digest] = &some[i]
		}
	}
	p.repeater = nil
	if p.repeaterKey != "" {
		// An error leaves a key that authenticates no request. No key has expired at the zero time.
		p.repeater, _ = p.Directory.Authenticate(p.repeaterKey, time.Time{})
	}
}

// adminKeys returns the keys of the admin plane in the form that tenants.FromConfig checks.
func adminKeys(keys []config.AdminKey) []tenants.KeyConfig {
	out := make([]tenants.KeyConfig, len(keys))
	for i, k := range keys {
		out[i] = tenants.KeyConfig{Name: "admin", SHA256: k.SHA256} // names of admins have other rules
	}
	return out
}

// Admins returns all admins, in no order.
func (p *Identity) Admins() []store.Admin { return slices.Concat(p.fileAdmins, p.storedAdmins) }

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
	admin := p.admins[digest]
	if admin == nil || !admin.ExpiresAt.IsZero() && !now.Before(admin.ExpiresAt) {
		return store.Admin{}, false
	}
	return *admin, true
}
