package admin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"tierway/config"
	"tierway/web"
)

// login opens a session and returns its cookie.
func (r *planeRig) login(key string) *http.Cookie {
	r.t.Helper()
	got := r.ask("", http.MethodPost, "/admin/session", `{"key":"`+key+`"}`)
	if got.Code != http.StatusCreated {
		r.t.Fatalf("the login is %d: %s", got.Code, got.Body)
	}
	all := got.Result().Cookies()
	if len(all) != 1 {
		r.t.Fatalf("the login set %d cookies", len(all))
	}
	return all[0]
}

// askIn sends a request in a session.
func (r *planeRig) askIn(c *http.Cookie, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	return r.ask("", method, path, body, append(headers, "Cookie", c.Name+"="+c.Value)...)
}

// AD-07: scripts cannot read the cookie, other sites cannot send it, and it is not the key.
func TestALoginSetsACookieThatScriptsCannotRead(t *testing.T) {
	r := newPlaneRig(t)
	c := r.login("ops")
	if c.Name != "tierway_session_8081" || !c.HttpOnly || c.Secure || c.SameSite != http.SameSiteStrictMode ||
		c.Path != "/" || c.Domain != "" || c.MaxAge != 0 || strings.Contains(c.Value, "ops") {
		t.Errorf("the cookie is %+v", c)
	}
	var view SessionView
	got := r.askIn(c, http.MethodGet, "/admin/session", "")
	if err := json.Unmarshal(got.Body.Bytes(), &view); err != nil || view.Name != "ops" || view.Role != "admin" ||
		view.ExpiresAt == nil {
		t.Errorf("%v: the session is %+v", err, view)
	}
	if other := r.login("ops"); other.Value == c.Value {
		t.Error("a second login has the same id")
	}
	if log := r.log.String(); strings.Contains(log, c.Value) {
		t.Errorf("the log has the id of the session: %s", log)
	}
}

// TestTLSAddsSecureAndTheHostPrefix to the cookie.
func TestTLSAddsSecureAndTheHostPrefix(t *testing.T) {
	r := newPlaneRig(t)
	r.plane.control.Snapshot().File.Admin.TLS = config.TLS{Cert: "c", Key: "k"}
	c := r.login("ops")
	if c.Name != "__Host-tierway_session_8081" || !c.Secure || c.Domain != "" || c.Path != "/" {
		t.Errorf("the cookie is %+v", c)
	}
	if got := r.askIn(c, http.MethodGet, "/admin/tenants", ""); got.Code != http.StatusOK {
		t.Errorf("a request with it is %d", got.Code)
	}
}

// TestProxyThatTerminatesTLSAddsSecure to the cookie. The name of the cookie stays the same.
func TestProxyThatTerminatesTLSAddsSecure(t *testing.T) {
	r := newPlaneRig(t)
	for proto, secure := range map[string]bool{"": false, "http": false, "https": true} {
		got := r.ask("", http.MethodPost, "/admin/session", `{"key":"ops"}`, "X-Forwarded-Proto", proto)
		if all := got.Result().Cookies(); len(all) != 1 || all[0].Secure != secure || all[0].Name != "tierway_session_8081" {
			t.Errorf("by %q: %v", proto, all)
		}
	}
}

// TestASessionHasTheRoleOfItsKey, and a key that is sent besides wins.
func TestASessionHasTheRoleOfItsKey(t *testing.T) {
	r := newPlaneRig(t)
	viewer := r.login("eyes")
	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/admin/tenants", "", 200},
		{"POST", "/admin/tenants", `{"name":"x"}`, 403},
		{"PATCH", "/admin/workers/w0", `{"weight":3}`, 403},
		{"PATCH", "/admin/workers/w0?dry_run=true", `{"weight":3}`, 200},
		{"GET", "/admin/admins", "", 403},
	} {
		if got := r.askIn(viewer, tt.method, tt.path, tt.body); got.Code != tt.status {
			t.Errorf("%s %s in a viewer's session is %d: %s", tt.method, tt.path, got.Code, got.Body)
		}
	}
	if got := r.askIn(viewer, "GET", "/admin/tenants", "", "Authorization", "Bearer wrong"); got.Code != 401 {
		t.Errorf("a session with a wrong key is %d", got.Code)
	}
	if got := r.askIn(viewer, "POST", "/admin/tenants", `{"name":"y"}`, "Authorization", "Bearer ops"); got.Code != 201 {
		t.Errorf("an admin's key in a viewer's session is %d", got.Code)
	}
}

// TestAProxysPasswordDoesNotHideASession.
func TestAProxysPasswordDoesNotHideASession(t *testing.T) {
	r := newPlaneRig(t)
	c := r.login("ops")
	if got := r.askIn(c, "GET", "/admin/tenants", "", "Authorization", "Basic dXNlcjpwYXNz"); got.Code != 200 {
		t.Errorf("a request with both is %d", got.Code)
	}
}

