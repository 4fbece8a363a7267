package server

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// TestObjectMadeOnAnotherGatewayIsFound by every route that names it, although this gateway has not read
// the database since.
func TestObjectMadeOnAnotherGatewayIsFound(t *testing.T) {
	const tenant, key = "/admin/tenants/acme", "/admin/keys/KEY"
	for _, c := range []struct {
		status             int
		method, path, body string
	}{
		{http.StatusOK, http.MethodGet, tenant, ""},
		{http.StatusOK, http.MethodPatch, tenant, `{"weight":2}`},
		{http.StatusNoContent, http.MethodDelete, tenant + "?confirm=acme", ""},
		{http.StatusOK, http.MethodGet, tenant + "/keys", ""},
		{http.StatusCreated, http.MethodPost, tenant + "/keys", `{}`},
		{http.StatusOK, http.MethodGet, tenant + "/usage", ""},
		{http.StatusConflict, http.MethodPost, "/admin/tenants", `{"name":"acme"}`},
		{http.StatusOK, http.MethodGet, key, ""},
		{http.StatusOK, http.MethodPatch, key, `{"name":"ci"}`},
		{http.StatusCreated, http.MethodPost, key + "/rotate", ""},
		{http.StatusOK, http.MethodPost, key + "/revoke", ""},
		{http.StatusNoContent, http.MethodDelete, "/admin/admins/ADMIN", ""},
		{http.StatusConflict, http.MethodPost, "/admin/admins", `{"name":"me","role":"viewer"}`},
		{http.StatusOK, http.MethodPost, "/admin/route/explain", `{"tenant":"acme","request":{"model":"fake-7b","messages":[{"role":"user","content":"hi"}]}}`},
		{http.StatusOK, http.MethodPost, "/admin/route/explain", `{"key_id":"KEY","request":{"model":"fake-7b","messages":[{"role":"user","content":"hi"}]}}`},
	} {
		t.Run(c.method+" "+c.path+c.body, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := twoGateways(t)
				made := decode[struct{ Key keyShown }](t,
					a.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", `{"name":"acme","issue_key":true}`))
				admin := decode[struct {
					Admin struct{ ID string }
				}](t, a.ops(http.StatusCreated, http.MethodPost, "/admin/admins", `{"name":"me","role":"viewer"}`)).Admin
				names := strings.NewReplacer("KEY", made.Key.ID, "ADMIN", admin.ID)
				b.ops(c.status, c.method, names.Replace(c.path), names.Replace(c.body))
			})
		})
	}
}

// TestObjectDeletedOnAnotherGatewayCanBeMadeAgain: what this gateway remembers is no reason for a conflict.
func TestObjectDeletedOnAnotherGatewayCanBeMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoGateways(t)
		const tenant, admin = `{"name":"acme"}`, `{"name":"me","role":"viewer"}`
		b.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", tenant)
		made := decode[struct{ Admin struct{ ID string } }](t,
			b.ops(http.StatusCreated, http.MethodPost, "/admin/admins", admin)).Admin
		a.ops(http.StatusNoContent, http.MethodDelete, "/admin/tenants/acme?confirm=acme", "")
		a.ops(http.StatusNoContent, http.MethodDelete, "/admin/admins/"+made.ID, "")
		b.ops(http.StatusNotFound, http.MethodPost, "/admin/tenants/acme/keys", `{}`)
		b.ops(http.StatusNotFound, http.MethodDelete, "/admin/admins/"+made.ID, "")
		b.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", tenant)
		b.ops(http.StatusCreated, http.MethodPost, "/admin/admins", admin)
	})
}

// TestPreviewOfAWeightKnowsTheOverrideOfAnotherGateway: its ETag is valid here too.
func TestPreviewOfAWeightKnowsTheOverrideOfAnotherGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoGateways(t)
		tag := a.ops(http.StatusOK, http.MethodPatch, "/admin/workers/w0", `{"weight":5}`).header.Get("ETag")
		b.ops(http.StatusOK, http.MethodPatch, "/admin/workers/w0?dry_run=true", `{"weight":7}`, "If-Match", tag)
		b.ops(http.StatusNoContent, http.MethodDelete, "/admin/overrides/w0", "")
	})
}
