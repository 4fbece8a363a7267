package control

import (
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// Bounds of authentication failures.
const (
	// failuresPerMinute is the number of unknown keys that an address may send per minute. It leaves
	// room for a few misconfigured applications behind one address.
	failuresPerMinute = 20
	// maxAddresses is the largest number of addresses that are counted apart: 1 MB of memory.
	maxAddresses = 10_000
)

// AuthFailureLimiter counts the unknown keys of each address, to slow down guesses. Valid keys
// of the same address are unaffected. It is safe for concurrent use.
type AuthFailureLimiter struct {
	mu    sync.Mutex
	since time.Time
	byIP  map[string]int
}

// addressGroup returns the key under which an address is counted. For IPv6 it is the /64 prefix, which
// belongs to one customer.
func addressGroup(ip string) string {
	addr, err := netip.ParseAddr(ip)
	if err != nil || addr.Unmap().Is4() {
		return ip
	}
	p, err := addr.WithZone("").Prefix(64)
	if err != nil {
		return ip
	}
	return p.String()
}

// Add counts one unknown key. It reports whether the address has sent too many in this minute, and the
// time until the next minute.
func (g *AuthFailureLimiter) Add(ip string, now time.Time) (tooMany bool, wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Sub(g.since) >= time.Minute || g.byIP == nil {
		g.since, g.byIP = now, map[string]int{}
	}
	ip = addressGroup(ip)
	if _, known := g.byIP[ip]; !known && len(g.byIP) >= maxAddresses {
		ip = "" // all other addresses together
	}
	g.byIP[ip]++
	return g.byIP[ip] > failuresPerMinute, time.Minute - now.Sub(g.since)
}

// Credential returns the key of a request's Authorization or X-Api-Key header, and whether
// it is the only one. A key in the query is never read.
func Credential(h http.Header) (string, bool) {
	auth, key := h.Values("Authorization"), h.Values("X-Api-Key")
	switch {
	case len(auth) == 1:
		scheme, token, ok := strings.Cut(auth[0], " ")
		return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
	case len(auth) == 0 && len(key) == 1:
		return key[0], true
	}
	return "", false
}