// AD-08: a page of another site cannot use the session.
func TestAPageOfAnotherSiteCannotUseASession(t *testing.T) {
	r := newPlaneRig(t)
	c := r.login("ops")
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
		{"Origin", "https://evil.example"}} {
		if got := r.askIn(c, "POST", "/admin/tenants", `{"name":"x"}`, headers...); got.Code != 403 {
			t.Errorf("%v: the change is %d", headers, got.Code)
		}
		if got := r.ask("", "POST", "/admin/session", `{"key":"ops"}`, headers...); got.Code != 403 {
			t.Errorf("%v: the login is %d", headers, got.Code)
		}
	}
	if got := r.askIn(c, "POST", "/admin/tenants", `{"name":"x"}`, "Sec-Fetch-Site", "same-origin"); got.Code != 201 {
		t.Errorf("a change of the page itself is %d: %s", got.Code, got.Body)
	}
}

// TestALogoutEndsTheSessionOnTheServer.
func TestALogoutEndsTheSessionOnTheServer(t *testing.T) {
	r := newPlaneRig(t)
	c := r.login("ops")
	got := r.askIn(c, "DELETE", "/admin/session", "")
	if cookies := got.Result().Cookies(); got.Code != 204 || len(cookies) != 1 || cookies[0].MaxAge >= 0 {
		t.Errorf("the logout is %d with %v", got.Code, cookies)
	}
	if got := r.askIn(c, "GET", "/admin/tenants", ""); got.Code != 401 {
		t.Errorf("the session is still open: %d", got.Code)
	}
	var actions []string
	for _, e := range r.audited() {
		actions = append(actions, e.Action+" "+e.Actor+" "+e.Via)
	}
	if strings.Join(actions, ", ") != "session.delete ops ui, session.create ops ui" {
		t.Errorf("the audit log has %v", actions)
	}
}

// TestChangesInASessionAreAuditedAsThePage.
func TestChangesInASessionAreAuditedAsThePage(t *testing.T) {
	r := newPlaneRig(t)
	if got := r.askIn(r.login("ops"), "POST", "/admin/tenants", `{"name":"team"}`); got.Code != 201 {
		t.Fatal(got.Body)
	}
	if e := r.audited()[0]; e.Action != "tenant.create" || e.Actor != "ops" || e.Via != "ui" {
		t.Errorf("the change is logged as %+v", e)
	}
}

