package tenants

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/tidwall/btree"
)

// Directory has the tenants and keys of config.yaml and of the database. It is immutable, and safe for concurrent use.
// With and WithFile make another one that shares with it what they do not change; they must not run concurrently on
// one directory. If both sources have a tenant of one name, the settings of config.yaml apply to the keys of both.
type Directory struct {
	file *fileSection

	tenants *btree.Map[string, *tenantRow] // of the database, by name
	ids     *btree.Map[string, *keyRow]    // all keys of the database, by id
	digests *btree.Map[uint64, *keyRow]    // those that are not revoked, by the first bytes of the digest
	equal   *btree.Map[string, *keyRow]    // further keys with equal first bytes, by the digest
}

// fileSection has the tenants and keys of config.yaml.
type fileSection struct {
	tenants []*tenantRow
	keys    []*keyRow
	byName  map[string]*tenantRow
	byID    map[string]*keyRow
	digests map[[sha256.Size]byte]*keyRow
}

// Changes are tenants and keys of the database that have changed.
type Changes struct {
	Tenants     []Tenant // as they are now
	Keys        []Key    // as they are now
	GoneTenants []string // deleted, before Tenants was read
	GoneKeys    []string // ids of deleted keys, before Keys was read
}

// NewDirectory returns a directory without the database's tenants and keys.
func NewDirectory(ts []Tenant, ks []Key) *Directory {
	d := &Directory{
		tenants: btree.NewMap[string, *tenantRow](0),
		ids:     btree.NewMap[string, *keyRow](0),
		digests: btree.NewMap[uint64, *keyRow](0),
		equal:   btree.NewMap[string, *keyRow](0),
	}
	return d.WithFile(ts, ks)
}

// WithFile returns the directory with these tenants and keys of config.yaml, in place of the earlier ones.
func (d *Directory) WithFile(ts []Tenant, ks []Key) *Directory {
	f := &fileSection{byName: map[string]*tenantRow{}, byID: map[string]*keyRow{},
		digests: map[[sha256.Size]byte]*keyRow{}}
	for _, t := range ts {
		row := newTenantRow(t)
		f.tenants, f.byName[t.Name] = append(f.tenants, row), row
	}
	for _, k := range ks {
		row := newKeyRow(k)
		f.keys, f.byID[k.ID] = append(f.keys, row), row
		if row.revoked == 0 {
			f.digests[k.Digest] = row
		}
		if t := f.byName[k.Tenant]; t != nil && k.FromConfig {
			t.since ^= int64(binary.BigEndian.Uint64(k.Digest[:])) // in any order
		}
	}
	next := *d
	next.file = f
	return &next
}

// With returns the directory with the changes of the database. It copies what they touch: a change costs the same in
// a directory of any size, but for the logarithm.
func (d *Directory) With(c *Changes) *Directory {
	next := &Directory{file: d.file, tenants: d.tenants.Copy(), ids: d.ids.Copy(), digests: d.digests.Copy(),
		equal: d.equal.Copy()}
	next.Add(c)
	return next
}

// Add makes the changes in d itself, which nothing else may use yet. It saves the copies of With while a directory is
// read for the first time.
func (d *Directory) Add(c *Changes) {
	for _, name := range c.GoneTenants {
		d.tenants.Delete(name)
	}
	for _, id := range c.GoneKeys {
		d.removeKey(id)
	}
	for _, t := range c.Tenants {
		d.tenants.Set(t.Name, newTenantRow(t))
	}
	for _, k := range c.Keys {
		d.removeKey(k.ID)
		d.addKey(newKeyRow(k))
	}
}

func (d *Directory) addKey(row *keyRow) {
	d.ids.Set(row.id, row)
	if row.revoked != 0 {
		return
	}
	if _, taken := d.digests.Get(row.prefix()); taken {
		d.equal.Set(string(row.digest[:]), row)
	} else {
		d.digests.Set(row.prefix(), row)
	}
}

func (d *Directory) removeKey(id string) {
	row, known := d.ids.Delete(id)
	if !known {
		return
	}
	if first, _ := d.digests.Get(row.prefix()); first == row {
		d.digests.Delete(row.prefix())
	} else {
		d.equal.Delete(string(row.digest[:]))
	}
}

// Departed returns the tenants and keys of d that next does not have, of those that the changes name and of those of
// config.yaml.
func (d *Directory) Departed(next *Directory, c *Changes) (all []Subject) {
	add := func(tenant, key string) {
		if !next.Knows(tenant, key) {
			all = append(all, Subject{Tenant: tenant, Key: key})
		}
	}
	for _, row := range d.file.tenants {
		add(row.Name, "")
	}
	for _, row := range d.file.keys {
		add(row.tenant, row.id)
	}
	for _, name := range c.GoneTenants {
		add(name, "")
	}
	for _, id := range c.GoneKeys {
		if row := d.keyRow(id); row != nil {
			add(row.tenant, id)
		}
	}
	for i := range c.Keys {
		add(c.Keys[i].Tenant, c.Keys[i].ID)
	}
	return all
}

// Removal returns the changes that remove all tenants and keys of the database.
func (d *Directory) Removal() *Changes {
	return &Changes{GoneTenants: d.tenants.Keys(), GoneKeys: d.ids.Keys()}
}

// Withdrawals returns the changes that may withdraw rights from tenants and keys of d: deletions, disabled tenants, and
// keys that are revoked or expire.
func (d *Directory) Withdrawals(c *Changes) Changes {
	w := Changes{GoneTenants: c.GoneTenants, GoneKeys: c.GoneKeys}
	for i := range c.Tenants {
		if t := &c.Tenants[i]; t.Disabled && d.tenantRow(t.Name) != nil {
			w.Tenants = append(w.Tenants, *t)
		}
	}
	for i := range c.Keys {
		if k := &c.Keys[i]; (!k.RevokedAt.IsZero() || !k.ExpiresAt.IsZero()) && d.keyRow(k.ID) != nil {
			w.Keys = append(w.Keys, *k)
		}
	}
	return w
}

