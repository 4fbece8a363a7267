package server

import (
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
)

// IN-16: X-Forwarded-For counts only from a trusted proxy. Its last untrusted address is the client.
func TestClientIPComesFromTrustedProxiesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, strings.Replace(plain, "health:", `trusted_proxies: ["10.0.0.0/8", "fd00::/8", "127.0.0.1"]`+
			"\nhealth:", 1), fakeEngine())
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
			if got := r.control.Snapshot().ClientIP(q); got != c.want {
				t.Errorf("%s through %q is %q, want %q", c.peer, c.forwarded, got, c.want)
			}
		}
	})
}
