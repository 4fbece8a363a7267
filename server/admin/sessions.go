package admin

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"time"
)

const (
	// sessionIdle ends a session without requests, on a computer that was left open.
	sessionIdle = 30 * time.Minute
	// sessionLife ends a session after a working day.
	sessionLife = 12 * time.Hour
	// codeLife is the validity of a login code. An hour leaves time to open the link that a demo printed at its
	// start.
	codeLife = time.Hour
	// maxSessions bounds the memory of sessions. At the limit, a login ends the longest unused session of the same
	// admin, or, if there is none, the longest unused session.
	maxSessions = 1000
	// idBytes is the length of random ids: 256 bits cannot be guessed.
	idBytes = 32
)

type session struct {
	admin  [sha256.Size]byte // digest of the admin's key
	opened time.Time
	used   time.Time // time of the last request that was not sent in the background
}

// expiry returns the end of the session without further requests.
func (s session) expiry() time.Time {
	idle, life := s.used.Add(sessionIdle), s.opened.Add(sessionLife)
	if idle.Before(life) {
		return idle
	}
	return life
}

// sessions are the open sessions and login codes. Only digests of their ids are kept, so a dump of the memory
// opens no session. It is safe for concurrent use.
type sessions struct {
	mu    sync.Mutex
	open  map[[sha256.Size]byte]session
	codes map[[sha256.Size]byte]session // used once; used is their beginning
}

func newSessions() *sessions {
	return &sessions{open: map[[sha256.Size]byte]session{}, codes: map[[sha256.Size]byte]session{}}
}

func newID() (string, error) {
	b := make([]byte, idBytes)
	if _, err := rand.Read(b); err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// openSession opens a session of an admin, by the digest of its key, and returns the session's id.
func (s *sessions) openSession(admin [sha256.Size]byte, now time.Time) (id string, opened session, err error) {
	if id, err = newID(); err != nil {
		return "", opened, err
	}
	opened = session{admin: admin, opened: now, used: now}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeExpired(now)
	if len(s.open) >= maxSessions {
		s.removeLeastRecentlyUsed(admin)
	}
	s.open[sha256.Sum256([]byte(id))] = opened
	return id, opened, nil
}

// findSession returns the session with an id. If active is set, the request keeps the session from becoming idle.
func (s *sessions) findSession(id string, active bool, now time.Time) (found session, ok bool) {
	key := sha256.Sum256([]byte(id))
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok = s.open[key]
	if !ok {
		return found, false
	}
	if !now.Before(found.expiry()) {
		delete(s.open, key)
		return session{}, false
	}
	if active {
		found.used = now
		s.open[key] = found
	}
	return found, true
}

func (s *sessions) endSession(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, sha256.Sum256([]byte(id)))
}

func (s *sessions) newCode(admin [sha256.Size]byte, now time.Time) (string, error) {
	code, err := newID()
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.codes[sha256.Sum256([]byte(code))] = session{admin: admin, opened: now}
	return code, nil
}

// takeCode returns the admin of a code, once.
func (s *sessions) takeCode(code string, now time.Time) (admin [sha256.Size]byte, ok bool) {
	key := sha256.Sum256([]byte(code))
	s.mu.Lock()
	defer s.mu.Unlock()
	of, ok := s.codes[key]
	delete(s.codes, key)
	return of.admin, ok && now.Before(of.opened.Add(codeLife))
}

// removeExpired requires the lock.
func (s *sessions) removeExpired(now time.Time) {
	for key, session := range s.open {
		if !now.Before(session.expiry()) {
			delete(s.open, key)
		}
	}
	for key, code := range s.codes {
		if !now.Before(code.opened.Add(codeLife)) {
			delete(s.codes, key)
		}
	}
}

// removeLeastRecentlyUsed removes the longest unused session of an admin, or, if there is none, the longest unused
// session. One key therefore cannot end the sessions of others. It requires the lock.
func (s *sessions) removeLeastRecentlyUsed(admin [sha256.Size]byte) {
	var oldest [sha256.Size]byte
	var found session
	for key, session := range s.open {
		mine, best := session.admin == admin, found.admin == admin
		if found.used.IsZero() || mine && !best || mine == best && session.used.Before(found.used) {
			oldest, found = key, session
		}
	}
	delete(s.open, oldest)
}