// Errors of Authenticate. Unknown, malformed, expired and revoked keys get the same error.
var (
	ErrUnknownKey = errors.New("the key is not known")
	ErrDisabled   = errors.New("the tenant is disabled")
)

// Authenticate returns the caller of a key. A malformed key with the gateway's own prefix is
// refused without a lookup. Keys are looked up by digest, so that the response time reveals
// nothing about a partly correct guess. With ErrDisabled, the caller is returned too.
func (d *Directory) Authenticate(key string, now time.Time) (*Caller, error) {
	if strings.HasPrefix(key, TenantPrefix) && !WellFormed(key) {
		return nil, ErrUnknownKey
	}
	return d.validCaller(d.withDigest(Digest(key)), now)
}

// withDigest returns the key with that digest, or nil. The digests are compared in constant time.
func (d *Directory) withDigest(digest [sha256.Size]byte) *keyRow {
	row := d.file.digests[digest]
	if row == nil {
		row, _ = d.digests.Get(binary.BigEndian.Uint64(digest[:]))
	}
	if row != nil && subtle.ConstantTimeCompare(row.digest[:], digest[:]) == 1 {
		return row
	}
	if d.equal.Len() == 0 {
		return nil
	}
	row, _ = d.equal.Get(string(digest[:]))
	return row
}

// Caller returns the caller of the key with that id, with the errors of Authenticate. A key of another tenant is
// unknown.
func (d *Directory) Caller(tenant, key string, now time.Time) (*Caller, error) {
	row := d.keyRow(key)
	if row == nil || row.tenant != tenant || row.revoked != 0 {
		return nil, ErrUnknownKey
	}
	return d.validCaller(row, now)
}

// validCaller returns the caller of a key that is not revoked, with the errors of Authenticate. row may be nil.
func (d *Directory) validCaller(row *keyRow, now time.Time) (*Caller, error) {
	if row == nil {
		return nil, ErrUnknownKey
	}
	t := d.tenantRow(row.tenant)
	if t == nil {
		return nil, ErrUnknownKey
	}
	return row.caller(t).checkValidity(now)
}

// FormerCaller returns the caller of the key with that id, which may have expired or be revoked; nil if it is unknown.
func (d *Directory) FormerCaller(tenant, key string) *Caller {
	row, t := d.keyRow(key), d.tenantRow(tenant)
	if row == nil || t == nil || row.tenant != tenant {
		return nil
	}
	return row.caller(t)
}

// tenantRow returns the tenant of that name, or nil.
func (d *Directory) tenantRow(name string) *tenantRow {
	if t := d.file.byName[name]; t != nil {
		return t
	}
	t, _ := d.tenants.Get(name)
	return t
}

// keyRow returns the key with that id, or nil.
func (d *Directory) keyRow(id string) *keyRow {
	if k := d.file.byID[id]; k != nil {
		return k
	}
	k, _ := d.ids.Get(id)
	return k
}

// Tenant returns the tenant of that name.
func (d *Directory) Tenant(name string) (t Tenant, known bool) {
	if row := d.tenantRow(name); row != nil {
		return row.Tenant, true
	}
	return t, false
}

// Key returns the key with that id, which may have expired or be revoked.
func (d *Directory) Key(id string) (k Key, known bool) {
	if row := d.keyRow(id); row != nil {
		return row.key(), true
	}
	return k, false
}

// Tenants returns all tenants, first those of config.yaml.
func (d *Directory) Tenants() iter.Seq[Tenant] {
	return func(yield func(Tenant) bool) {
		for _, row := range d.file.tenants {
			if !yield(row.Tenant) {
				return
			}
		}
		d.tenants.Scan(func(name string, row *tenantRow) bool {
			return d.file.byName[name] != nil || yield(row.Tenant)
		})
	}
}

// FileKeys returns the keys of config.yaml.
func (d *Directory) FileKeys() iter.Seq[Key] {
	return func(yield func(Key) bool) {
		for _, row := range d.file.keys {
			if !yield(row.key()) {
				return
			}
		}
	}
}

// StoredKeys returns the keys of the database, also expired and revoked ones, by id.
func (d *Directory) StoredKeys() iter.Seq[Key] {
	return func(yield func(Key) bool) {
		d.ids.Scan(func(_ string, row *keyRow) bool { return yield(row.key()) })
	}
}

// SpecialKeys returns the keys that narrow the rights or limits of their tenants, or that expire: a few of many.
func (d *Directory) SpecialKeys() iter.Seq[Key] {
	return func(yield func(Key) bool) {
		d.ids.Scan(func(_ string, row *keyRow) bool {
			return row.scope == nil && row.expires == 0 || yield(row.key())
		})
	}
}

// Stored returns the number of tenants and keys of the database.
func (d *Directory) Stored() (tenants, keys int) { return d.tenants.Len(), d.ids.Len() }

// Knows reports whether the tenant exists, and the key with that id, not revoked, unless it is empty.
func (d *Directory) Knows(tenant, key string) bool {
	if d.tenantRow(tenant) == nil {
		return false
	}
	row := d.keyRow(key)
	return key == "" || row != nil && row.tenant == tenant && row.revoked == 0
}

// Format prints the number of keys, whatever the verb, and keeps digests out of logs.
func (d *Directory) Format(s fmt.State, _ rune) {
	_, _ = io.WriteString(s, fmt.Sprintf("%d keys", len(d.file.keys)+d.ids.Len()))
}
