package server

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/tenants"
)

// unknownKey returns a well-formed key that no tenant or admin has.
func unknownKey(t *testing.T, prefix string) string {
	t.Helper()
	key, err := tenants.NewKey(rand.Reader, prefix)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// fillPath replaces the parameters of a path by a name that does not exist.
func fillPath(path string) string {
	return strings.NewReplacer("{name}", "missing", "{id}", "missing", "{worker}", "missing").Replace(path)
}

// AD-01: without any admin key the plane rejects every request. Only the bootstrap and the login are open:
// the first accepts one secret, the second none.
func TestWithoutAdminKeysThePlaneIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := adminRigOf(newRig(t, strings.Replace(plain, "auth:", "store: { sql: \"sqlite://:memory:\" }\nauth:", 1),
			fakeEngine()))
		body := fmt.Sprintf(`{"secret":%q,"name":"eve"}`, unknownKey(t, tenants.BootstrapPrefix))
		if got := r.callAdmin("", http.MethodPost, "/admin/bootstrap", body); got.status != http.StatusUnauthorized {
			t.Errorf("an unknown secret gets %d: %s", got.status, got.body)
		}
		login := r.callAdmin("", http.MethodPost, "/admin/session", `{"key":"ops"}`)
		if login.status != http.StatusUnauthorized || login.header.Get("Set-Cookie") != "" {
			t.Errorf("a login gets %d: %s", login.status, login.body)
		}
		for name := range r.documentedOperations() {
			method, path, _ := strings.Cut(name, " ")
			for _, key := range []string{"", "ops", "key", unknownKey(t, tenants.AdminPrefix),
				unknownKey(t, tenants.BootstrapPrefix)} {
				got := r.send(call{method: method, path: fillPath(path), key: key, body: "{}"})
				open := (name == "POST /admin/bootstrap" || name == "POST /admin/session") &&
					got.status == http.StatusUnprocessableEntity
				if got.status != http.StatusUnauthorized && got.status != http.StatusTooManyRequests && !open {
					t.Errorf("%s with the key %q is %d: %s", name, key, got.status, got.body)
				}
			}
		}
	})
}

// AD-02, CF-08: every route rejects a tenant's key. The audit log has one entry per second for the
// attempts.
func TestATenantsKeyOpensNoAdminRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, begin := newAdminRig(t), time.Now()
		for name, op := range r.documentedOperations() {
			method, path, _ := strings.Cut(name, " ")
			if len(op.Security) == 0 {
				continue
			}
			if got := r.send(call{method: method, path: fillPath(path), key: "filed", body: "{}"}); got.status !=
				http.StatusUnauthorized {
				t.Errorf("%s is %d: %s", name, got.status, got.body)
			}
		}
		log := r.auditLog()
		if most := 2 + int(time.Since(begin)/time.Second); len(log) == 0 || len(log) > most {
			t.Fatalf("the audit log has %d entries", len(log))
		}
		// the newest is first, and those after the first second also count the attempts between them
		if e := log[len(log)-1]; e.Action != "admin.refused" || e.Actor != "tenant:filed" || e.Via != "api" ||
			e.IP != "192.0.2.1" ||
			e.RequestID == "" || e.Outcome != "a tenant's key" {
			t.Errorf("the audit entry is %+v", e)
		}
		if got := r.do(http.MethodPost, "/admin/reload", "{}", "Authorization", "Bearer filed"); got.status !=
			http.StatusNotFound {
			t.Errorf("the data plane answers /admin/reload with %d", got.status)
		}
	})
}

