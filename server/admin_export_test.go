package server

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/store"
)

// AU-10: usage has the rows of one tenant only, as JSON and as CSV. A name in CSV is not a formula.
func TestUsageIsReportedByDayForOneTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		for _, name := range []string{"acme", "other"} {
			r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", `{"name":"`+name+`"}`)
		}
		day := time.Now().UTC().Truncate(24 * time.Hour)
		row := func(id, tenant, model string) store.Row {
			return store.Row{ID: id, At: day.Add(time.Hour), Tenant: tenant, Key: "k1", Class: "interactive",
				Route: "/chat/completions", Tier: "small", Model: model,
				Outcome: "ok", Status: 200, Prompt: 10, Cached: 4, Output: 6, Money: 5}
		}
		if _, err := r.control.Stores.SQL.WriteRows(t.Context(),
			[]store.Row{row("1", "acme", "m"), row("2", "acme", "=HYPERLINK(1)"), row("3", "other", "m")}); err != nil {
			t.Fatal(err)
		}
		got := decode[usageShown](t, r.ops(http.StatusOK, http.MethodGet, "/admin/tenants/acme/usage", ""))
		if len(got.Items) != 1 || got.Items[0].Requests != 2 || got.Items[0].Prompt != 20 || got.Items[0].Money != 10 ||
			got.Items[0].Day != day.Format(time.DateOnly) {
			t.Errorf("the usage is %+v", got)
		}
		csv := r.ops(http.StatusOK, http.MethodGet, "/admin/tenants/acme/usage?group_by=model", "", "Accept", "text/csv")
		for _, line := range []string{"day,group,requests,", ",m,1,0,0,0,0,10,4,6,0.000000005", ",'=HYPERLINK(1),1,"} {
			if !strings.Contains(csv.body, line) {
				t.Errorf("%q is not in %s", line, csv.body)
			}
		}
		for query, status := range map[string]int{
			"?from=2026-01-01&to=2026-01-02": 200, "?from=2026-01-02&to=2026-01-02": 422, "?from=x": 422, "?to=2026-13-01": 422,
			"?from=2020-01-01": 422, "?group_by=tenant": 422, "?key=k2": 200,
		} {
			r.ops(status, http.MethodGet, "/admin/tenants/acme/usage"+query, "")
		}
		r.ops(http.StatusNotFound, http.MethodGet, "/admin/tenants/unknown/usage", "")
		r.ops(http.StatusNoContent, http.MethodDelete, "/admin/tenants/acme?confirm=acme", "")
		if got := decode[usageShown](t, r.ops(http.StatusOK, http.MethodGet, "/admin/tenants/acme/usage", "")); len(
			got.Items) != 1 {
			t.Errorf("the usage of a deleted tenant is %+v", got)
		}
	})
}