// TestTheSessionsOfADeletedAdminEnd, also for a stream that is open.
func TestTheSessionsOfADeletedAdminEnd(t *testing.T) {
	r := newPlaneRig(t)
	made := r.ask("ops", "POST", "/admin/admins", `{"name":"ada","role":"admin"}`)
	var answer adminAnswer
	if err := json.Unmarshal(made.Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	c := r.login(answer.Secret)
	id := c.Value
	found, open := r.plane.guard.sessions.findSession(id, false, time.Now())
	o := operator{Admin: answer.Admin.Admin, session: &found, sessionID: id}
	o.Digest = found.admin
	if !open || !r.plane.guard.mayContinue(o, time.Now()) {
		t.Fatal("the session is not open")
	}
	if got := r.ask("ops", "DELETE", "/admin/admins/"+answer.Admin.ID, ""); got.Code != 204 {
		t.Fatal(got.Body)
	}
	if got := r.askIn(c, "GET", "/admin/tenants", ""); got.Code != 401 {
		t.Errorf("the session of the deleted admin is %d", got.Code)
	}
	if r.plane.guard.mayContinue(o, time.Now()) {
		t.Error("its stream may go on")
	}
	ended := r.login("ops")
	o = operator{session: &found, sessionID: ended.Value}
	r.askIn(ended, "DELETE", "/admin/session", "")
	if r.plane.guard.mayContinue(o, time.Now()) {
		t.Error("a stream may go on after the logout")
	}
}

// TestWrongLoginsAreThrottled, counted with wrong keys, and leave no key in the log.
func TestWrongLoginsAreThrottled(t *testing.T) {
	r := newPlaneRig(t)
	for _, tt := range []struct {
		body, detail string
		status       int
	}{
		{`{"key":"guess-1"}`, "unknown, expired or deleted", 401},
		{`{"key":"filed"}`, "tenant's key", 401},
		{`{"code":"guess-2"}`, "used already", 401},
		{`{}`, "either key or code", 422},
		{`{"key":"ops","code":"x"}`, "either key or code", 422},
	} {
		got := r.ask("", "POST", "/admin/session", tt.body)
		if got.Code != tt.status || !strings.Contains(got.Body.String(), tt.detail) || len(got.Result().Cookies()) > 0 {
			t.Errorf("%s is %d: %s", tt.body, got.Code, got.Body)
		}
	}
	last := 0
	for i := range 30 {
		got := r.ask("", "POST", "/admin/session", `{"key":"guess-`+strconv.Itoa(i)+`"}`)
		if last = got.Code; last == 429 && got.Header().Get("Retry-After") == "" {
			t.Error("429 without Retry-After")
		}
	}
	if last != 429 {
		t.Errorf("the 30th wrong login is %d", last)
	}
	if strings.Contains(r.log.String(), "guess") {
		t.Errorf("the log has a key: %s", r.log.String())
	}
	for _, e := range r.audited() {
		if strings.Contains(e.Target+e.Outcome+e.Actor, "guess") {
			t.Errorf("the audit log has a key: %+v", e)
		}
	}
}

// TestALoginCodeOpensOneSession.
func TestALoginCodeOpensOneSession(t *testing.T) {
	r := newPlaneRig(t)
	code, err := r.plane.LoginCode("ops")
	if err != nil {
		t.Fatal(err)
	}
	body := `{"code":"` + code + `"}`
	if got := r.ask("", "POST", "/admin/session", body); got.Code != 201 {
		t.Errorf("the code is %d: %s", got.Code, got.Body)
	}
	if got := r.ask("", "POST", "/admin/session", body); got.Code != 401 {
		t.Errorf("the code again is %d", got.Code)
	}
}

// TestThePageIsServedWithItsHeaders, without a key.
func TestThePageIsServedWithItsHeaders(t *testing.T) {
	r := newPlaneRig(t)
	get := func(method, path string, headers ...string) *httptest.ResponseRecorder {
		return r.ask("", method, path, "", headers...)
	}
	page := get("GET", "/")
	body := page.Body.String()
	if page.Code != 200 || page.Header().Get("Content-Type") != "text/html; charset=utf-8" ||
		page.Header().Get("Cache-Control") != "no-cache" || !strings.Contains(body, "Tierway") ||
		page.Header().Get("Content-Security-Policy") != contentSecurityPolicy {
		t.Errorf("the page is %d %v", page.Code, page.Header())
	}
	if strings.Contains(body, "<style") || strings.Contains(body, "onload=") || strings.Contains(body, "http://") ||
		strings.Contains(body, "https://") {
		t.Errorf("the page has inline code or another host:\n%s", body)
	}
	if again := get("GET", "/", "If-None-Match", page.Header().Get("ETag")); again.Code != 304 {
		t.Errorf("the same page again is %d", again.Code)
	}
	script := strings.TrimPrefix(body[strings.Index(body, "./assets/"):], ".")
	script = script[:strings.IndexByte(script, '"')]
	plain, packed, head := get("GET", script), get("GET", script, "Accept-Encoding", "br, gzip"), get("HEAD", script)
	if plain.Code != 200 || !strings.Contains(plain.Header().Get("Cache-Control"), "immutable") ||
		packed.Header().Get("Content-Encoding") != "gzip" || packed.Body.Len()*2 > plain.Body.Len() ||
		plain.Header().Get("Vary") != "Accept-Encoding" || head.Code != 200 || head.Body.Len() != 0 {
		t.Errorf("%s is %d, %d bytes plain, %d packed, %d by HEAD", script, plain.Code, plain.Body.Len(), packed.Body.Len(),
			head.Body.Len())
	}
	for path, status := range map[string]int{"/favicon.svg": 200, "/theme.js": 200, "/assets/gone.js": 404,
		"/assets/../index.html": 404, "/index.html": 404, "/tenants": 404, "/THIRD_PARTY_LICENSES.txt": 200} {
		got := get("GET", path)
		if got.Code != status || status == 404 && strings.Contains(got.Header().Get("Content-Type"), "html") {
			t.Errorf("%s is %d %s", path, got.Code, got.Header().Get("Content-Type"))
		}
	}
	licenses := get("GET", "/THIRD_PARTY_LICENSES.txt")
	if !strings.HasPrefix(licenses.Header().Get("Content-Type"), "text/plain") ||
		!strings.Contains(licenses.Body.String(), "react-dom") {
		t.Errorf("the licences are %s: %.200s", licenses.Header().Get("Content-Type"), licenses.Body)
	}
	if got := r.ask("", "POST", "/", ""); got.Code != 405 {
		t.Errorf("POST / is %d", got.Code)
	}
}

// TestThePageIsSmall: the budget of all scripts together is 200 kB in gzip.
func TestThePageIsSmall(t *testing.T) {
	total := 0
	for name, a := range readAssets(web.Dist()) {
		if strings.HasSuffix(name, ".js") {
			total += len(a.compressed())
		}
	}
	if total == 0 || total > 200_000 {
		t.Errorf("the scripts of the page have %d bytes in gzip", total)
	}
	t.Logf("%d bytes of JavaScript in gzip", total)
}
