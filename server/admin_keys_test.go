package server

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/tenants"
)

// AU-08, AD-11, AU-10: a key is created, changed, rotated with an overlap and revoked. Its secret is
// never shown again.
func TestKeyLifecycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", `{"name":"acme"}`)
		got := r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants/acme/keys",
			`{"name":"ci","limits":{"rps":100},"expires_at":"2099-01-01T00:00:00Z"}`)
		first := decode[keyChanged](t, got)
		if got.header.Get("Cache-Control") != "no-store" || first.Key.CreatedBy != "ops" || first.Key.Tenant != "acme" {
			t.Errorf("made %s with %v", got.body, got.header)
		}
		path := "/admin/keys/" + first.Key.ID
		renamed := r.ops(http.StatusOK, http.MethodPatch, path, `{"name":"build","expires_at":null}`, "If-Match",
			got.header.Get("ETag"))
		if k := decode[keyChanged](t, renamed).Key; k.Name != "build" || k.ExpiresAt != nil || k.Limits.RPS != 100 ||
			k.Version != 2 {
			t.Errorf("renamed %s", renamed.body)
		}
		r.ops(http.StatusPreconditionFailed, http.MethodPatch, path, `{"name":"x"}`, "If-Match", `"v1"`)
		r.ops(http.StatusPreconditionFailed, http.MethodPatch, path, `{"name":"x"}`, "If-Match", `"1"`)
		r.ops(http.StatusUnprocessableEntity, http.MethodPatch, path, `{"expires_at":"1999-01-01T00:00:00Z"}`)
		r.ops(http.StatusUnprocessableEntity, http.MethodPost, path+"/rotate", `{"grace_s":604801}`)
		second := decode[keyChanged](t, r.ops(http.StatusCreated, http.MethodPost, path+"/rotate", `{"grace_s":3600}`))
		if second.Replaced.State != "grace" || second.Replaced.ReplacedBy != second.Key.ID || second.Key.Name != "build" ||
			second.Key.Limits.RPS != 100 {
			t.Errorf("rotated to %+v", second)
		}
		if old, new := r.chat(first.Secret), r.chat(second.Secret); old != http.StatusOK || new != http.StatusOK {
			t.Errorf("during the overlap the old key gets %d, the new one %d", old, new)
		}
		waitUntil(t, "the use of a new key", func() bool {
			return strings.Contains(r.callAdmin("eyes", http.MethodGet, "/admin/keys/"+second.Key.ID, "").body, `"last_used_at"`)
		})
		r.ops(http.StatusConflict, http.MethodPost, path+"/rotate", "")
		r.ops(http.StatusOK, http.MethodPost, path+"/revoke", `{"reason":"leaked"}`)
		if old, new := r.chat(first.Secret), r.chat(second.Secret); old != http.StatusUnauthorized || new != http.StatusOK {
			t.Errorf("after revoking it the old key gets %d, the new one %d", old, new)
		}
		r.ops(http.StatusConflict, http.MethodPatch, path, `{"name":"x"}`)
		r.ops(http.StatusConflict, http.MethodPost, path+"/rotate", "")
		third := decode[keyChanged](t, r.ops(http.StatusCreated, http.MethodPost, "/admin/keys/"+second.Key.ID+"/rotate", ""))
		if status := r.chat(second.Secret); status != http.StatusUnauthorized || third.Replaced.State != "expired" {
			t.Errorf("rotated without an overlap, the old key is %s and gets %d", third.Replaced.State, status)
		}
		list := r.callAdmin("eyes", http.MethodGet, "/admin/tenants/acme/keys", "")
		if keys := decode[pageOf[keyShown]](t, list); keys.Total != 3 || strings.Contains(list.body, "secret") {
			t.Errorf("the list is %s", list.body)
		}
		if one := r.callAdmin("eyes", http.MethodGet, "/admin/keys/"+third.Key.ID, ""); one.status != http.StatusOK ||
			strings.Contains(one.body, "secret") {
			t.Errorf("the key is shown as %s", one.body)
		}
		r.ops(http.StatusNotFound, http.MethodGet, "/admin/tenants/filed2/keys", "")
		r.checkAuditLog("tenant.create", "key.create", "key.update", "key.rotate", "key.rotate", "key.revoke")
		r.checkNoSecret(third.Secret)
	})
}

