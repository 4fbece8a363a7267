package server

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"time"

	"tierway/tenants"
)

// bootstrapFor is how long a bootstrap secret is good: long enough to copy it
// once.
const bootstrapFor = 15 * time.Minute

// bootstrap is the secret with which the first admin is made. It lives in this
// process alone.
type bootstrap struct {
	digest [sha256.Size]byte
	until  time.Time
}

// bootstrapIfAlone announces a bootstrap secret, once, where the database is read
// and nobody may use the admin plane.
func (s *Server) bootstrapIfAlone(p *people) {
	if s.announce == nil || s.sql == nil || p.readAt.IsZero() || len(p.admins) > 0 || s.boot.Load() != nil {
		return
	}
	secret, err := tenants.NewKey(rand.Reader, tenants.BootstrapPrefix)
	if err != nil {
		s.log.Error("no bootstrap secret could be made; `tierway keys create --admin` makes an admin key", "cause", err.Error())
		return
	}
	b := &bootstrap{digest: tenants.Digest(secret), until: time.Now().Add(bootstrapFor)}
	s.boot.Store(b)
	s.announce(secret, b.until)
}

// takeBootstrap reports whether secret is the bootstrap secret and still good.
// It stays so until spendBootstrap.
func (s *Server) takeBootstrap(secret string) bool {
	b := s.boot.Load()
	if b == nil || !tenants.WellFormed(secret) || time.Now().After(b.until) {
		return false
	}
	digest := tenants.Digest(secret)
	return subtle.ConstantTimeCompare(digest[:], b.digest[:]) == 1
}

// spendBootstrap makes the secret void, after the first admin was made.
func (s *Server) spendBootstrap() { s.boot.Store(&bootstrap{}) }
