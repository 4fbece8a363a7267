package server

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// clientIP is the address of a request's client: the peer's, or what proxies
// that are trusted say of it. They append to X-Forwarded-For, so that its last
// address which is no trusted proxy's is the client's.
func (s *Server) clientIP(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	trusted := s.snapshot.Load().proxies
	if len(trusted) == 0 || !within(trusted, host) {
		return host
	}
	forwarded := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(forwarded) - 1; i >= 0; i-- {
		ip := strings.TrimSpace(forwarded[i])
		if _, err := netip.ParseAddr(ip); err != nil {
			break
		}
		host = ip
		if !within(trusted, ip) {
			break
		}
	}
	return host
}

// within tells whether one of the prefixes has the address.
func within(prefixes []netip.Prefix, ip string) bool {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return false
	}
	addr = addr.Unmap().WithZone("")
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// Bounds of guesses at keys.
const (
	// guessesAMinute is how many wrong keys an address may send a minute: a
	// mistyped key in forty applications behind one address is found before.
	guessesAMinute = 20
	// guessersMax bounds how many addresses are remembered: 1 MB.
	guessersMax = 10_000
)

// guesses counts the wrong keys of each address, to slow down who tries many.
// Good keys of the same address are not looked at.
type guesses struct {
	mu    sync.Mutex
	since time.Time
	byIP  map[string]int
}

// network is whose an address is: of IPv6 the 64 bits that one customer has.
func network(ip string) string {
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

// another counts one wrong key and reports whether the address has sent too many
// in this minute, and how long that lasts.
func (g *guesses) another(ip string, now time.Time) (tooMany bool, wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Sub(g.since) >= time.Minute || g.byIP == nil {
		g.since, g.byIP = now, map[string]int{}
	}
	ip = network(ip)
	if _, known := g.byIP[ip]; !known && len(g.byIP) >= guessersMax {
		ip = "" // all others together
	}
	g.byIP[ip]++
	return g.byIP[ip] > guessesAMinute, time.Minute - now.Sub(g.since)
}
