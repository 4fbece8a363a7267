package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/store"
	"tierway/tenants"
)

// AD-05, AD-17: the secret of the first start creates one admin, once. A wrong or used secret creates
// none.
func TestBootstrapSecretCreatesOneAdmin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, secret := bootstrapRig(t)
		body := func(secret, name string) string { return fmt.Sprintf(`{"secret":%q,"name":%q}`, secret, name) }
		for _, tt := range []struct {
			body   string
			status int
		}{
			{body(unknownKey(t, tenants.BootstrapPrefix), "eve"), 401}, {body("", "eve"), 401}, {body(secret, "<b>"), 422},
			{body(secret, ""), 422},
			{body(secret, "ada"), 201}, {body(secret, "eve"), 401},
		} {
			got := r.callAdmin("", http.MethodPost, "/admin/bootstrap", tt.body)
			if got.status != tt.status {
				t.Fatalf("%s is %d: %s", tt.body, got.status, got.body)
			}
			if got.status != http.StatusCreated {
				continue
			}
			made := decode[adminMade](t, got)
			if !tenants.WellFormed(made.Secret) || made.Admin.Name != "ada" || made.Admin.Role != store.RoleAdmin {
				t.Errorf("made %+v", made)
			}
			if got := r.callAdmin(made.Secret, http.MethodGet, "/admin/admins", ""); got.status != http.StatusOK ||
				strings.Contains(got.body, made.Secret) {
				t.Errorf("the first admin sees %d: %s", got.status, got.body)
			}
		}
		if n := len(r.Announcements()); n != 1 || (<-r.Announcements()).Secret != "" {
			t.Errorf("after the use of the secret, there are %d announcements", n)
		}
		log := slices.DeleteFunc(r.auditLog(), func(e store.AuditEntry) bool { return e.Action == "admin.refused" })
		if len(log) != 1 || log[0].Via != "bootstrap" {
			t.Errorf("the audit log is %+v", log)
		}
	})
}

// TestBootstrapFailsIfAnAdminExists: another gateway has created the admin, and this gateway has not
// read it yet.
func TestBootstrapFailsIfAnAdminExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, secret := bootstrapRig(t)
		if _, err := r.control.Stores.SQL.CreateAdmin(t.Context(), store.Actor{},
			store.Admin{ID: "a1", Name: "ada", Role: store.RoleAdmin, Digest: tenants.Digest("ada")}); err != nil {
			t.Fatal(err)
		}
		if got := r.callAdmin("", http.MethodPost, "/admin/bootstrap",
			fmt.Sprintf(`{"secret":%q,"name":"eve"}`, secret)); got.status != http.StatusConflict {
			t.Errorf("with an existing admin, a valid secret gets %d: %s", got.status, got.body)
		}
	})
}

// bootstrapRig is an adminRig without an admin, and its announced secret.
func bootstrapRig(t *testing.T) (r *adminRig, secret string) {
	t.Helper()
	r = adminRigOf(newRigWith(t, strings.Replace(plain, "auth:", "store: { sql: \"sqlite://:memory:\" }\nauth:", 1),
		func(o *Options) { o.OfferBootstrap = true }, fakeEngine(), fakeEngine()))
	select {
	case a := <-r.Announcements():
		return r, a.Secret
	default:
		t.Fatal("no secret was announced")
		return nil, ""
	}
}

// AD-17: an admin of config.yaml counts as another admin, a viewer does not.
func TestTheLastAdminCannotBeDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const config = "{ name: ops, sha256: %s }, "
		for _, others := range []string{"", fmt.Sprintf(config, digestHex("ops"))} {
			r := adminRigOf(newRig(t, strings.Replace(adminYAML(memoryDB), fmt.Sprintf(config, digestHex("ops")), others, 1),
				fakeEngine()))
			secret := unknownKey(t, tenants.AdminPrefix)
			ad := store.Admin{ID: "a1", Name: "ada", Role: store.RoleAdmin, Digest: tenants.Digest(secret)}
			if _, err := r.control.Stores.SQL.CreateAdmin(t.Context(), store.Actor{Name: "test"}, ad); err != nil {
				t.Fatal(err)
			}
			if err := r.control.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			status := map[bool]int{true: http.StatusConflict, false: http.StatusNoContent}[others == ""]
			if got := r.callAdmin(secret, http.MethodDelete, "/admin/admins/"+ad.ID, ""); got.status != status {
				t.Errorf("with %q in config.yaml it is %d: %s", others, got.status, got.body)
			}
		}
	})
}

// TestAdminsAreCreatedAndDeleted: admins of config.yaml cannot be changed by the API, and a deleted
// admin's key is rejected.
func TestAdminsAreCreatedAndDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		made := decode[adminMade](t,
			r.ops(http.StatusCreated, http.MethodPost, "/admin/admins", `{"name":"ada","role":"admin"}`))
		r.ops(http.StatusConflict, http.MethodPost, "/admin/admins", `{"name":"ada","role":"viewer"}`)
		r.ops(http.StatusConflict, http.MethodPost, "/admin/admins", `{"name":"ops","role":"viewer"}`)
		r.ops(http.StatusUnprocessableEntity, http.MethodPost, "/admin/admins", `{"name":"bob","role":"root"}`)
		r.ops(http.StatusUnprocessableEntity, http.MethodPost, "/admin/admins",
			`{"name":"bob","role":"viewer","expires_at":"1999-01-01T00:00:00Z"}`)
		r.ops(http.StatusConflict, http.MethodDelete, "/admin/admins/"+digestID("ops"), "")
		second := decode[adminMade](t,
			r.ops(http.StatusCreated, http.MethodPost, "/admin/admins", `{"name":"bob","role":"admin"}`))
		r.ops(http.StatusNoContent, http.MethodDelete, "/admin/admins/"+made.Admin.ID, "")
		if got := r.callAdmin(made.Secret, http.MethodGet, "/admin/status", ""); got.status != http.StatusUnauthorized {
			t.Errorf("a deleted admin gets %d", got.status)
		}
		if got := r.callAdmin(second.Secret, http.MethodGet, "/admin/status", ""); got.status != http.StatusOK {
			t.Errorf("the other gets %d", got.status)
		}
		if _, ok := r.control.Snapshot().Identity.AdminOf(second.Secret, time.Now()); !ok {
			t.Error("the key is not found")
		}
	})
}

// digestID is the ID of a key of config.yaml.
func digestID(key string) string { return "config-" + digestHex(key)[:8] }
