package server

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"time"

	"tierway/store"
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
// and nobody may change anything on the admin plane; and takes it back when
// somebody may, or its time is over.
func (s *Server) bootstrapIfAlone(p *people) {
	now := time.Now()
	if b := s.boot.Load(); b != nil {
		if administered(p, now) || now.After(b.until) {
			s.spendBootstrap()
		}
		return
	}
	if s.announce == nil || s.sql == nil || p.readAt.IsZero() || administered(p, now) {
		return
	}
	secret, err := tenants.NewKey(rand.Reader, tenants.BootstrapPrefix)
	if err != nil {
		s.log.Error("no bootstrap secret could be made; `tierway keys create --admin` makes an admin key", "cause", err.Error())
		return
	}
	b := &bootstrap{digest: tenants.Digest(secret), until: now.Add(bootstrapFor)}
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

// spendBootstrap makes the secret void: the first admin was made, or the time for
// it is over.
func (s *Server) spendBootstrap() {
	if b := s.boot.Swap(&bootstrap{}); b != nil && !b.until.IsZero() && s.withdraw != nil {
		s.withdraw()
	}
}

// administered tells whether anybody may change things on the admin plane: an admin
// of that role is in force. It is what store.SQL.Bootstrap asks of the database,
// asked of config.yaml too.
func administered(p *people, now time.Time) bool {
	for _, a := range p.admins {
		if a.Role == store.RoleAdmin && (a.ExpiresAt.IsZero() || now.Before(a.ExpiresAt)) {
			return true
		}
	}
	return false
}
