package server

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/store"
)

// TestTenantWeightDefaultsToOneAndIsPatched: a patch without a weight keeps it, and null restores 1.
func TestTenantWeightDefaultsToOneAndIsPatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		weight := func(want int, got int, where string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: the weight is %d, want %d", where, got, want)
			}
		}
		made := decode[tenantChanged](t, r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants",
			`{"name":"plain","issue_key":true}`))
		weight(1, made.Tenant.Weight, "made without one")
		made = decode[tenantChanged](t,
			r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", `{"name":"heavy","weight":1000,"issue_key":true}`))
		weight(1000, made.Tenant.Weight, "made with one")
		for _, step := range []struct {
			patch string
			want  int
		}{{`{"weight":3}`, 3}, {`{"degrade":true}`, 3}, {`{"weight":null}`, 1}, {`{"weight":7}`, 7}} {
			weight(step.want,
				decode[tenantChanged](t, r.ops(http.StatusOK, http.MethodPatch, "/admin/tenants/heavy", step.patch)).Tenant.Weight,
				step.patch)
			weight(step.want, decode[tenantShown](t, r.ops(http.StatusOK, http.MethodGet, "/admin/tenants/heavy", "")).Weight,
				"read after "+step.patch)
		}
		for _, v := range decode[pageOf[tenantShown]](t, r.ops(http.StatusOK, http.MethodGet, "/admin/tenants", "")).Items {
			weight(map[string]int{"filed": 1, "plain": 1, "heavy": 7}[v.Name], v.Weight, "the list has "+v.Name)
		}
		caller, err := r.control.Snapshot().Identity.Directory.Authenticate(made.Secret, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		weight(7, caller.Weight, "the weight of its requests")
		if log := r.auditLog(); !slices.ContainsFunc(log, func(e store.AuditEntry) bool {
			return e.Action == "tenant.update" && strings.Contains(e.Before, `"weight":1,`) &&
				strings.Contains(e.After, `"weight":7,`)
		}) {
			t.Errorf("the audit log has no such change: %+v", log)
		}
	})
}
