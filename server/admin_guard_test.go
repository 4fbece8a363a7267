package server

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/store"
	"tierway/tenants"
)

// wellFormed returns a key of a kind that nobody has.
func wellFormed(t *testing.T, prefix string) string {
	t.Helper()
	key, err := tenants.NewKey(rand.Reader, prefix)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// concrete replaces the names of a path by one that nothing has.
func concrete(path string) string {
	return strings.NewReplacer("{name}", "nobody", "{id}", "nobody", "{worker}", "nobody").Replace(path)
}

// AD-01: without any admin key the plane is closed to everybody, whatever they
// send, but for the bootstrap, which takes one secret that nobody was given.
func TestWithoutAdminKeysThePlaneIsClosed(t *testing.T) {
	r := adminRigOf(newRig(t, strings.Replace(plain, "auth:", "store: { sql: \"sqlite://:memory:\" }\nauth:", 1), fakeEngine()))
	for name := range r.documentedOperations() {
		method, path, _ := strings.Cut(name, " ")
		for _, key := range []string{"", "ops", "key", wellFormed(t, tenants.AdminPrefix), wellFormed(t, tenants.BootstrapPrefix)} {
			got := r.send(call{method: method, path: concrete(path), key: key, body: "{}"})
			open := path == "/admin/bootstrap" && got.status == http.StatusUnprocessableEntity
			if got.status != http.StatusUnauthorized && got.status != http.StatusTooManyRequests && !open {
				t.Errorf("%s with the key %q is %d: %s", name, key, got.status, got.body)
			}
		}
	}
	body := fmt.Sprintf(`{"secret":%q,"name":"eve"}`, wellFormed(t, tenants.BootstrapPrefix))
	if got := r.ask("", http.MethodPost, "/admin/bootstrap", body); got.status != http.StatusUnauthorized {
		t.Errorf("a made-up secret gets %d: %s", got.status, got.body)
	}
}

// AD-02, CF-08: a tenant's key is no admin's on any route; what it tried is
// written down, once a second.
func TestATenantsKeyOpensNoAdminRoute(t *testing.T) {
	r := newAdminRig(t)
	for name, op := range r.documentedOperations() {
		method, path, _ := strings.Cut(name, " ")
		if len(op.Security) == 0 {
			continue
		}
		if got := r.send(call{method: method, path: concrete(path), key: "filed", body: "{}"}); got.status != http.StatusForbidden {
			t.Errorf("%s is %d: %s", name, got.status, got.body)
		}
	}
	log := r.audited()
	if len(log) == 0 || len(log) > 5 {
		t.Fatalf("%d refusals are written down", len(log))
	}
	if e := log[0]; e.Action != "admin.refused" || e.Actor != "tenant:filed" || e.Via != "api" || e.IP != "192.0.2.1" || e.RequestID == "" || e.Outcome != "a tenant's key" {
		t.Errorf("a refusal is written down as %+v", e)
	}
	if got := r.do(http.MethodPost, "/admin/reload", "{}", "Authorization", "Bearer filed"); got.status != http.StatusNotFound {
		t.Errorf("the data plane answers /admin/reload with %d", got.status)
	}
}

// matrix is who may do what. An answer other than 401 and 403 is a "yes".
const matrix = `
DELETE /admin/admins/{id}                 admin
DELETE /admin/overrides/{worker}          admin
DELETE /admin/tenants/{name}              admin
GET    /admin/admins                      admin
GET    /admin/audit                       admin viewer
GET    /admin/backends                    admin viewer
GET    /admin/backends/{name}             admin viewer
GET    /admin/config                      admin viewer
GET    /admin/keys/{id}                   admin viewer
GET    /admin/openapi.json                admin viewer
GET    /admin/overrides                   admin viewer
GET    /admin/status                      admin viewer
GET    /admin/tenants                     admin viewer
GET    /admin/tenants/{name}              admin viewer
GET    /admin/tenants/{name}/keys         admin viewer
GET    /admin/tenants/{name}/usage        admin viewer
GET    /admin/tiers                       admin viewer
GET    /admin/workers                     admin viewer
GET    /admin/workers/{name}              admin viewer
PATCH  /admin/keys/{id}                   admin
PATCH  /admin/tenants/{name}              admin
PATCH  /admin/workers/{name}              admin viewer:dry_run
POST   /admin/admins                      admin
POST   /admin/bootstrap                   nobody admin viewer
POST   /admin/config/validate             admin viewer
POST   /admin/keys/{id}/revoke            admin
POST   /admin/keys/{id}/rotate            admin
POST   /admin/reload                      admin viewer:dry_run
POST   /admin/tenants                     admin
POST   /admin/tenants/{name}/keys         admin
POST   /admin/workers/{name}/drain        admin
POST   /admin/workers/{name}/undrain      admin
`

// AD-04, AD-17: who has which role may do what the matrix says and nothing else;
// so a viewer makes no admin, of itself or others.
func TestRolesMayWhatTheMatrixSays(t *testing.T) {
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
			a := r.send(call{method: method, path: concrete(path) + query, key: key, body: body})
			return a.status != http.StatusUnauthorized && a.status != http.StatusForbidden
		}
		for _, who := range []struct{ name, key string }{{"nobody", ""}, {"admin", "ops"}, {"viewer", "eyes"}} {
			if may(who.key, "") {
				line += " " + who.name
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
}

// AD-04: asking for a preview where there is none is no way in.
func TestADryRunIsOnlyAPreview(t *testing.T) {
	r := newAdminRig(t)
	for _, query := range []string{"?dry_run=true", "?dry_run=1", "?dry_run=false&dry_run=true", "?dry_run=true&dry_run=false", "?dry_run=yes", "?Dry_run=true", "?dry_run=TRUE"} {
		for name, op := range r.documentedOperations() {
			method, path, _ := strings.Cut(name, " ")
			if roles, _ := op.Extensions["x-roles"].([]string); method == http.MethodGet || len(roles) != 1 {
				continue
			}
			if a := r.send(call{method: method, path: concrete(path) + query, key: "eyes", body: "{}"}); a.status < 400 && path != "/admin/reload" {
				t.Errorf("a viewer's %s%s is %d", name, query, a.status)
			}
		}
	}
	change := `{"weight":3}`
	for _, query := range []string{"", "?dry_run=true", "?dry_run=false&dry_run=true", "?dry_run=true&dry_run=false", "?dry_run=1", "?dry_run=t"} {
		r.ask("eyes", http.MethodPatch, "/admin/workers/w0"+query, change)
		if left := r.overridesNow(); len(left) != 0 {
			t.Fatalf("a viewer's PATCH%s changed %+v", query, left)
		}
	}
	if got := r.ask("ops", http.MethodPatch, "/admin/workers/w0?dryrun=true", change); got.status != http.StatusUnprocessableEntity || len(r.overridesNow()) != 0 {
		t.Errorf("a mistyped dry_run is %d: %s", got.status, got.body)
	}
}

// AD-08: what a page of another site makes a browser send changes nothing, with
// and without a key; tools and the gateway's own pages pass.
func TestPagesOfOtherSitesChangeNothing(t *testing.T) {
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
		{[]string{"Origin", "http://example.com"}, 201}, // the Host of the test's requests
		{nil, 201},
		{[]string{"Content-Type", "text/plain"}, 415},
	} {
		got := r.ask("ops", http.MethodPost, "/admin/tenants", make(fmt.Sprintf("t%d", i)), tt.headers...)
		if got.status != tt.status {
			t.Errorf("%v is %d: %s", tt.headers, got.status, got.body)
		}
	}
	for _, op := range operations() { // GET never changes anything
		if op.method == http.MethodGet {
			r.ask("ops", op.method, concrete(op.path), "")
		}
	}
	for _, e := range r.audited() {
		if e.Action != "tenant.create" {
			t.Errorf("written down: %+v", e)
		}
	}
}

// AU-02: keys that cannot be any cost no question to the database.
func TestMalformedAdminKeysAskNoDatabase(t *testing.T) {
	r := newAdminRig(t)
	if err := r.sql.Close(); err != nil { // any question would fail now
		t.Fatal(err)
	}
	good := wellFormed(t, tenants.AdminPrefix)
	for _, key := range []string{good[:len(good)-1] + "!", "tw-adm-", "tw-x", "x", strings.Repeat("a", 4000)} {
		if got := r.ask(key, http.MethodGet, "/admin/status", ""); got.status != http.StatusUnauthorized || got.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%q is %d: %s", key, got.status, got.body)
		}
	}
	r.sql = nil // it is closed
}

