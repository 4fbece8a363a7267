package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"tierway/store"
	"tierway/tenants"
)

// chat sends a chat request with a tenant's key and returns the status.
func (r *adminRig) chat(key string) int {
	r.t.Helper()
	return r.post("/v1/chat/completions", chatBody("small", "hi", ""), "Authorization", "Bearer "+key).status
}

// problemOf is an answer of RFC 9457.
type problemOf struct {
	Status int
	Detail string
	Errors []struct{ Message, Location string }
}

// AD-11, AD-13: a tenant is created, changed and deleted. Its key is in one answer only. Every change
// is one entry of the audit log, without secrets.
func TestTenantLifecycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		got := r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants",
			`{"name":"acme","models":["gpt-4o*","sm*"],"tiers":["small"],"limits":{"rpm":600,"month_money":12.345678901},"priority":"background","issue_key":true,"key_name":"ci"}`)
		made := decode[tenantChanged](t, got)
		if got.header.Get("ETag") != `"v1"` || !tenants.WellFormed(made.Secret) || made.Key.Name != "ci" ||
			made.Key.State != "active" || strings.Contains(got.body, "key_list") {
			t.Fatalf("made %s with %v", got.body, got.header)
		}
		if made.Tenant.Limits.MonthMoney != 12_345_678_901 || made.Tenant.Priority != tenants.Background ||
			made.Tenant.Default != tenants.Background {
			t.Errorf("the settings are %+v", made.Tenant)
		}
		want := []string{"limits: day_money and month_money have no effect: no tier or pool has a price"}
		if diff := cmp.Diff(want, made.Warnings); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
		if status := r.chat(made.Secret); status != http.StatusOK {
			t.Errorf("the new key gets %d", status)
		}
		if v := decode[tenantShown](t, r.ops(http.StatusOK, http.MethodGet, "/admin/tenants/acme", "")); v.Now == nil ||
			v.Now.Inflight != 0 || v.Now.Day.Tokens == 0 || v.Now.Day != v.Now.Month {
			t.Errorf("what is used now: %+v", v.Now)
		}
		changed := r.ops(http.StatusOK, http.MethodPatch, "/admin/tenants/acme",
			`{"disabled":true,"limits":{"rpm":null,"tpm":1000},"tiers":null,"models":[]}`, "If-Match", `"v1"`)
		after := decode[tenantChanged](t, changed).Tenant
		if !after.Disabled || after.Limits.RPM != 0 || after.Limits.TPM != 1000 ||
			after.Limits.MonthMoney != 12_345_678_901 ||
			after.Tiers != nil || after.Models == nil || len(after.Models) != 0 {
			t.Errorf("after the change: %s", changed.body)
		}
		if status := r.chat(made.Secret); status != http.StatusForbidden {
			t.Errorf("a disabled tenant gets %d", status)
		}
		r.ops(http.StatusPreconditionFailed, http.MethodPatch, "/admin/tenants/acme", `{"disabled":false}`, "If-Match", `"v1"`)
		r.ops(http.StatusUnprocessableEntity, http.MethodDelete, "/admin/tenants/acme", "")
		r.ops(http.StatusUnprocessableEntity, http.MethodDelete, "/admin/tenants/acme?confirm=Acme", "")
		r.ops(http.StatusPreconditionFailed, http.MethodDelete, "/admin/tenants/acme?confirm=acme", "", "If-Match", `"v1"`)
		r.ops(http.StatusNoContent, http.MethodDelete, "/admin/tenants/acme?confirm=acme", "", "If-Match",
			changed.header.Get("ETag"))
		r.ops(http.StatusNotFound, http.MethodGet, "/admin/tenants/acme", "")
		if status := r.chat(made.Secret); status != http.StatusUnauthorized {
			t.Errorf("the key of a deleted tenant gets %d", status)
		}
		r.checkAuditLog("tenant.create", "key.create", "tenant.update", "tenant.delete")
		r.checkNoSecret(made.Secret)
	})
}

// checkAuditLog fails unless the audit log has exactly these actions of the admin.
func (r *adminRig) checkAuditLog(actions ...string) {
	r.t.Helper()
	seen, want := map[string]int{}, map[string]int{}
	for _, e := range r.auditLog() {
		if strings.HasPrefix(e.Outcome, "refused") {
			continue
		}
		seen[e.Action]++
		if e.Actor != "ops" || e.Role != store.RoleAdmin || e.Via != "api" || e.IP == "" || e.RequestID == "" ||
			e.Outcome != "ok" {
			r.t.Errorf("the audit log has %+v", e)
		}
	}
	for _, a := range actions {
		want[a]++
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		r.t.Errorf("the audit log (-want +got):\n%s", diff)
	}
}

