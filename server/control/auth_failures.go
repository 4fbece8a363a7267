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

// Credentials returns the keys in a request's headers Authorization (as a bearer token), X-Api-Key and Api-Key, in this
// order; "" for a header without a key. A repeated header has none. A key in the query is never read.
func Credentials(h http.Header) (keys [3]string) {
	for i, name := range [...]string{"Authorization", "X-Api-Key", "Api-Key"} {
		values := h[name]
		if len(values) != 1 {
			continue
		}
		keys[i] = strings.TrimSpace(values[0])
		if i == 0 {
			scheme, token, _ := strings.Cut(keys[i], " ")
			if keys[i] = ""; strings.EqualFold(scheme, "Bearer") {
				keys[i] = strings.TrimSpace(token)
			}
		}
	}
	return keys
}

// HasKey reports whether a request has a key.
func HasKey(h http.Header) bool { return Credentials(h) != [3]string{} }