// AU-05: who tries many keys is slowed down, and nobody else of its address.
func TestGuessingAdminKeysIsSlow(t *testing.T) {
	r := newAdminRig(t)
	for range guessesAMinute {
		if got := r.ask("wrong", http.MethodGet, "/admin/status", ""); got.status != http.StatusUnauthorized {
			t.Fatalf("%d: %s", got.status, got.body)
		}
	}
	if got := r.ask("wrong", http.MethodGet, "/admin/status", ""); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
		t.Errorf("one more is %d: %s", got.status, got.body)
	}
	r.ops(http.StatusOK, http.MethodGet, "/admin/status", "")
}

// AD-16: there is nothing to look into the process with.
func TestNoProfilesOnAnyPlane(t *testing.T) {
	r := newAdminRig(t)
	for _, path := range []string{"/debug/pprof/", "/debug/vars", "/docs", "/schemas", "/openapi.json", "/admin/docs", "/admin/schemas", "/admin/debug/pprof/"} {
		if got := r.ask("ops", http.MethodGet, path, ""); got.status != http.StatusNotFound {
			t.Errorf("%s on the admin plane is %d", path, got.status)
		}
		if got := r.do(http.MethodGet, path, ""); got.status != http.StatusNotFound && got.status != http.StatusUnauthorized {
			t.Errorf("%s on the data plane is %d", path, got.status)
		}
	}
	if got := r.do(http.MethodGet, "/metrics", "", "Authorization", "Bearer filed"); got.status != http.StatusNotFound {
		t.Errorf("/metrics on the data plane is %d", got.status)
	}
}