// checkNoSecret fails if a list or the audit log has the key or its digest.
func (r *adminRig) checkNoSecret(secret string) {
	r.t.Helper()
	digest := fmt.Sprintf("%x", tenants.Digest(secret))
	for _, path := range []string{"/admin/audit", "/admin/tenants", "/admin/admins", "/admin/config", "/admin/status"} {
		if got := r.callAdmin("ops", http.MethodGet, path, ""); strings.Contains(got.body, secret) ||
			strings.Contains(got.body, digest) {
			r.t.Errorf("%s holds a secret: %s", path, got.body)
		}
	}
	if log := r.callAdmin("ops", http.MethodGet, "/admin/audit", "", "Accept",
		"application/x-ndjson"); strings.Count(log.body,
		"\n") != len(r.auditLog()) || strings.Contains(log.body, secret) {
		r.t.Errorf("the export is %s", log.body)
	}
}

// TestConcurrentPatchesAreAllApplied: a merge patch keeps the fields that it does not name. With
// If-Match on one version, only one patch is applied.
func TestConcurrentPatchesAreAllApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", `{"name":"acme"}`)
		fields := []string{"rpm", "rps", "burst", "tpm", "token_burst", "concurrent", "day_tokens", "month_tokens"}
		var all sync.WaitGroup
		for _, field := range fields {
			all.Go(func() {
				if got := r.callAdmin("ops", http.MethodPatch, "/admin/tenants/acme", `{"limits":{"`+field+`":7}}`); got.status !=
					http.StatusOK {
					t.Errorf("%s: %d %s", field, got.status, got.body)
				}
			})
		}
		all.Wait()
		got := r.ops(http.StatusOK, http.MethodGet, "/admin/tenants/acme", "")
		if n := strings.Count(got.body, ":7"); n < len(fields) || got.header.Get("ETag") != `"v9"` {
			t.Errorf("%s has %s", got.header.Get("ETag"), got.body)
		}
		var made atomic.Int64
		for range 8 {
			all.Go(func() {
				if r.callAdmin("ops", http.MethodPatch, "/admin/tenants/acme", `{"degrade":true}`, "If-Match",
					`"v9"`).status == http.StatusOK {
					made.Add(1)
				}
			})
		}
		all.Wait()
		if made.Load() != 1 {
			t.Errorf("%d changes of one version were made", made.Load())
		}
		refused := func(e store.AuditEntry) bool {
			return e.Action == "tenant.update" && e.Outcome == "refused: Precondition Failed"
		}
		if log := r.auditLog(); !slices.ContainsFunc(log, refused) {
			t.Errorf("the audit log has no rejected change: %+v", log)
		}
	})
}

// TestItemsOfTheFileAreReadOnly: they are listed. An attempt to change them gets an error that names
// config.yaml.
func TestItemsOfTheFileAreReadOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		if got := decode[pageOf[tenantShown]](t, r.ops(http.StatusOK, http.MethodGet, "/admin/tenants", "")); got.Total !=
			1 || !got.Items[0].FromConfig || got.Items[0].Keys != 1 {
			t.Errorf("the tenants are %+v", got)
		}
		id := digestID("filed")
		r.ops(http.StatusOK, http.MethodGet, "/admin/keys/"+id, "")
		for _, tt := range [][3]string{
			{http.MethodPost, "/admin/tenants", `{"name":"filed"}`},
			{http.MethodPatch, "/admin/tenants/filed", `{"disabled":true}`},
			{http.MethodDelete, "/admin/tenants/filed?confirm=filed", ""},
			{http.MethodPatch, "/admin/keys/" + id, `{}`}, {http.MethodPost, "/admin/keys/" + id + "/rotate", ""},
			{http.MethodPost, "/admin/keys/" + id + "/revoke", ""},
		} {
			got := r.ops(http.StatusConflict, tt[0], tt[1], tt[2])
			if p := decode[problemOf](t, got); tt[1] != "/admin/tenants" && !strings.Contains(p.Detail, "configuration file") {
				t.Errorf("%s %s says %q", tt[0], tt[1], p.Detail)
			}
		}
	})
}

