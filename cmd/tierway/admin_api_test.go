package main

import (
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"tierway/tenants"
)

// gateway is a fake admin plane with the documented responses. It records its requests. It knows the
// tenant acme, with the key id1.
type gateway struct {
	*httptest.Server
	key    string // the admin key that it takes
	secret string // of each key that it makes

	mu    sync.Mutex
	asked []string // method, path and body
	known map[string]bool
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{key: newKey(t, tenants.AdminPrefix), secret: newKey(t, tenants.TenantPrefix),
		known: map[string]bool{"acme": true}}
	mux := http.NewServeMux()
	key := func(id string) map[string]any {
		return map[string]any{"id": id, "tenant": "acme", "hint": "tw-abcd…wxyz", "name": "ci", "priority": "interactive",
			"default_priority": "interactive",
			"limits":           map[string]any{"rpm": 60}, "created_at": "2026-11-01T00:00:00Z", "version": 1}
	}
	mux.HandleFunc("GET /admin/tenants", func(w http.ResponseWriter, r *http.Request) {
		page := map[string]any{"items": []any{map[string]any{"name": "acme"}}, "next_cursor": "acme", "total": 2}
		if r.URL.Query().Get("cursor") == "acme" {
			page = map[string]any{"items": []any{map[string]any{"name": "zoo"}}, "next_cursor": nil, "total": 2}
		}
		answer(w, 200, page)
	})
	mux.HandleFunc("POST /admin/tenants", func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Name string }
		if json.NewDecoder(r.Body).Decode(&body) != nil {
			refuse(w, 400, "no JSON")
			return
		}
		g.mu.Lock()
		g.known[body.Name] = true
		g.mu.Unlock()
		answer(w, 201, map[string]any{"name": body.Name})
	})
	mux.HandleFunc("GET /admin/tenants/{name}/keys", func(w http.ResponseWriter, r *http.Request) {
		items := []any{}
		if r.PathValue("name") == "acme" {
			items = append(items, key("id1"))
		}
		answer(w, 200, map[string]any{"items": items, "next_cursor": nil, "total": len(items)})
	})
	mux.HandleFunc("POST /admin/tenants/{name}/keys", func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		known := g.known[r.PathValue("name")]
		g.mu.Unlock()
		if !known {
			refuse(w, 404, "There is no tenant of that name.")
			return
		}
		made := key("id2")
		made["tenant"] = r.PathValue("name")
		answer(w, 201, map[string]any{"key": made, "secret": g.secret, "warnings": []string{"tiers: \x1bodd"}})
	})
	mux.HandleFunc("POST /admin/keys/{id}/rotate", func(w http.ResponseWriter, r *http.Request) {
		old := key(r.PathValue("id"))
		old["replaced_by"], old["expires_at"] = "id2", "2027-01-01T00:00:00Z"
		answer(w, 201, map[string]any{"key": key("id2"), "secret": g.secret, "replaced": old})
	})
	mux.HandleFunc("POST /admin/keys/{id}/revoke", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") != "id1" {
			refuse(w, 404, "There is no key of that id.")
			return
		}
		revoked := key("id1")
		revoked["revoked_at"] = "2026-11-20T00:00:00Z"
		answer(w, 200, map[string]any{"key": revoked})
	})
	g.Server = serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what was cut is no JSON then
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		g.mu.Lock()
		g.asked = append(g.asked, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
		g.mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer "+g.key {
			refuse(w, 401, "Send an admin key.")
			return
		}
		mux.ServeHTTP(w, r)
	})
	t.Setenv(adminKeyVariable, g.key)
	return g
}

// requests returns the requests since its last call.
func (g *gateway) requests() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	asked := strings.Join(g.asked, "\n")
	g.asked = nil
	return asked
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that left asks for nothing more
}

func refuse(w http.ResponseWriter, status int, detail string) {
	answer(w, status, map[string]any{"title": http.StatusText(status), "status": status, "detail": detail})
}

