// Package tenants knows who may ask, and for what. It holds digests of keys,
// never keys.
package tenants

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// KeyConfig is one key and what its holder may use, as config.yaml writes it.
// Two keys of the same name and the same permissions are two keys of one tenant:
// that is how a key is replaced without a gap.
type KeyConfig struct {
	Name     string   `yaml:"name"`     // the tenant: 1 to 63 of a-z, 0-9 and "-"
	SHA256   string   `yaml:"sha256"`   // 64 hexadecimal digits, the digest of the key
	Tiers    []string `yaml:"tiers"`    // tiers and pools that it may use; absent: all, []: none
	Models   []string `yaml:"models"`   // globs of the model names that it may ask by; absent: all, []: none
	Priority string   `yaml:"priority"` // the highest class that it may ask for; absent: interactive
}

// Tenant is who asks. It is immutable, and its printed form holds no secret.
type Tenant struct {
	Name    string
	Highest Class // the most urgent class that it may ask for

	tiers  []string // nil: all
	globs  []string // as configured, to compare tenants by
	models *regexp.Regexp
}

// MayUseTier reports whether the tenant may use the tier or pool of that name.
func (t *Tenant) MayUseTier(name string) bool {
	return t.tiers == nil || slices.Contains(t.tiers, name)
}

// MayUseModel reports whether the tenant may ask by that model name. A request
// without one asks by the empty name, which only a glob of stars covers: where
// models are restricted, leaving the name out is no way around it.
func (t *Tenant) MayUseModel(name string) bool {
	return t.models == nil || t.models.MatchString(name)
}

// MayPass reports whether the tenant may use the pool of that name for requests
// whose model nobody reads. Who is kept to models may do so only where the pool
// is named among its tiers.
func (t *Tenant) MayPass(pool string) bool {
	return t.MayUseTier(pool) && (t.models == nil || t.tiers != nil)
}

// Clamp returns the class that a tenant gets when it asks for one.
func (t *Tenant) Clamp(asked Class) Class { return max(asked, t.Highest) }

// Directory finds tenants by their keys. It is immutable.
type Directory struct {
	entries map[[sha256.Size]byte]entry
}

type entry struct {
	digest [sha256.Size]byte
	tenant *Tenant
}

// NewDirectory checks the keys and makes their directory. The error joins all
// that is wrong, each part beginning with the key in config.yaml that it is
// about; it never repeats a digest, in whose place a key may stand by mistake.
func NewDirectory(keys []KeyConfig) (*Directory, error) {
	d := &Directory{entries: make(map[[sha256.Size]byte]entry, len(keys))}
	var errs []error
	tenants, owners := map[string]*Tenant{}, map[[sha256.Size]byte]int{}
	for i, k := range keys {
		at := fmt.Sprintf("auth.keys[%d]", i)
		t, wrong := k.tenant(at)
		errs = append(errs, wrong...)
		digest, err := k.digest(at)
		if err != nil {
			errs = append(errs, err)
		} else if first, taken := owners[digest]; taken {
			errs = append(errs, fmt.Errorf("%s.sha256: duplicate: auth.keys[%d] has the same key", at, first))
			continue
		} else {
			owners[digest] = i
		}
		if t == nil {
			continue
		}
		if other, known := tenants[t.Name]; !known {
			tenants[t.Name] = t
		} else if !t.equal(other) {
			errs = append(errs, fmt.Errorf("%s.name: duplicate name %q with other permissions: repeat the tenant's tiers, models and priority, or name it otherwise", at, t.Name))
		} else {
			t = other
		}
		d.entries[digest] = entry{digest: digest, tenant: t}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return d, nil
}

// tenant returns whom the key belongs to, nil when something is wrong.
func (k *KeyConfig) tenant(at string) (*Tenant, []error) {
	var errs []error
	if !slug(k.Name) {
		errs = append(errs, fmt.Errorf("%s.name: bad name %q: use 1 to 63 of a-z, 0-9 and -", at, k.Name))
	}
	highest, ok := ParseClass(k.Priority)
	if !ok && k.Priority != "" {
		errs = append(errs, fmt.Errorf("%s.priority: unknown class %q: use %s", at, k.Priority, strings.Join(Classes(), ", ")))
	}
	if len(errs) > 0 {
		return nil, errs
	}
	t := &Tenant{Name: k.Name, Highest: highest, tiers: slices.Clone(k.Tiers), globs: slices.Clone(k.Models)}
	if k.Models != nil {
		t.models = compile(k.Models)
	}
	return t, nil
}

// slug reports whether name may be a tenant's. Names become metric labels and
// parts of log lines, so that they are kept plain and short.
func slug(name string) bool {
	plain := func(r rune) bool { return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-' }
	return 0 < len(name) && len(name) <= 63 && strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) < 0
}

// digest decodes the key's digest.
func (k *KeyConfig) digest(at string) (digest [sha256.Size]byte, err error) {
	if len(k.SHA256) != hex.EncodedLen(len(digest)) {
		return digest, fmt.Errorf("%s.sha256: has %d characters: use the 64 hexadecimal digits of the key's SHA-256, not the key", at, len(k.SHA256))
	}
	// The decoder's own error would repeat a character of what may be a key.
	if _, err := hex.Decode(digest[:], []byte(k.SHA256)); err != nil {
		return digest, fmt.Errorf("%s.sha256: is not hexadecimal: use the 64 hexadecimal digits of the key's SHA-256", at)
	}
	if digest == Digest("") {
		return digest, fmt.Errorf("%s.sha256: is the digest of no key at all: use that of the key", at)
	}
	return digest, nil
}

// equal reports whether two tenants of one name are the same.
func (t *Tenant) equal(o *Tenant) bool {
	same := func(a, b []string) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) }
	return t.Highest == o.Highest && same(t.tiers, o.tiers) && same(t.globs, o.globs)
}

// compile returns one expression for all globs: `*` is any run of characters,
// `?` exactly one. Go matches it in time linear in the name.
func compile(globs []string) *regexp.Regexp {
	if len(globs) == 0 {
		return regexp.MustCompile(`[^\x{0}-\x{10FFFF}]`) // nothing
	}
	alternatives := make([]string, len(globs))
	for i, g := range globs {
		g = regexp.QuoteMeta(strings.ToValidUTF8(g, "\uFFFD"))
		alternatives[i] = strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(g)
	}
	return regexp.MustCompile(`(?s)\A(?:` + strings.Join(alternatives, "|") + `)\z`)
}

// Authenticate returns the tenant of a key. A key that bears our prefix and is
// not well formed is refused before anything is looked up. Keys are looked up
// by digest, so that the time it takes says nothing about how much of a guess
// was right.
func (d *Directory) Authenticate(key string) (*Tenant, bool) {
	if strings.HasPrefix(key, TenantPrefix) && !WellFormed(key) {
		return nil, false
	}
	digest := Digest(key)
	e, known := d.entries[digest]
	if !known || subtle.ConstantTimeCompare(e.digest[:], digest[:]) != 1 {
		return nil, false
	}
	return e.tenant, true
}

// Format prints how many keys there are, whatever the verb: digests stay out of
// logs.
func (d *Directory) Format(s fmt.State, _ rune) {
	_, _ = io.WriteString(s, fmt.Sprintf("%d keys", len(d.entries)))
}