// TestEveryAdminAnswerIsNobodyElses: not kept by caches, not guessed at, and told
// apart by its id.
func TestEveryAdminAnswerIsNobodyElses(t *testing.T) {
	r := newAdminRig(t)
	for _, key := range []string{"ops", ""} {
		got := r.ask(key, http.MethodGet, "/admin/tenants", "", "X-Request-ID", "mine-1")
		if got.header.Get("Cache-Control") != "no-store" || got.header.Get("X-Content-Type-Options") != "nosniff" || got.header.Get("X-Request-Id") != "mine-1" {
			t.Errorf("the headers are %v", got.header)
		}
	}
}

// TestRefusalsAreBoundedByAddress: one a second of each, and of all a thousand.
func TestRefusalsAreBoundedByAddress(t *testing.T) {
	a := &adminPlane{refused: map[string]int64{}}
	for second := int64(1); second < 4; second++ {
		n := 0
		for i := range 2 * refusedMax {
			if a.firstOfSecond(fmt.Sprintf("address %d", i), second) {
				n++
			}
			if a.firstOfSecond(fmt.Sprintf("address %d", i), second) {
				t.Fatal("twice in one second")
			}
		}
		if n != refusedMax || len(a.refused) > refusedMax {
			t.Errorf("in second %d: %d, and %d are remembered", second, n, len(a.refused))
		}
	}
}

// AD-05, AD-17: the secret of the first start makes one admin, once; a wrong, a
// used and an expired one make none.
func TestTheBootstrapMakesOneAdmin(t *testing.T) {
	r := adminRigOf(newRig(t, strings.Replace(plain, "auth:", "store: { sql: \"sqlite://:memory:\" }\nauth:", 1), fakeEngine()))
	var secret string
	r.announce = func(s string, _ time.Time) { secret = s }
	if err := r.readDatabase(context.Background()); err != nil || secret == "" {
		t.Fatalf("no secret was announced (%v)", err)
	}
	body := func(secret, name string) string { return fmt.Sprintf(`{"secret":%q,"name":%q}`, secret, name) }
	for _, tt := range []struct {
		body   string
		status int
	}{
		{body(wellFormed(t, tenants.BootstrapPrefix), "eve"), 401}, {body("", "eve"), 401}, {body(secret, "<b>"), 422}, {body(secret, ""), 422},
		{body(secret, "ada"), 201}, {body(secret, "eve"), 401},
	} {
		got := r.ask("", http.MethodPost, "/admin/bootstrap", tt.body)
		if got.status != tt.status {
			t.Fatalf("%s is %d: %s", tt.body, got.status, got.body)
		}
		if got.status != http.StatusCreated {
			continue
		}
		made := decoded[AdminAnswer](t, got)
		if !tenants.WellFormed(made.Secret) || made.Admin.Name != "ada" || made.Admin.Role != store.RoleAdmin {
			t.Errorf("made %+v", made)
		}
		if got := r.ask(made.Secret, http.MethodGet, "/admin/admins", ""); got.status != http.StatusOK || strings.Contains(got.body, made.Secret) {
			t.Errorf("the first admin sees %d: %s", got.status, got.body)
		}
	}
	if log := r.audited(); len(log) != 1 || log[0].Via != "bootstrap" {
		t.Errorf("written down: %+v", log)
	}
	r.boot.Store(&bootstrap{digest: tenants.Digest(secret), until: time.Now().Add(-time.Second)})
	if got := r.ask("", http.MethodPost, "/admin/bootstrap", body(secret, "eve")); got.status != http.StatusUnauthorized {
		t.Errorf("an expired secret is %d", got.status)
	}
	r.boot.Store(&bootstrap{digest: tenants.Digest(secret), until: time.Now().Add(time.Minute)})
	if got := r.ask("", http.MethodPost, "/admin/bootstrap", body(secret, "eve")); got.status != http.StatusConflict {
		t.Errorf("where there is an admin, a good secret is %d: %s", got.status, got.body)
	}
}

