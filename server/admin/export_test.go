package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"

	"tierway/store"
)

// TestAuditExportOutlastsTheTimeLimitOfARequest: here the first page has used up the time limit.
func TestAuditExportOutlastsTheTimeLimitOfARequest(t *testing.T) {
	r := newPlaneRig(t)
	for range 450 {
		if err := r.plane.control.Stores.SQL.AppendAudit(t.Context(), store.Actor{Name: "ops"}, "test", "target", "", "",
			"ok"); err != nil {
			t.Fatal(err)
		}
	}
	q := store.AuditQuery{Limit: 50}
	first, err := r.plane.control.Stores.SQL.Audit(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	spent, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	w := httptest.NewRecorder()
	c, _ := gin.CreateTestContext(w)
	c.Request = httptest.NewRequest(http.MethodGet, "/admin/audit", nil)
	r.plane.history.exportAudit(spent, humagin.NewContext(&huma.Operation{}, c), q, first)
	if n := strings.Count(w.Body.String(), "\n"); n != 450 {
		t.Errorf("%d of 450 entries were exported", n)
	}
}

// TestFullDatabaseIsAnswered503: the client may repeat the change when there is room.
func TestFullDatabaseIsAnswered503(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "full.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // the pragma applies to one connection
	var full error
	for _, do := range []string{"PRAGMA max_page_count = 1", "CREATE TABLE a (b)", "CREATE TABLE c (d)",
		"CREATE TABLE e (f)"} {
		_, full = db.ExecContext(t.Context(), do)
	}
	if full == nil || !strings.Contains(full.Error(), "full") {
		t.Fatalf("the database is not full: %v", full)
	}
	r := newPlaneRig(t)
	answer := r.plane.failed("creating a tenant", fmt.Errorf("creating a tenant: %w", full))
	var status huma.StatusError
	var headers huma.HeadersError
	if !errors.As(answer, &status) || status.GetStatus() != http.StatusServiceUnavailable ||
		!errors.As(answer, &headers) || headers.GetHeaders().Get("Retry-After") == "" {
		t.Errorf("%v", answer)
	}
}
