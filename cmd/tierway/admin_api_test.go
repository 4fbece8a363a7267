package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"tierway/tenants"
)

// gateway is a fake admin plane that reloads. It records its requests.
type gateway struct {
	*httptest.Server
	key string // the admin key that it takes

	mu    sync.Mutex
	asked []string // method and path
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{key: newKey(t, tenants.AdminPrefix)}
	g.Server = serve(t, func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.asked = append(g.asked, r.Method+" "+r.URL.RequestURI())
		g.mu.Unlock()
		switch {
		case r.Header.Get("Authorization") != "Bearer "+g.key:
			refuse(w, 401, "Send an admin key.")
		case r.URL.Path != "/admin/reload":
			refuse(w, 404, "There is no key of that id.")
		default:
			answer(w, 200, map[string]any{"generation": 1})
		}
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

// A rejected request is printed with the text of the gateway.
func TestGatewayErrorsArePrintedWithTheRequest(t *testing.T) {
	g := newGateway(t)
	call := func(path string) string {
		a, err := newAdminAPI(g.URL, os.LookupEnv)
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.call(t.Context(), http.MethodPost, path, nil, new(json.RawMessage))
		return fmt.Sprint(err)
	}
	want := "POST " + g.URL + "/admin/keys/nosuch/revoke: 404 Not Found: There is no key of that id."
	if got := call("/admin/keys/nosuch/revoke"); got != want {
		t.Errorf("it says %s", got)
	}
	other := newKey(t, tenants.AdminPrefix)
	t.Setenv(adminKeyVariable, other)
	if got := call("/admin/reload"); strings.Contains(got, other) ||
		!strings.HasSuffix(got, "401 Unauthorized: Send an admin key. (the key comes from $TIERWAY_ADMIN_KEY)") {
		t.Errorf("with another key: %s", got)
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
		s := tierway(t, "reload", "--api", g.URL)
		if s.status != 2 || !strings.Contains(s.messages, c.want) || c.key != "" && strings.Contains(s.messages, c.key) {
			t.Errorf("%s: status %d, %s", name, s.status, s.messages)
		}
	}
	if asked := g.requests(); asked != "" {
		t.Errorf("the gateway was asked %s", asked)
	}
	t.Setenv(adminKeyVariable, " "+g.key+"\n")
	must(t, "reload", "--api", g.URL+"/")
	for _, address := range []string{"", "127.0.0.1:8081", "ftp://127.0.0.1", "http://",
		"http://me:" + g.key + "@127.0.0.1", "http://127.0.0.1?key=x"} {
		s := tierway(t, "reload", "--api", address)
		if s.status != 2 || !strings.Contains(s.messages, "--api") ||
			!strings.Contains(s.messages, "http://127.0.0.1:8081") || strings.Contains(s.messages, g.key) {
			t.Errorf("%s: status %d, %s", address, s.status, s.messages)
		}
	}
}

// The admin key is sent only to the address of --api.
func TestAdminKeyIsNotSentToARedirect(t *testing.T) {
	g := newGateway(t)
	elsewhere := serve(t, http.RedirectHandler(g.URL+"/admin/reload", http.StatusTemporaryRedirect).ServeHTTP)
	s := tierway(t, "reload", "--api", elsewhere.URL)
	if s.status != 2 || !strings.Contains(s.messages, "307 Temporary Redirect") || g.requests() != "" {
		t.Errorf("status %d, %s", s.status, s.messages)
	}
	page := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") })
	if s := tierway(t, "reload", "--api", page.URL); s.status != 2 ||
		!strings.Contains(s.messages, "check that --api is the URL of the admin plane") {
		t.Errorf("a page: status %d, %s", s.status, s.messages)
	}
}
