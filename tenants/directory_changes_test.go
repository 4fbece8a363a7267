package tenants

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	_ "tierway/fixedseed"
)

// model is a directory of the database's tenants and keys as plain maps.
type model struct {
	tenants map[string]Tenant
	keys    map[string]Key
}

func (m model) clone() model { return model{maps.Clone(m.tenants), maps.Clone(m.keys)} }

// apply applies the changes.
func (m model) apply(c Changes) {
	for _, name := range c.GoneTenants {
		delete(m.tenants, name)
	}
	for _, id := range c.GoneKeys {
		delete(m.keys, id)
	}
	for _, t := range c.Tenants {
		m.tenants[t.Name] = t
	}
	for _, k := range c.Keys {
		m.keys[k.ID] = k
	}
}

// check compares a directory with the model.
func (m model) check(t *rapid.T, d *Directory) {
	t.Helper()
	if ts, ks := d.Stored(); ts != len(m.tenants) || ks != len(m.keys) {
		t.Fatalf("%d tenants and %d keys, want %d and %d", ts, ks, len(m.tenants), len(m.keys))
	}
	names := slices.Sorted(maps.Keys(m.tenants))
	var got []string
	for tenant := range d.Tenants() {
		got = append(got, tenant.Name)
	}
	if !slices.Equal(got, names) {
		t.Fatalf("the tenants are %v, want %v", got, names)
	}
	var ids []string
	for k := range d.StoredKeys() {
		ids = append(ids, k.ID)
		if diff := cmp.Diff(m.keys[k.ID], k, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("key %s (-want +got):\n%s", k.ID, diff)
		}
	}
	if want := slices.Sorted(maps.Keys(m.keys)); !slices.Equal(ids, want) {
		t.Fatalf("the keys are %v, want %v", ids, want)
	}
	for id, k := range m.keys {
		tenant, there := m.tenants[k.Tenant]
		usable := there && k.RevokedAt.IsZero()
		c, err := d.validCaller(d.withDigest(k.Digest), noon())
		if (c != nil) != usable || (err == nil) != (usable && !tenant.Disabled) || d.Knows(k.Tenant, id) != usable {
			t.Fatalf("key %s of %+v: caller %v, error %v", id, tenant, c, err)
		}
		if c != nil && (c.Key != id || c.Weight != tenant.Weight || c.Since != tenant.CreatedAt.UnixNano()) {
			t.Fatalf("key %s has the caller %+v under %+v", id, c, tenant)
		}
	}
}

// TestDirectoryIsTheSumOfItsChanges: each directory has the tenants and keys of all changes before it, and none of
// those after it. Few digests share their first bytes.
func TestDirectoryIsTheSumOfItsChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			directory *Directory
			model     model
		}
		all := []version{{NewDirectory(nil, nil), model{map[string]Tenant{}, map[string]Key{}}}}
		digests := map[string]uint64{} // never two keys with one digest
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			var c Changes
			for range rapid.IntRange(1, 6).Draw(t, "changes") {
				n := rapid.IntRange(0, 5).Draw(t, "number")
				switch rapid.IntRange(0, 3).Draw(t, "kind") {
				case 0:
					c.Tenants = append(c.Tenants, Tenant{Name: fmt.Sprint("t", n), Disabled: rapid.Bool().Draw(t, "disabled"),
						Weight: rapid.IntRange(1, 9).Draw(t, "weight"), CreatedAt: noon().Add(time.Duration(n))})
				case 1:
					k := Key{ID: fmt.Sprint("k", n), Tenant: fmt.Sprint("t", n/2), Name: "n", Version: 3}
					if _, known := digests[k.ID]; !known {
						digests[k.ID] = uint64(n % 2)
					}
					binary.BigEndian.PutUint64(k.Digest[:], digests[k.ID]) // shared by half of the keys
					k.Digest[31] = byte(n)
					if rapid.Bool().Draw(t, "revoked") {
						k.RevokedAt = noon()
					}
					if rapid.Bool().Draw(t, "narrowed") {
						k.Limits.RPM, k.Tiers = 7, []string{"small"}
					}
					c.Keys = append(c.Keys, k)
				case 2:
					c.GoneTenants = append(c.GoneTenants, fmt.Sprint("t", n))
				default:
					c.GoneKeys = append(c.GoneKeys, fmt.Sprint("k", n))
				}
			}
			last := all[len(all)-1]
			next := version{last.directory.With(&c), last.model.clone()}
			next.model.apply(c)
			all = append(all, next)
		}
		for _, v := range all {
			v.model.check(t, v.directory)
		}
	})
}