// matrix lists the roles that may call each operation. Any status other than 401 and 403 counts as allowed.
const matrix = `
DELETE /admin/admins/{id}                 admin
DELETE /admin/overrides/{worker}          admin
DELETE /admin/session                     admin viewer
DELETE /admin/tenants/{name}              admin
GET    /admin/admins                      admin
GET    /admin/audit                       admin viewer
GET    /admin/backends                    admin viewer
GET    /admin/backends/{name}             admin viewer
GET    /admin/config                      admin viewer
GET    /admin/config/file                 admin viewer
GET    /admin/decisions                   admin viewer
GET    /admin/decisions/stream            admin viewer
GET    /admin/decisions/{id}              admin viewer
GET    /admin/hooks                       admin viewer
GET    /admin/keys/{id}                   admin viewer
GET    /admin/metrics                     admin viewer
GET    /admin/openapi.json                admin viewer
GET    /admin/overrides                   admin viewer
GET    /admin/overview                    admin viewer
GET    /admin/queues                      admin viewer
GET    /admin/queues/{tier}               admin viewer
GET    /admin/rules                       admin viewer
GET    /admin/session                     admin viewer
GET    /admin/status                      admin viewer
GET    /admin/stream                      admin viewer
GET    /admin/tenants                     admin viewer
GET    /admin/tenants/{name}              admin viewer
GET    /admin/tenants/{name}/keys         admin viewer
GET    /admin/tenants/{name}/usage        admin viewer
GET    /admin/tiers                       admin viewer
GET    /admin/tiers/report                admin viewer
GET    /admin/workers                     admin viewer
GET    /admin/workers/{name}              admin viewer
PATCH  /admin/keys/{id}                   admin
PATCH  /admin/tenants/{name}              admin
PATCH  /admin/workers/{name}              admin viewer:dry_run
POST   /admin/admins                      admin
POST   /admin/audit/verify                admin viewer
POST   /admin/bootstrap                   anonymous admin viewer
POST   /admin/config/validate             admin viewer
POST   /admin/keys/{id}/revoke            admin
POST   /admin/keys/{id}/rotate            admin
POST   /admin/reload                      admin viewer:dry_run
POST   /admin/route/explain               admin viewer
POST   /admin/route/replay                admin viewer
POST   /admin/session                     anonymous admin viewer
POST   /admin/tenants                     admin
POST   /admin/tenants/{name}/keys         admin
POST   /admin/tenants/{name}/purge-answers admin
POST   /admin/workers/{name}/drain        admin
POST   /admin/workers/{name}/undrain      admin
`

// AD-04, AD-17: each role may call what the matrix lists and nothing else. A viewer cannot create an
// admin.
func TestRolesMatchTheMatrix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		var got []string
		for name := range r.documentedOperations() {
			method, path, _ := strings.Cut(name, " ")
			line := fmt.Sprintf("%-6s %-34s", method, path)
			may := func(key, query string) bool {
				body := "{}"
				if path == "/admin/reload" {
					body = ""
				}
				if path == "/admin/decisions/stream" {
					query = "?unknown=1" // rejected after the role check; a valid stream would not end
				}
				a := r.send(call{method: method, path: fillPath(path) + query, key: key, body: body})
				return a.status != http.StatusUnauthorized && a.status != http.StatusForbidden
			}
			for _, role := range []struct{ name, key string }{{"anonymous", ""}, {"admin", "ops"}, {"viewer", "eyes"}} {
				if may(role.key, "") {
					line += " " + role.name
				}
			}
			if !strings.HasSuffix(line, "viewer") && may("eyes", "?dry_run=true") {
				line += " viewer:dry_run"
			}
			got = append(got, line)
		}
		slices.Sort(got)
		if diff := cmp.Diff(strings.TrimSpace(matrix), strings.Join(got, "\n")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// AD-04: dry_run on an operation without a preview does not let a viewer in.
func TestDryRunGivesViewersNoWriteAccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		for _, query := range []string{"?dry_run=true", "?dry_run=1", "?dry_run=false&dry_run=true",
			"?dry_run=true&dry_run=false", "?dry_run=yes", "?Dry_run=true", "?dry_run=TRUE"} {
			for name, op := range r.documentedOperations() {
				method, path, _ := strings.Cut(name, " ")
				if roles, _ := op.Extensions["x-roles"].([]string); method == http.MethodGet || len(roles) != 1 {
					continue
				}
				if a := r.send(call{method: method, path: fillPath(path) + query, key: "eyes", body: "{}"}); a.status < 400 &&
					path != "/admin/reload" {
					t.Errorf("a viewer's %s%s is %d", name, query, a.status)
				}
			}
		}
		change := `{"weight":3}`
		for _, query := range []string{"", "?dry_run=true", "?dry_run=false&dry_run=true", "?dry_run=true&dry_run=false",
			"?dry_run=1", "?dry_run=t"} {
			r.callAdmin("eyes", http.MethodPatch, "/admin/workers/w0"+query, change)
			if left := r.control.OverridesNow(); len(left) != 0 {
				t.Fatalf("a viewer's PATCH%s changed %+v", query, left)
			}
		}
		if got := r.callAdmin("ops", http.MethodPatch, "/admin/workers/w0?dryrun=true", change); got.status !=
			http.StatusUnprocessableEntity || len(r.control.OverridesNow()) != 0 {
			t.Errorf("a mistyped dry_run is %d: %s", got.status, got.body)
		}
	})
}

