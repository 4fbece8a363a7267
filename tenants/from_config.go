package tenants

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// KeyConfig is one key and the permissions of its tenant, as in config.yaml. Two entries with
// the same name and settings are two keys of one tenant, so that a key can be replaced without a gap.
type KeyConfig struct {
	Name            string   `yaml:"name" required:"true" form:"tenant" doc:"Name of the tenant. Entries with the same name and equal settings are several keys of one tenant."`
	SHA256          string   `yaml:"sha256" required:"true" form:"digest" secret:"true" doc:"SHA-256 of the key in hex: \x60printf %s \"$KEY\" | sha256sum | cut -d ' ' -f 1\x60. A key that begins with 'tw-' must be one that the gateway generated."`
	Tiers           []string `yaml:"tiers" absent:"all" doc:"Names of the tiers and pools that the key may use. '[]': none."`
	Models          []string `yaml:"models" absent:"all" doc:"Model names that the key may request. '*' matches any run of characters, '?' exactly one. '[]': none."`
	Priority        string   `yaml:"priority" enum:"interactive,background,batch" absent:"'interactive'" doc:"Highest priority class that the key may request."`
	DefaultPriority string   `yaml:"default_priority" enum:"interactive,background,batch" absent:"'priority'" doc:"Class of a request that names none. At most 'priority'."`
	Weight          int      `yaml:"weight" min:"1" max:"1000" absent:"'1'" doc:"Share of the tokens while requests of several tenants of one class wait: weight 2 gets twice the tokens of weight 1."`
	Limits          Limits   `yaml:"limits" doc:"Limits of the tenant, for all its keys together. A limit that is absent or 0 does not apply."`
	IsolateCache    bool     `yaml:"isolate_cache" doc:"Salt its prompts, so that it shares no engine's prefix cache with other tenants. Neither their features nor labels are recorded, and they are not repeated; see docs/training.md."`
	Degrade         bool     `yaml:"degrade" doc:"When a budget is spent, route its requests to the cheapest tier that it may use instead of rejecting them."`
	ResponseCache   bool     `yaml:"response_cache" doc:"Keep answers to its requests, and answer it from them, in tiers and pools with 'response_cache'. No other tenant gets them, except tenants of its group in 'response_cache.shared'."`
	FailClosed      bool     `yaml:"fail_closed" doc:"While Redis is unavailable, reject its requests instead of enforcing this gateway's share of the limits."`
}

// FromConfig checks the keys of config.yaml and returns them with their tenants. The caller must have
// checked classes and weights by the tags of KeyConfig, as package config does. The error joins all
// mistakes; each part starts with its key in config.yaml. It never contains a digest, because a key
// may have been pasted in its place.
func FromConfig(configs []KeyConfig) ([]Tenant, []Key, error) {
	var errs []error
	var ts []Tenant
	var ks []Key
	known, owners := map[string]int{}, map[[sha256.Size]byte]int{}
	for i, c := range configs {
		at := fmt.Sprintf("auth.keys[%d]", i)
		if !Slug(c.Name) {
			errs = append(errs, fmt.Errorf("%s.name: %q is not a valid name: use 1 to 63 of a-z, 0-9 and -, but not %q",
				at, c.Name, anonymous))
		}
		digest, err := c.digest(at)
		first, taken := owners[digest]
		switch {
		case err != nil:
			errs = append(errs, err)
		case taken:
			errs = append(errs,
				fmt.Errorf("%s.sha256: is the digest of auth.keys[%d] too: remove one of the two entries", at, first))
			continue
		default:
			owners[digest] = i
		}
		t := c.tenant()
		if other, twice := known[t.Name]; !twice || !Slug(t.Name) {
			known[t.Name] = len(ts)
			ts = append(ts, t)
		} else if !reflect.DeepEqual(t, ts[other]) {
			errs = append(errs, fmt.Errorf("%s.name: another key of %q has different settings: "+
				"give all keys of a tenant the same settings, or choose another name", at, t.Name))
		}
		ks = append(ks, Key{ID: fmt.Sprintf("config-%x", digest[:4]), Tenant: t.Name,
			Hint: "config.yaml", Digest: digest, FromConfig: true})
	}
	if len(errs) > 0 {
		return nil, nil, errors.Join(errs...)
	}
	return ts, ks, nil
}

// tenant returns the tenant of the key.
func (k *KeyConfig) tenant() Tenant {
	class := func(word string) Class {
		c, _ := ParseClass(word) // checked by package config
		return c
	}
	r := Rights{Tiers: k.Tiers, Models: k.Models, Priority: class(k.Priority)}
	r.Default = max(r.Priority, class(k.DefaultPriority))
	return Tenant{Name: k.Name, Rights: r, Weight: max(1, k.Weight), Limits: k.Limits, IsolateCache: k.IsolateCache,
		Degrade: k.Degrade, ResponseCache: k.ResponseCache, FailClosed: k.FailClosed, FromConfig: true}
}

// anonymous is the name of the caller without a key. No tenant may have it.
const anonymous = "anonymous"

// Slug reports whether name is valid for a tenant. Names are metric labels and parts of log
// lines, and are therefore plain and short.
func Slug(name string) bool {
	plain := func(r rune) bool { return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-' }
	return 0 < len(name) && len(name) <= 63 && name != anonymous &&
		strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) < 0
}

// digest decodes the key's digest.
func (k *KeyConfig) digest(at string) (digest [sha256.Size]byte, err error) {
	if len(k.SHA256) != hex.EncodedLen(len(digest)) {
		return digest, fmt.Errorf("%s.sha256: has %d characters: "+
			"use the 64 hexadecimal digits of the key's SHA-256, not the key", at, len(k.SHA256))
	}
	// The decoder's own error would repeat a character of a possible key.
	if _, err := hex.Decode(digest[:], []byte(k.SHA256)); err != nil {
		return digest, fmt.Errorf("%s.sha256: is not hexadecimal: use the 64 hexadecimal digits of the key's SHA-256", at)
	}
	if digest == Digest("") {
		return digest, fmt.Errorf("%s.sha256: is the digest of an empty key: use the digest of the key", at)
	}
	if digest == [sha256.Size]byte{} || digest == [sha256.Size]byte(bytes.Repeat([]byte{0xff}, sha256.Size)) {
		return digest, fmt.Errorf("%s.sha256: is a placeholder, which no key has as its digest: "+
			"generate a key with `openssl rand -hex 20` and use its digest", at)
	}
	if weakDigests[digest] {
		return digest, fmt.Errorf("%s.sha256: is the digest of a well-known key: "+
			"generate a key with `openssl rand -hex 20` and use its digest", at)
	}
	return digest, nil
}
