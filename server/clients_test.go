package server

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// IN-16: only proxies of the list are believed, and only what stands last.
func TestAnAddressIsWhatTrustedProxiesSay(t *testing.T) {
	r := newRig(t, strings.Replace(plain, "health:", `trusted_proxies: ["10.0.0.0/8", "fd00::/8", "127.0.0.1"]`+"\nhealth:", 1), fakeEngine())
	for _, c := range []struct{ peer, forwarded, want string }{
		{"192.0.2.7:1", "", "192.0.2.7"},
		{"192.0.2.7:1", "203.0.113.9", "192.0.2.7"},
		{"10.1.2.3:1", "", "10.1.2.3"},
		{"10.1.2.3:1", "203.0.113.9", "203.0.113.9"},
		{"10.1.2.3:1", "1.1.1.1, 203.0.113.9, 10.9.9.9", "203.0.113.9"},
		{"10.1.2.3:1", "1.1.1.1, nonsense, 10.9.9.9", "10.9.9.9"},
		{"10.1.2.3:1", "10.4.4.4, 10.5.5.5", "10.4.4.4"},
		{"[fd00::1]:1", "2001:db8::5", "2001:db8::5"},
		{"[::ffff:10.1.2.3]:1", "203.0.113.9", "203.0.113.9"},
	} {
		q := httptest.NewRequest("GET", "/", nil)
		q.RemoteAddr = c.peer
		if c.forwarded != "" {
			q.Header.Set("X-Forwarded-For", c.forwarded)
		}
		if got := r.clientIP(q); got != c.want {
			t.Errorf("%s through %q is %q, want %q", c.peer, c.forwarded, got, c.want)
		}
	}
}

// AU-05: memory for guessers is bounded, and a new minute begins with nothing.
func TestGuessesAreCountedByMinuteAndBounded(t *testing.T) {
	var g guesses
	now := time.Unix(1000, 0)
	for i := range guessersMax + 100 {
		g.another(fmt.Sprintf("ip-%d", i), now)
	}
	if len(g.byIP) != guessersMax+1 {
		t.Errorf("%d addresses are remembered", len(g.byIP))
	}
	for range guessesAMinute {
		g.another("ip-0", now)
	}
	if tooMany, wait := g.another("ip-0", now.Add(59*time.Second)); !tooMany || wait != time.Second {
		t.Errorf("%v for %v", tooMany, wait)
	}
	if tooMany, _ := g.another("2001:db8::1", now); !tooMany {
		t.Error("beyond the bound everybody may guess")
	}
	g = guesses{}
	for i := range guessesAMinute {
		g.another(fmt.Sprintf("2001:db8:0:1::%x", i), now)
	}
	if tooMany, _ := g.another("2001:db8:0:1::ffff", now); !tooMany {
		t.Error("a network of IPv6 may guess with each of its addresses")
	}
	if tooMany, _ := g.another("ip-0", now.Add(time.Minute)); tooMany {
		t.Error("a minute later it is still too many")
	}
}