// TestKeyFollowsEachChangeOfItsTenant: the caller that a key keeps is not used under another version of the tenant.
func TestKeyFollowsEachChangeOfItsTenant(t *testing.T) {
	secret := ownKey(t, 1)
	d := NewDirectory(nil, nil).With(&Changes{Tenants: []Tenant{{Name: "one", Weight: 1}},
		Keys: []Key{{ID: "k", Tenant: "one", Digest: Digest(secret)}}})
	changed := d.With(&Changes{Tenants: []Tenant{{Name: "one", Weight: 2}}})
	for range 2 {
		for want, in := range map[int]*Directory{1: d, 2: changed} {
			if c, err := in.Authenticate(secret, noon()); err != nil || c.Weight != want {
				t.Errorf("the weight is %d (%v), want %d", c.Weight, err, want)
			}
		}
	}
}

// TestFileSettingsApplyToTheKeysOfBoth: config.yaml and the database have a tenant of one name.
func TestFileSettingsApplyToTheKeysOfBoth(t *testing.T) {
	fileKey, storedKey := ownKey(t, 1), ownKey(t, 2)
	d := mustDirectory(t, KeyConfig{Name: "one", SHA256: digestOf(fileKey), Weight: 7}).With(&Changes{
		Tenants: []Tenant{{Name: "one", Weight: 2, Disabled: true}, {Name: "two", Weight: 2}},
		Keys:    []Key{{ID: "k", Tenant: "one", Digest: Digest(storedKey)}}})
	for _, secret := range []string{fileKey, storedKey} {
		if c, err := d.Authenticate(secret, noon()); err != nil || c.Weight != 7 || c.Since == 0 {
			t.Errorf("%+v, %v", c, err)
		}
	}
	var names []string
	for tenant := range d.Tenants() {
		names = append(names, fmt.Sprint(tenant.Name, " ", tenant.Weight))
	}
	if got := strings.Join(names, ", "); got != "one 7, two 2" {
		t.Errorf("the tenants are %s", got)
	}
	d = d.WithFile(nil, nil)
	if _, err := d.Authenticate(storedKey, noon()); !errors.Is(err, ErrDisabled) {
		t.Errorf("without the file: %v", err)
	}
	if _, err := d.Authenticate(fileKey, noon()); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("the key that the file no longer has: %v", err)
	}
}

// fullDirectory returns a directory with n keys, 50 for each tenant, and the secrets of some.
func fullDirectory(tb testing.TB, n int) (*Directory, []string) {
	tb.Helper()
	var c Changes
	var secrets []string
	for i := range n {
		k := Key{ID: fmt.Sprintf("key-%08d", i), Tenant: fmt.Sprint("tenant-", i/50), Name: "application",
			Hint: "tw-abcd…wxyz", CreatedBy: "admin", CreatedAt: noon(), Version: 1}
		var seed [secretBytes]byte
		binary.BigEndian.PutUint64(seed[:], uint64(i))
		secret, err := NewKey(strings.NewReader(string(seed[:])), TenantPrefix)
		if err != nil {
			tb.Fatal(err)
		}
		if k.Digest = Digest(secret); i%max(1, n/1000) == 0 {
			secrets = append(secrets, secret)
		}
		if i%50 == 0 {
			c.Tenants = append(c.Tenants, Tenant{Name: k.Tenant, Weight: 1, CreatedAt: noon()})
		}
		c.Keys = append(c.Keys, k)
	}
	return NewDirectory(nil, nil).With(&c), secrets
}

func sizes() []int { return []int{100, 10_000, 1_000_000} }

func BenchmarkAuthenticate(b *testing.B) {
	for _, n := range sizes() {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d, secrets := fullDirectory(b, n)
			for _, secret := range secrets { // makes the callers
				_, _ = d.Authenticate(secret, noon())
			}
			for i := 0; b.Loop(); i++ {
				if _, err := d.Authenticate(secrets[i%len(secrets)], noon()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDirectoryChange(b *testing.B) {
	for _, n := range sizes() {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d, _ := fullDirectory(b, n)
			k, _ := d.Key("key-00000007")
			b.ReportAllocs()
			for b.Loop() {
				d = d.With(&Changes{Keys: []Key{k}, Tenants: []Tenant{{Name: "tenant-0"}}})
			}
		})
	}
}