// AD-17: the last admin stays, those of config.yaml too; keys that are over open
// nothing.
func TestTheLastAdminStays(t *testing.T) {
	r := newAdminRig(t)
	made := decoded[AdminAnswer](t, r.ops(http.StatusCreated, http.MethodPost, "/admin/admins", `{"name":"ada","role":"admin"}`))
	r.ops(http.StatusConflict, http.MethodPost, "/admin/admins", `{"name":"ada","role":"viewer"}`)
	r.ops(http.StatusConflict, http.MethodPost, "/admin/admins", `{"name":"ops","role":"viewer"}`)
	r.ops(http.StatusUnprocessableEntity, http.MethodPost, "/admin/admins", `{"name":"bob","role":"root"}`)
	r.ops(http.StatusUnprocessableEntity, http.MethodPost, "/admin/admins", `{"name":"bob","role":"viewer","expires_at":"2020-01-01T00:00:00Z"}`)
	if got := r.ask(made.Secret, http.MethodDelete, "/admin/admins/"+made.Admin.ID, ""); got.status != http.StatusConflict {
		t.Errorf("deleting the last admin is %d: %s", got.status, got.body)
	}
	r.ops(http.StatusConflict, http.MethodDelete, "/admin/admins/"+digestID("ops"), "")
	second := decoded[AdminAnswer](t, r.ops(http.StatusCreated, http.MethodPost, "/admin/admins", `{"name":"bob","role":"admin"}`))
	r.ops(http.StatusNoContent, http.MethodDelete, "/admin/admins/"+made.Admin.ID, "")
	if got := r.ask(made.Secret, http.MethodGet, "/admin/status", ""); got.status != http.StatusUnauthorized {
		t.Errorf("a deleted admin gets %d", got.status)
	}
	if got := r.ask(second.Secret, http.MethodGet, "/admin/status", ""); got.status != http.StatusOK {
		t.Errorf("the other gets %d", got.status)
	}
	if _, ok := r.adminOf(second.Secret, time.Now()); !ok {
		t.Error("the key is not found")
	}
}

// digestID is the id that a key of config.yaml has.
func digestID(key string) string { return "config-" + digestHex(key)[:8] }

// AD-14: no search, cursor or number gets further than the list.
func TestOddQueriesFindNothing(t *testing.T) {
	r := newAdminRig(t)
	for query, status := range map[string]int{
		"q=%25_%25_%25": 200, "q=%27%3BDROP+TABLE+tenants": 200, "cursor=%00": 200, "cursor=zzz": 200,
		"limit=0": 422, "limit=201": 422, "limit=1e9": 422, "limit=-1": 422, "sort=%3Bdrop": 422, "page=1000000000": 422, "q=" + strings.Repeat("x", 101): 422,
	} {
		if got := r.ask("ops", http.MethodGet, "/admin/tenants?"+query, ""); got.status != status {
			t.Errorf("%s is %d: %s", query, got.status, got.body)
		}
	}
	for query, status := range map[string]int{
		"actor=%25": 200, "action=';--": 200, "since=2020-01-01T00:00:00Z": 200, "since=yesterday": 422, "cursor=-1": 422, "cursor=9223372036854775807": 200, "limit=500": 422,
	} {
		if got := r.ask("ops", http.MethodGet, "/admin/audit?"+query, ""); got.status != status {
			t.Errorf("audit: %s is %d: %s", query, got.status, got.body)
		}
	}
}

// TestBodiesAreBounded: more than a mebibyte is not read.
func TestBodiesAreBounded(t *testing.T) {
	r := newAdminRig(t)
	r.ops(http.StatusRequestEntityTooLarge, http.MethodPost, "/admin/config/validate", `{"text":"`+strings.Repeat("#", 1<<20)+`"}`)
	r.ops(http.StatusBadRequest, http.MethodPost, "/admin/tenants", "{")
	r.ops(http.StatusBadRequest, http.MethodPost, "/admin/tenants", "")
	rec := httptest.NewRecorder()
	r.plane.engine.ServeHTTP(rec, httptest.NewRequest(http.MethodPut, "/admin/tenants", nil))
	if rec.Code != http.StatusMethodNotAllowed || rec.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("PUT is %d in %s", rec.Code, rec.Header().Get("Content-Type"))
	}
}
