package control

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"sync/atomic"
	"time"

	"tierway/store"
	"tierway/tenants"
)

// bootstrapFor is the lifetime of a bootstrap secret: long enough to copy it once.
const bootstrapFor = 15 * time.Minute

// bootstrapSecret is the secret that creates the first admin. Only this process has it.
type bootstrapSecret struct {
	digest [sha256.Size]byte
	until  time.Time
}

// Bootstrap holds the one-time secret that makes the first admin. It is safe for concurrent
// use.
type Bootstrap struct {
	log      *slog.Logger
	announce func(secret string, until time.Time) // nil: no secret is made
	withdraw func()                               // may be nil
	secret   atomic.Pointer[bootstrapSecret]
}

// announceIfAlone announces a secret, once, if the database was read and no admin is in
// force. It voids the secret when an admin is in force or the secret has expired.
func (b *Bootstrap) announceIfAlone(p *Identity) {
	now := time.Now()
	if secret := b.secret.Load(); secret != nil {
		if administered(p, now) || now.After(secret.until) {
			b.Void()
		}
		return
	}
	if b.announce == nil || p.ReadAt.IsZero() || administered(p, now) {
		return
	}
	secret, err := tenants.NewKey(rand.Reader, tenants.BootstrapPrefix)
	if err != nil {
		b.log.Error("creating a bootstrap secret failed; create an admin key with `tierway keys create --admin`", "cause",
			err.Error())
		return
	}
	until := now.Add(bootstrapFor)
	b.offer(secret, until)
	b.announce(secret, until)
}

// offer makes a secret valid until a time or until Void.
func (b *Bootstrap) offer(secret string, until time.Time) {
	b.secret.Store(&bootstrapSecret{digest: tenants.Digest(secret), until: until})
}

// Check reports whether secret is the bootstrap secret and valid, in constant time. The
// secret stays valid: a caller that has made the admin calls Void.
func (b *Bootstrap) Check(secret string) bool {
	is := b.secret.Load()
	if is == nil || !tenants.WellFormed(secret) || time.Now().After(is.until) {
		return false
	}
	digest := tenants.Digest(secret)
	return subtle.ConstantTimeCompare(digest[:], is.digest[:]) == 1
}

// Void ends the secret's validity and withdraws its announcement, once.
func (b *Bootstrap) Void() {
	if was := b.secret.Swap(&bootstrapSecret{}); was != nil && !was.until.IsZero() && b.withdraw != nil {
		b.withdraw()
	}
}

// administered reports whether an admin with the role admin is in force, from the database
// or from config.yaml.
func administered(p *Identity, now time.Time) bool {
	for _, a := range p.admins {
		if a.Role == store.RoleAdmin && (a.ExpiresAt.IsZero() || now.Before(a.ExpiresAt)) {
			return true
		}
	}
	return false
}