func newKey(t *testing.T, prefix string) string {
	t.Helper()
	key, err := tenants.NewKey(rand.Reader, prefix)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestKeyCommandsSendAdminRequests(t *testing.T) {
	g := newGateway(t)
	for _, c := range []struct {
		args  []string
		asked string
		out   []string // parts of what is written
	}{
		{[]string{"keys", "create", "--tenant", "acme", "--name", "ci", "--rpm", "60", "--tiers", "small", "--expires",
			"2037-01-31", "--priority", "batch"},
			`POST /admin/tenants/acme/keys {"name":"ci","tiers":["small"],"priority":"batch","default_priority":"batch","limits":{"rpm":60},"expires_at":"2037-01-31T00:00:00Z"}`,
			[]string{g.secret, "id2", "acme", `curl -s "$TIERWAY_URL/v1/models"`}},
		{[]string{"keys", "create", "--tenant", "new", "--quiet"},
			`POST /admin/tenants/new/keys {"priority":"interactive","default_priority":"interactive","limits":{}}
POST /admin/tenants {"name":"new"}
POST /admin/tenants/new/keys {"priority":"interactive","default_priority":"interactive","limits":{}}`, []string{g.secret + "\n"}},
		{[]string{"keys", "list"}, "GET /admin/tenants?limit=200\nGET /admin/tenants?cursor=acme&limit=200\nGET " +
			"/admin/tenants/acme/keys?limit=200\nGET /admin/tenants/zoo/keys?limit=200",
			[]string{"id1", "acme", "ci", "active", "rpm 60", "2026-11-01 00:00Z"}},
		{[]string{"keys", "list", "--tenant", "acme", "--json"}, "GET /admin/tenants/acme/keys?limit=200",
			[]string{`"id": "id1"`, `"state": "active"`}},
		{[]string{"keys", "rotate", "id1", "--overlap", "90m"}, `POST /admin/keys/id1/rotate {"grace_s":5400}`,
			[]string{g.secret, "id2", "id1, which stays valid until 2027-01-01 00:00Z"}},
		{[]string{"keys", "rotate", "id1", "--quiet"}, `POST /admin/keys/id1/rotate {"grace_s":86400}`,
			[]string{g.secret + "\n"}},
		{[]string{"keys", "revoke", "id1", "--yes", "--reason", "left in a log"},
			`POST /admin/keys/id1/revoke {"reason":"left in a log"}`,
			[]string{"key id1 of tenant acme: revoked at 2026-11-20 00:00Z"}},
	} {
		s := must(t, append(c.args, "--api", g.URL)...)
		if asked := g.requests(); asked != c.asked {
			t.Errorf("%v asked\n%s\nwant\n%s", c.args, asked, c.asked)
		}
		for _, part := range c.out {
			if !strings.Contains(s.out, part) {
				t.Errorf("%v: %q is not in\n%s", c.args, part, s.out)
			}
		}
		if c.args[1] == "create" && !strings.Contains(s.messages, "tierway: warning: tiers: ?odd\n") {
			t.Errorf("%v: the warning is not in %s", c.args, s.messages)
		}
		if strings.Contains(s.out+s.messages, g.key) || strings.Count(s.out, g.secret) > 1 ||
			strings.Contains(s.messages, g.secret) {
			t.Errorf("%v shows a key too often:\n%s%s", c.args, s.out, s.messages)
		}
	}
}

// A rejected request is printed with the text of the gateway.
func TestGatewayErrorsArePrintedWithTheRequest(t *testing.T) {
	g := newGateway(t)
	s := tierway(t, "keys", "revoke", "nosuch", "--yes", "--api", g.URL)
	if want := "tierway: POST " + g.URL +
		"/admin/keys/nosuch/revoke: 404 Not Found: There is no key of that id.\n"; s.status != 2 || s.messages != want {
		t.Errorf("status %d, %s", s.status, s.messages)
	}
	other := newKey(t, tenants.AdminPrefix)
	t.Setenv(adminKeyVariable, other)
	s = tierway(t, "keys", "list", "--api", g.URL)
	if s.status != 2 ||
		!strings.Contains(s.messages, "401 Unauthorized: Send an admin key. (the key comes from $TIERWAY_ADMIN_KEY)") ||
		strings.Contains(s.messages, other) {
		t.Errorf("with another key: status %d, %s", s.status, s.messages)
	}
}

// The admin key comes from the environment, and is checked before it is sent.
func TestAdminKeyIsCheckedBeforeItIsSent(t *testing.T) {
	g := newGateway(t)
	for name, c := range map[string]struct{ key, want string }{
		"none":      {"", "TIERWAY_ADMIN_KEY is empty"},
		"mistyped":  {g.key[:len(g.key)-1], "checksum is wrong"},
		"another's": {newKey(t, tenants.TenantPrefix), "begins with tw-adm-"},
	} {
		t.Setenv(adminKeyVariable, c.key)
		s := tierway(t, "keys", "list", "--api", g.URL)
		if s.status != 2 || !strings.Contains(s.messages, c.want) || c.key != "" && strings.Contains(s.messages, c.key) {
			t.Errorf("%s: status %d, %s", name, s.status, s.messages)
		}
	}
	if asked := g.requests(); asked != "" {
		t.Errorf("the gateway was asked %s", asked)
	}
	t.Setenv(adminKeyVariable, " "+g.key+"\n")
	must(t, "keys", "list", "--api", g.URL+"/")
	for _, address := range []string{"", "127.0.0.1:8081", "ftp://127.0.0.1", "http://",
		"http://me:" + g.key + "@127.0.0.1", "http://127.0.0.1?key=x"} {
		s := tierway(t, "keys", "list", "--api", address)
		if s.status != 2 || !strings.Contains(s.messages, "--api") ||
			!strings.Contains(s.messages, "http://127.0.0.1:8081") || strings.Contains(s.messages, g.key) {
			t.Errorf("%s: status %d, %s", address, s.status, s.messages)
		}
	}
}

// The admin key is sent only to the address of --api.
func TestAdminKeyIsNotSentToARedirect(t *testing.T) {
	g := newGateway(t)
	elsewhere := serve(t, http.RedirectHandler(g.URL+"/admin/tenants", http.StatusTemporaryRedirect).ServeHTTP)
	s := tierway(t, "keys", "list", "--api", elsewhere.URL)
	if s.status != 2 || !strings.Contains(s.messages, "307 Temporary Redirect") || g.requests() != "" {
		t.Errorf("status %d, %s", s.status, s.messages)
	}
	page := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") })
	if s := tierway(t, "keys", "list", "--api", page.URL); s.status != 2 ||
		!strings.Contains(s.messages, "check that --api is the URL of the admin plane") {
		t.Errorf("a page: status %d, %s", s.status, s.messages)
	}
}

func TestOverlapIsRoundedUpToSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, time.Nanosecond: 1, time.Second: 1, 1500 * time.Millisecond: 2,
		time.Hour: 3600} {
		if got := seconds(d); got != want {
			t.Errorf("%v is %d, want %d", d, got, want)
		}
	}
}
