package server

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/config"
)

// TestEveryAnswerHasSecurityHeaders, of each plane and with each status, also answers that need no key and those of
// a worker. Those of the admin plane are not cached.
func TestEveryAnswerHasSecurityHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		const chat = `{"model":"filed","max_tokens":2,"messages":[{"role":"user","content":"hi"}]}`
		for plane, p := range map[string]struct {
			handler http.Handler
			lines   []string
		}{
			"admin": {r.planes.adminHandler(), []string{"GET /", "GET /metrics 200", "POST /metrics 405", "GET /nowhere",
				"GET /admin/workers 401", "PUT /admin/workers", "GET /admin/nowhere", "POST /admin/session", "GET /livez",
				"GET /readyz", "GET /assets/none.js", "GET /admin/openapi.json", "OPTIONS /admin/workers"}},
			"metrics": {r.planes.metricsHandler(), []string{"GET /metrics 200", "POST /metrics 405", "GET /nowhere 404"}},
			"data": {r.planes.dataHandler(), []string{"GET /livez 200", "GET /readyz 200", "POST /livez", "GET /v1/models",
				"GET /v1/nowhere 404", "PUT /v1/chat/completions 405", "POST /v1/chat/completions 401", "POST /v1/messages 401",
				"POST /v1/chat/completions " + chat, `POST /v1/chat/completions ` + strings.Replace(chat, "{", `{"stream":true,`, 1),
				"POST /v1/chat/completions {", "OPTIONS /v1/chat/completions", "GET /metrics 404"}},
		} {
			front := newServer(t, p.handler)
			for _, tls := range []config.TLS{{}, {Cert: "c", Key: "k"}} {
				r.control.Snapshot().File.TLS, r.control.Snapshot().File.Admin.TLS = tls, tls
				for _, line := range p.lines {
					words := strings.SplitN(line, " ", 3)
					body, status := "", 0
					if len(words) == 3 {
						if n, err := strconv.Atoi(words[2]); err == nil {
							status = n
						} else {
							body = words[2]
						}
					}
					var headers []string
					if plane == "data" && status != 401 {
						headers = []string{"Authorization", "Bearer filed"}
					}
					got := requestHost(t, front, words[0], words[1], "localhost", body, headers...)
					h := got.header
					if status != 0 && got.status != status {
						t.Errorf("%s: %s is %d", plane, line, got.status)
					}
					if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" ||
						h.Get("Referrer-Policy") != "no-referrer" ||
						(h.Get("Strict-Transport-Security") != "") != (tls.On() && plane != "metrics") {
						t.Errorf("%s: %s with TLS %t is %d with %v", plane, line, tls.On(), got.status, h)
					}
					if plane != "data" && (h.Get("Cache-Control") == "" || h.Get("Cross-Origin-Opener-Policy") != "same-origin" ||
						!strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'")) {
						t.Errorf("%s: %s is %d with %v", plane, line, got.status, h)
					}
				}
			}
		}
	})
}
