package tenants

import (
	"crypto/sha256"
	"encoding/binary"
	"reflect"
	"sync/atomic"
	"time"
)

// tenantRow is a tenant in a directory. It is immutable.
type tenantRow struct {
	Tenant
	since int64 // see Caller.Since
}

func newTenantRow(t Tenant) *tenantRow {
	row := &tenantRow{Tenant: t}
	if !t.FromConfig && !t.CreatedAt.IsZero() {
		row.since = t.CreatedAt.UnixNano()
	}
	return row
}

// keyRow is a key in a directory, in less memory than a Key. It is immutable but for the caller that it keeps.
type keyRow struct {
	digest           [sha256.Size]byte
	id, tenant       string
	name, hint       string
	createdBy        string
	replacedBy       string
	created          int64 // this and the next two in microseconds since 1970; 0: none
	expires, revoked int64
	version          int64
	scope            *keyScope // nil: narrows nothing
	fromConfig       bool
	kept             atomic.Pointer[keptCaller]
}

// keyScope is what a key narrows of its tenant's rights and limits.
type keyScope struct {
	rights Rights
	limits Limits
}

// keptCaller is the caller of a key under one version of its tenant.
type keptCaller struct {
	tenant *tenantRow
	caller *Caller
}

func newKeyRow(k Key) *keyRow {
	row := &keyRow{digest: k.Digest, id: k.ID, tenant: k.Tenant, name: k.Name, hint: k.Hint, createdBy: k.CreatedBy,
		replacedBy: k.ReplacedBy, created: unixMicros(k.CreatedAt), expires: unixMicros(k.ExpiresAt),
		revoked: unixMicros(k.RevokedAt), version: k.Version, fromConfig: k.FromConfig}
	if scope := (keyScope{k.Rights, k.Limits}); !reflect.ValueOf(scope).IsZero() {
		row.scope = &scope
	}
	return row
}

// key returns the row as a Key, without the time of its last use.
func (r *keyRow) key() Key {
	k := Key{ID: r.id, Tenant: r.tenant, Name: r.name, Hint: r.hint, Digest: r.digest, CreatedBy: r.createdBy,
		ReplacedBy: r.replacedBy, CreatedAt: instant(r.created), ExpiresAt: instant(r.expires),
		RevokedAt: instant(r.revoked), Version: r.version, FromConfig: r.fromConfig}
	if r.scope != nil {
		k.Rights, k.Limits = r.scope.rights, r.scope.limits
	}
	return k
}

// prefix returns the first bytes of the digest.
func (r *keyRow) prefix() uint64 { return binary.BigEndian.Uint64(r.digest[:]) }

// caller returns the caller of the key, a key of t. It is made once for each version of the tenant.
func (r *keyRow) caller(t *tenantRow) *Caller {
	if kept := r.kept.Load(); kept != nil && kept.tenant == t {
		return kept.caller
	}
	c := NewCaller(t.Tenant, r.key())
	c.expires, c.Since = instant(r.expires), t.since
	r.kept.Store(&keptCaller{t, c})
	return c
}

// unixMicros returns a time in microseconds since 1970; 0 for the zero time.
func unixMicros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// instant returns the time of unixMicros, in UTC.
func instant(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
