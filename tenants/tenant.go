package tenants

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/big"
	"time"
)

// Tenant is a customer or team with its permissions and limits, in the form of the database and the
// admin API. It contains no secret.
type Tenant struct {
	Name     string `json:"name"` // 1 to 63 of a-z, 0-9 and "-"
	Disabled bool   `json:"disabled" required:"false" nullable:"true" doc:"All its requests are rejected."`
	Rights          // for all its keys together

	// Weight is from 1 to MaxWeight; 0 means 1.
	Weight       int    `json:"weight" required:"false" nullable:"true" minimum:"1" maximum:"1000" doc:"Share of the tokens while requests of several tenants of one class wait: weight 2 gets twice the tokens of weight 1; absent: 1."`
	Limits       Limits `json:"limits" required:"false" doc:"Limits for all its keys together; absent: none."`
	IsolateCache bool   `json:"isolate_cache" required:"false" nullable:"true" doc:"Its prompts are salted, so that it shares no engine's prefix cache with other tenants. Neither their features nor labels are recorded, and they are not repeated; see docs/training.md."`
	Degrade      bool   `json:"degrade" required:"false" nullable:"true" doc:"When a budget is spent, its requests are routed to the cheapest tier that it may use."`
	// ResponseCache permits answers from the caches of tiers and pools.
	ResponseCache bool `json:"response_cache" required:"false" nullable:"true" doc:"Answers to its requests are kept, and it is answered from them, in tiers and pools with a response cache."`
	FailClosed    bool `json:"fail_closed" required:"false" nullable:"true" doc:"Its requests are rejected while Redis is unavailable."`

	FromConfig bool      `json:"from_config" doc:"Defined in config.yaml; edit that file to change it."`
	Version    int64     `json:"version"` // increases with every change
	CreatedAt  time.Time `json:"created_at,omitzero"`
	UpdatedAt  time.Time `json:"updated_at,omitzero"`
}

// MaxWeight is the greatest weight of a tenant. A thousandth of another tenant's share is next
// to nothing; a wider range would only hide typing errors.
const MaxWeight = 1000

// share returns the effective weight, also of a tenant that was stored without a check.
func (t *Tenant) share() int { return min(max(1, t.Weight), MaxWeight) }

// Key is one key of a tenant. The secret itself is stored nowhere.
type Key struct {
	ID     string            `json:"id"` // random, independent of the secret
	Tenant string            `json:"tenant"`
	Name   string            `json:"name,omitempty"`
	Hint   string            `json:"hint" doc:"First and last characters, to distinguish keys."`
	Digest [sha256.Size]byte `json:"-"`
	Rights                   // narrow the tenant's
	Limits Limits            `json:"limits" required:"false" doc:"Limits of this key, in addition to those of its tenant; absent: none."`

	CreatedBy  string    `json:"created_by,omitempty"`
	CreatedAt  time.Time `json:"created_at,omitzero"`
	ExpiresAt  time.Time `json:"expires_at,omitzero"` // zero: never
	RevokedAt  time.Time `json:"revoked_at,omitzero"` // zero: not revoked
	LastUsedAt time.Time `json:"last_used_at,omitzero" doc:"Time of its last request, accurate to the minute."`
	ReplacedBy string    `json:"replaced_by,omitempty" doc:"ID of the key that replaced it in a rotation."`
	FromConfig bool      `json:"from_config" doc:"Defined in config.yaml; edit that file to change it."`
	Version    int64     `json:"version"`
}

// Valid reports whether the key may be used at a time.
func (k *Key) Valid(now time.Time) bool {
	return k.RevokedAt.IsZero() && (k.ExpiresAt.IsZero() || now.Before(k.ExpiresAt))
}

// SuccessorExpiry returns the expiry of a key that replaces this one at now and has the same
// lifetime; zero: never.
func (k *Key) SuccessorExpiry(now time.Time) time.Time {
	if k.ExpiresAt.IsZero() {
		return time.Time{}
	}
	return now.Add(max(0, k.ExpiresAt.Sub(k.CreatedAt)))
}

// State returns the state of the key at a time: active, expired, revoked, or grace for a key
// that a rotation has replaced and that is still valid.
func (k *Key) State(now time.Time) string {
	switch {
	case !k.RevokedAt.IsZero():
		return "revoked"
	case !k.Valid(now):
		return "expired"
	case k.ReplacedBy != "":
		return "grace"
	}
	return "active"
}

// Mint makes a new key of a tenant. It returns the secret, which is shown once, and the Key
// with its id, digest and hint. random must be cryptographically strong.
func Mint(random io.Reader, tenant string) (secret string, k Key, err error) {
	if secret, err = NewKey(random, TenantPrefix); err != nil {
		return "", Key{}, err
	}
	id, err := NewID(random)
	if err != nil {
		return "", Key{}, err
	}
	return secret, Key{ID: id, Tenant: tenant, Hint: Hint(secret), Digest: Digest(secret)}, nil
}

// NewID returns a random id of twelve base62 characters.
func NewID(random io.Reader) (string, error) {
	var b [9]byte // 71 bits are 12 digits
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", fmt.Errorf("making an id: reading randomness: %w", err)
	}
	b[0] >>= 1
	return base62(new(big.Int).SetBytes(b[:]), 12), nil
}

// hintLeast is the shortest key in bytes of which a part is shown. Two thirds of it stay hidden.
const hintLeast = 33

// Hint returns the part of a key that may be shown: its first seven and last four characters. The last four
// of a generated key belong to its checksum. The key may also be unknown, and be another service's secret;
// nothing is shown of a short one.
func Hint(key string) string {
	if len(key) < hintLeast {
		return "…"
	}
	return key[:7] + "…" + key[len(key)-4:]
}
