package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tierway/store"
	"tierway/tenants"
)

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

func digestID(key string) string { return "config-" + digestHex(key)[:8] }
