package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"
	"pgregory.net/rapid"

	"tierway/store"
)

func TestPagesCoverTheWholeListOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfDistinct(rapid.StringMatching(`[a-z]{1,4}`), func(s string) string { return s }).Draw(t, "all")
		q := PageQuery{Limit: rapid.IntRange(1, 7).Draw(t, "limit")}
		self := func(s *string) string { return *s }
		seen := map[string]int{}
		for range len(all) + 1 {
			p := paged(append([]string(nil), all...), q, self, self)
			if p.Total != len(all) || len(p.Items) > q.Limit {
				t.Fatalf("%+v", p)
			}
			for _, item := range p.Items {
				seen[item]++
			}
			if p.Next == nil {
				break
			}
			q.Cursor = *p.Next
		}
		for _, item := range all {
			if seen[item] != 1 {
				t.Fatalf("%q was seen %d times", item, seen[item])
			}
		}
	})
}

func TestUsageIsToldByDayAndNobodyElses(t *testing.T) {
	r := newAdminRig(t)
	for _, name := range []string{"acme", "other"} {
		r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants", `{"name":"`+name+`"}`)
	}
	day := time.Now().UTC().Truncate(24 * time.Hour)
	row := func(id, tenant, model string) store.Row {
		return store.Row{ID: id, At: day.Add(time.Hour), Tenant: tenant, Key: "k1", Class: "interactive", Route: "/chat/completions", Tier: "small", Model: model,
			Outcome: "ok", Status: 200, Prompt: 10, Cached: 4, Output: 6, Money: 5}
	}
	if _, err := r.sql.WriteRows(t.Context(), []store.Row{row("1", "acme", "m"), row("2", "acme", "=HYPERLINK(1)"), row("3", "other", "m")}); err != nil {
		t.Fatal(err)
	}
	got := decoded[UsageView](t, r.ops(http.StatusOK, http.MethodGet, "/admin/tenants/acme/usage", ""))
	if len(got.Items) != 1 || got.Items[0].Requests != 2 || got.Items[0].Prompt != 20 || got.Items[0].Money != 10 || got.Items[0].Day != day.Format(time.DateOnly) {
		t.Errorf("the usage is %+v", got)
	}
	csv := r.ops(http.StatusOK, http.MethodGet, "/admin/tenants/acme/usage?group_by=model", "", "Accept", csvType)
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
	r.ops(http.StatusNotFound, http.MethodGet, "/admin/tenants/nobody/usage", "")
	r.ops(http.StatusNoContent, http.MethodDelete, "/admin/tenants/acme?confirm=acme", "")
	if got := decoded[UsageView](t, r.ops(http.StatusOK, http.MethodGet, "/admin/tenants/acme/usage", "")); len(got.Items) != 1 {
		t.Errorf("of a deleted tenant the usage is %+v", got)
	}
}

// TestAuditExportOutlastsTheTimeOfOneRequest exports a log whose first page took all
// the time that a request of the admin API may take.
func TestAuditExportOutlastsTheTimeOfOneRequest(t *testing.T) {
	r := newAdminRig(t)
	for range 450 {
		if err := r.sql.AppendAudit(t.Context(), store.Actor{Name: "ops"}, "test", "target", "", "", "ok"); err != nil {
			t.Fatal(err)
		}
	}
	q := store.AuditQuery{Limit: 50}
	first, err := r.sql.Audit(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	spent, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	w := httptest.NewRecorder()
	c, _ := gin.CreateTestContext(w)
	c.Request = httptest.NewRequest(http.MethodGet, "/admin/audit", nil)
	r.plane.exportAudit(spent, humagin.NewContext(&huma.Operation{}, c), q, first)
	if n := strings.Count(w.Body.String(), "\n"); n != 450 {
		t.Errorf("%d of 450 entries were exported", n)
	}
}