// AD-08: a page of another site cannot change anything through a browser, with or without a key. Tools
// and same-origin pages can.
func TestCrossSiteRequestsChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		make := func(name string) string { return fmt.Sprintf(`{"name":%q}`, name) }
		for i, tt := range []struct {
			headers []string
			status  int
		}{
			{[]string{"Sec-Fetch-Site", "cross-site"}, 403},
			{[]string{"Sec-Fetch-Site", "same-site"}, 403},
			{[]string{"Sec-Fetch-Site", "cross-site", "Content-Type", "text/plain"}, 403},
			{[]string{"Origin", "https://evil.example"}, 403},
			{[]string{"Origin", "null"}, 403},
			{[]string{"Sec-Fetch-Site", "same-origin"}, 201},
			{[]string{"Sec-Fetch-Site", "none"}, 201},
			{[]string{"Origin", "http://localhost"}, 201}, // the Host of the test's requests
			{nil, 201},
			{[]string{"Content-Type", "text/plain"}, 415},
		} {
			got := r.callAdmin("ops", http.MethodPost, "/admin/tenants", make(fmt.Sprintf("t%d", i)), tt.headers...)
			if got.status != tt.status {
				t.Errorf("%v is %d: %s", tt.headers, got.status, got.body)
			}
		}
		for _, op := range r.plane.Operations() { // GET never changes anything
			if op.Method == http.MethodGet && op.OperationID != "stream-decisions" {
				r.callAdmin("ops", op.Method, fillPath(op.Path), "")
			}
		}
		for _, e := range r.auditLog() {
			if e.Action != "tenant.create" &&
				(e.Action != "admin.refused" || !strings.HasPrefix(e.Outcome, "a page of another site")) {
				t.Errorf("the audit log has %+v", e)
			}
		}
	})
}

// AU-02: a malformed key is rejected without a query to the database.
func TestMalformedAdminKeysCauseNoQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		if err := r.control.Stores.SQL.Close(); err != nil { // any query fails now
			t.Fatal(err)
		}
		good := unknownKey(t, tenants.AdminPrefix)
		for _, key := range []string{good[:len(good)-1] + "!", "tw-adm-", "tw-x", "x", strings.Repeat("a", 4000)} {
			if got := r.callAdmin(key, http.MethodGet, "/admin/status", ""); got.status != http.StatusUnauthorized ||
				got.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%q is %d: %s", key, got.status, got.body)
			}
		}
		r.control.Stores.SQL = nil // it is closed
	})
}

// AD-16: no plane serves profiles or debug pages.
func TestNoProfilesOnAnyPlane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		for _, path := range []string{"/debug/pprof/", "/debug/vars", "/docs", "/schemas", "/openapi.json", "/admin/docs",
			"/admin/schemas", "/admin/debug/pprof/"} {
			if got := r.callAdmin("ops", http.MethodGet, path, ""); got.status != http.StatusNotFound {
				t.Errorf("%s on the admin plane is %d", path, got.status)
			}
			if got := r.do(http.MethodGet, path, ""); got.status != http.StatusNotFound &&
				got.status != http.StatusUnauthorized {
				t.Errorf("%s on the data plane is %d", path, got.status)
			}
		}
		if got := r.do(http.MethodGet, "/metrics", "", "Authorization", "Bearer filed"); got.status != http.StatusNotFound {
			t.Errorf("/metrics on the data plane is %d", got.status)
		}
	})
}

// TestAdminAnswersAreNotCached, have no guessed content type, and carry their request ID.
func TestAdminAnswersAreNotCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		for _, key := range []string{"ops", ""} {
			got := r.callAdmin(key, http.MethodGet, "/admin/tenants", "", "X-Request-ID", "mine-1")
			if got.header.Get("Cache-Control") != "no-store" || got.header.Get("X-Content-Type-Options") != "nosniff" ||
				got.header.Get("X-Request-Id") != "mine-1" {
				t.Errorf("the headers are %v", got.header)
			}
		}
	})
}
