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

// bootstrapLifetime is the lifetime of a bootstrap secret: long enough to copy it once.
const bootstrapLifetime = 15 * time.Minute

// bootstrapSecret is the secret that creates the first admin. Only this process has it.
type bootstrapSecret struct {
	digest [sha256.Size]byte
	until  time.Time
}

// Announcement is a new bootstrap secret, or the end of the last one.
type Announcement struct {
	Secret string    // "" if the last secret is void
	Until  time.Time // end of its validity; zero for ""
}

// Bootstrap holds the one-time secret that creates the first admin. It is safe for concurrent use.
type Bootstrap struct {
	log *slog.Logger
	// announcements has room for both: a secret is announced once and voided once. Nil: no secret is created.
	announcements chan Announcement
	secret        atomic.Pointer[bootstrapSecret]
}

func newBootstrap(log *slog.Logger, enabled bool) *Bootstrap {
	b := &Bootstrap{log: log}
	if enabled {
		b.announcements = make(chan Announcement, 2)
	}
	return b
}

// Announcements returns the channel of announcements for the operator. It is nil without Options.OfferBootstrap.
func (b *Bootstrap) Announcements() <-chan Announcement { return b.announcements }

// announceWithoutAdmin announces a secret, once, if the database was read and there is no valid admin
// key. It voids the secret when there is one or the secret has expired.
func (b *Bootstrap) announceWithoutAdmin(p *Identity) {
	now := time.Now()
	if secret := b.secret.Load(); secret != nil {
		if hasAdmin(p, now) || now.After(secret.until) {
			b.Void()
		}
		return
	}
	if b.announcements == nil || p.ReadAt.IsZero() || hasAdmin(p, now) {
		return
	}
	secret, err := tenants.NewKey(rand.Reader, tenants.BootstrapPrefix)
	if err != nil {
		b.log.Error("creating a bootstrap secret failed; create an admin key with `tierway keys create --admin`", "cause",
			err.Error())
		return
	}
	until := now.Add(bootstrapLifetime)
	b.offer(secret, until)
	b.announcements <- Announcement{secret, until}
}

// offer makes a secret valid until the given time or a call of Void.
func (b *Bootstrap) offer(secret string, until time.Time) {
	b.secret.Store(&bootstrapSecret{digest: tenants.Digest(secret), until: until})
}

// Check reports in constant time whether secret is the bootstrap secret and valid. The secret stays
// valid: the caller must call Void after it has created the admin.
func (b *Bootstrap) Check(secret string) bool {
	current := b.secret.Load()
	if current == nil || !tenants.WellFormed(secret) || time.Now().After(current.until) {
		return false
	}
	digest := tenants.Digest(secret)
	return subtle.ConstantTimeCompare(digest[:], current.digest[:]) == 1
}

// Void ends the secret's validity and announces that, once.
func (b *Bootstrap) Void() {
	if last := b.secret.Swap(&bootstrapSecret{}); last != nil && !last.until.IsZero() && b.announcements != nil {
		b.announcements <- Announcement{}
	}
}

// hasAdmin reports whether there is a valid key with the role admin, from the database or from
// config.yaml.
func hasAdmin(p *Identity, now time.Time) bool {
	for _, a := range p.admins {
		if a.Role == store.RoleAdmin && (a.ExpiresAt.IsZero() || now.Before(a.ExpiresAt)) {
			return true
		}
	}
	return false
}