// TestTenantOfTheFileCanHaveDatabaseKeys: such a key works, and the answer warns that the file's
// settings apply.
func TestTenantOfTheFileCanHaveDatabaseKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		for _, name := range []string{"first", "second"} {
			made := decode[keyChanged](t, r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants/filed/keys",
				`{"name":"`+name+`"}`))
			if len(made.Warnings) != 1 || !strings.Contains(made.Warnings[0], "config.yaml") || made.Key.FromConfig ||
				made.Key.Tenant != "filed" {
				t.Errorf("%s is %+v", name, made)
			}
			if status := r.chat(made.Secret); status != http.StatusOK {
				t.Errorf("%s gets %d", name, status)
			}
			r.ops(http.StatusOK, http.MethodPost, "/admin/keys/"+made.Key.ID+"/revoke", "")
			if status := r.chat(made.Secret); status != http.StatusUnauthorized {
				t.Errorf("%s gets %d after it was revoked", name, status)
			}
		}
		if v := decode[tenantShown](t, r.ops(http.StatusOK, http.MethodGet, "/admin/tenants/filed", "")); !v.FromConfig {
			t.Errorf("the tenant is %+v", v)
		}
		r.checkAuditLog("tenant.create", "key.create", "key.create", "key.revoke", "key.revoke")
	})
}

// TestKeyRotationAndRevocationHonourIfMatch, also if another gateway has changed the key and this one
// has not read it yet.
func TestKeyRotationAndRevocationHonourIfMatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoGateways(t)
		a.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", `{"name":"acme"}`)
		made := decode[keyChanged](t, a.ops(http.StatusCreated, http.MethodPost, "/admin/tenants/acme/keys", `{}`))
		path := "/admin/keys/" + made.Key.ID
		if err := b.control.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		seen := b.ops(http.StatusOK, http.MethodGet, path, "").header.Get("ETag")
		now := a.ops(http.StatusOK, http.MethodPatch, path, `{"name":"ci"}`).header.Get("ETag")
		for _, verb := range []string{"/rotate", "/revoke"} {
			for _, tag := range []string{seen, `"v0"`, `"v99"`, `W/` + now, "x"} {
				if got := b.ops(http.StatusPreconditionFailed, http.MethodPost, path+verb, "", "If-Match",
					tag); strings.Contains(got.body, "tw-") {
					t.Errorf("%s at %s: %s", verb, tag, got.body)
				}
			}
		}
		second := decode[keyChanged](t, b.ops(http.StatusCreated, http.MethodPost, path+"/rotate", `{"grace_s":60}`,
			"If-Match", now))
		if second.Replaced.Name != "ci" || second.Replaced.State != "grace" {
			t.Errorf("rotated %+v", second)
		}
		got := b.ops(http.StatusOK, http.MethodPost, path+"/revoke", "", "If-Match", etagOf(second.Replaced.Version))
		if k := decode[keyChanged](t, got).Key; k.State != "revoked" || got.header.Get("ETag") != etagOf(k.Version) {
			t.Errorf("revoked %s", got.body)
		}
	})
}

// TestDefaultPriorityNeverExceedsThePriority: a lower priority lowers only the effective default. A
// request for a default above the priority is rejected.
func TestDefaultPriorityNeverExceedsThePriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", `{"name":"acme"}`)
		r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", `{"name":"keyed"}`)
		key := decode[keyChanged](t, r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants/keyed/keys", `{}`)).Key
		for _, path := range []string{"/admin/tenants/acme", "/admin/keys/" + key.ID} {
			for _, tt := range []struct {
				patch          string
				status         int
				priority, deft tenants.Class
			}{
				{`{"priority":"batch"}`, 200, tenants.Batch, tenants.Batch},
				{`{"priority":"interactive"}`, 200, tenants.Interactive, tenants.Interactive},
				{`{"default_priority":"background"}`, 200, tenants.Interactive, tenants.Background},
				{`{"priority":"batch"}`, 200, tenants.Batch, tenants.Batch},
				{`{"default_priority":"interactive"}`, 422, tenants.Batch, tenants.Batch},
				{`{"priority":"background","default_priority":"interactive"}`, 422, tenants.Batch, tenants.Batch},
				{`{"priority":null}`, 200, tenants.Interactive, tenants.Background},
				{`{"priority":"batch","default_priority":"batch"}`, 200, tenants.Batch, tenants.Batch},
				{`{"priority":null,"default_priority":null}`, 200, tenants.Interactive, tenants.Interactive},
			} {
				got := r.ops(tt.status, http.MethodPatch, path, tt.patch)
				if tt.status == 422 && !strings.Contains(got.body, "body.default_priority") {
					t.Errorf("%s %s: %s", path, tt.patch, got.body)
				}
				if v := decode[rightsShown](t, r.ops(http.StatusOK, http.MethodGet, path, "")); v.Priority != tt.priority ||
					v.Default != tt.deft {
					t.Errorf("%s after %s: %s, by default %s", path, tt.patch, v.Priority, v.Default)
				}
			}
		}
	})
}