// AU-14, AD-10: an invalid name is rejected with its field. Any other name is returned unchanged.
func TestNamesAreValidatedAndNeverInterpreted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		for _, name := range []string{"", "../../x", "<script>alert(1)</script>", strings.Repeat("a", 64), "Acme", "a b",
			"ünï", "😀", "a\u0000", "a/b", "anonymous", "_gateway", "'; DROP TABLE tenants; --"} {
			body, _ := json.Marshal(map[string]string{"name": name})
			got := r.ops(http.StatusUnprocessableEntity, http.MethodPost, "/admin/tenants", string(body))
			if p := decode[problemOf](t, got); len(p.Errors) == 0 || p.Errors[0].Location != "body.name" {
				t.Errorf("%q: %s", name, got.body)
			}
		}
		r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", `{"name":"`+strings.Repeat("a", 63)+`"}`)
		keys := "/admin/tenants/" + strings.Repeat("a", 63) + "/keys"
		for body, location := range map[string]string{
			`{"tiers":["small",""]}`: "body.tiers[1]", `{"models":["a\u0000"]}`: "body.models[0]",
			`{"models":["a\u001b[2J"]}`: "body.models[0]", `{"tiers":["a\u202eb"]}`: "body.tiers[0]",
			`{"name":"a\nb"}`: "body.name", `{"name":"\u001b]0;x"}`: "body.name", `{"name":"a\u0085"}`: "body.name",
			`{"name":"\u0000"}`: "body.name",
		} {
			got := r.ops(http.StatusUnprocessableEntity, http.MethodPost, keys, body)
			if p := decode[problemOf](t, got); len(p.Errors) != 1 || p.Errors[0].Location != location {
				t.Errorf("%s: want %s in %s", body, location, got.body)
			}
		}
		r.ops(http.StatusUnprocessableEntity, http.MethodPost, "/admin/tenants",
			`{"name":"x","issue_key":true,"key_name":"a\tb"}`)
		r.ops(http.StatusUnprocessableEntity, http.MethodPatch, "/admin/tenants/"+strings.Repeat("a", 63), `{"models":[""]}`)
		odd := `<img src=x onerror=alert(1)>"'&`
		body, _ := json.Marshal(map[string]any{"name": odd, "models": []string{"*"}})
		got := r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants/"+strings.Repeat("a", 63)+"/keys", string(body))
		if k := decode[keyChanged](t, got); k.Key.Name != odd ||
			got.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s in %s", got.body, got.header.Get("Content-Type"))
		}
		for _, path := range []string{"/admin/tenants/%3Cscript%3E", "/admin/tenants/..", "/admin/keys/%00",
			"/admin/workers/..%2f..%2fetc"} {
			if got := r.callAdmin("ops", http.MethodGet, path, ""); got.status != http.StatusNotFound {
				t.Errorf("%s is %d: %s", path, got.status, got.body)
			}
		}
	})
}

// TestInvalidFieldsAreNamed: unknown fields and invalid values are rejected with their path.
func TestInvalidFieldsAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", `{"name":"acme"}`)
		for body, location := range map[string]string{
			`{"name":"x","limts":{}}`: "body.limts", `{"name":"x","limits":{"rpn":1}}`: "body.limits.rpn",
			`{"name":"x","limits":{"rpm":-1}}`:  "body.limits.rpm",
			`{"name":"x","limits":{"rpm":1.5}}`: "body.limits.rpm", `{"name":"x","limits":{"rpm":1e30}}`: "body.limits.rpm",
			`{"name":"x","limits":{"rpm":1000000001}}`:                        "body.limits.rpm",
			`{"name":"x","limits":{"rps":1000000001}}`:                        "body.limits.rps",
			`{"name":"x","limits":{"burst":1000000001}}`:                      "body.limits.burst",
			`{"name":"x","limits":{"concurrent":1000000001}}`:                 "body.limits.concurrent",
			`{"name":"x","priority":"batch","default_priority":"background"}`: "body.default_priority",
			`{"name":"x","limits":{"day_money":-1}}`:                          "body.limits.day_money",
			`{"name":"x","limits":{"day_money":0.0000000001}}`:                "body",
			`{"name":"x","priority":"urgent"}`:                                "body.priority",
			`{"name":"x","tiers":"small"}`:                                    "body.tiers",
			`{"name":"x","weight":0}`:                                         "body.weight",
			`{"name":"x","weight":1001}`:                                      "body.weight",
			`{"name":"x","weight":2.5}`:                                       "body.weight",
			`{"name":"x","weight":"3"}`:                                       "body.weight",
			`{"name":"x","models":[1]}`:                                       "body.models[0]", `{}`: "body",
			`{"name":"x","disabled":"yes"}`: "body.disabled",
			`{"name":"x","issue_key":1}`:    "body.issue_key",
		} {
			got := r.ops(http.StatusUnprocessableEntity, http.MethodPost, "/admin/tenants", body)
			p := decode[problemOf](t, got)
			if len(p.Errors) == 0 || p.Errors[0].Location != location ||
				got.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s: want %s in %s", body, location, got.body)
			}
		}
		r.ops(http.StatusUnprocessableEntity, http.MethodPatch, "/admin/tenants/acme", `{"name":"other"}`)
		r.ops(http.StatusConflict, http.MethodPost, "/admin/tenants", `{"name":"acme"}`)
		r.ops(http.StatusNotFound, http.MethodPatch, "/admin/tenants/unknown", `{}`)
	})
}
