package server

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/config"
)

// TestSharedPlanesServeThePage: the admin plane has the paths of the UI, and the data plane all others.
func TestSharedPlanesServeThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		front := newServer(t, sharePlanes(r.planes.dataHandler(), r.planes.adminHandler()))
		for _, tt := range []struct {
			method, path string
			status       int
			kind         string // of the answer
		}{
			{"GET", "/", 200, "text/html; charset=utf-8"},
			{"HEAD", "/", 200, "text/html; charset=utf-8"},
			{"GET", "/assets/none.js", 404, "application/problem+json"},
			{"GET", "/admin/session", 401, "application/problem+json"},
			{"GET", "/assets", 401, "application/json; charset=utf-8"},
			{"GET", "/index.html", 401, "application/json; charset=utf-8"},
			{"GET", "/v1/models", 401, "application/json; charset=utf-8"},
			{"GET", "/livez", 200, "text/plain; charset=utf-8"},
		} {
			got := requestHost(t, front, tt.method, tt.path, "localhost", "")
			if got.status != tt.status || got.header.Get("Content-Type") != tt.kind {
				t.Errorf("%s %s is %d in %s: %s", tt.method, tt.path, got.status, got.header.Get("Content-Type"), got.body)
			}
			if page := tt.kind == "text/html; charset=utf-8"; page != (got.header.Get("Cache-Control") == "no-cache") {
				t.Errorf("%s %s has %v", tt.method, tt.path, got.header)
			}
		}
	})
}

// TestThePageIsServedWithoutAnAdminKey, while the API stays closed. The data plane alone does not serve it.
func TestThePageIsServedWithoutAnAdminKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := adminRigOf(newRig(t, plain, fakeEngine()))
		page := r.callAdmin("", http.MethodGet, "/", "")
		if page.status != 200 || !strings.Contains(page.body, "<!doctype html>") {
			t.Errorf("/ is %d: %s", page.status, page.body)
		}
		if got := r.callAdmin("", http.MethodGet, "/admin/status", ""); got.status != http.StatusUnauthorized {
			t.Errorf("/admin/status is %d: %s", got.status, got.body)
		}
		if got := r.do(http.MethodGet, "/", ""); got.status != http.StatusNotFound {
			t.Errorf("/ on the data plane is %d", got.status)
		}
	})
}

// TestThePageHasSecurityHeaders, with TLS also the one that keeps browsers on it.
func TestThePageHasSecurityHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		for _, tls := range []config.TLS{{}, {Cert: "c", Key: "k"}} {
			r.control.Snapshot().File.Admin.TLS = tls
			for _, path := range []string{"/", "/theme.js", "/admin/status"} {
				h := r.callAdmin("ops", http.MethodGet, path, "").header
				if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" ||
					h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cross-Origin-Opener-Policy") != "same-origin" ||
					(h.Get("Strict-Transport-Security") != "") != tls.On() {
					t.Errorf("%s with TLS %v has %v", path, tls.On(), h)
				}
			}
		}
	})
}
