package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"tierway/decisions"
)

// TestConcurrentExportsAreLimited, because each may keep as much memory as the log. A complete export
// frees its place.
func TestConcurrentExportsAreLimited(t *testing.T) {
	r := newPlaneRig(t)
	r.decisions.Add(&decisions.Decision{RequestID: "one"})
	export := func() *httptest.ResponseRecorder {
		return r.ask("ops", http.MethodGet, "/admin/decisions", "", "Accept", "application/x-ndjson")
	}
	r.plane.records.exports.Store(2)
	if got := export(); got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") == "" ||
		!strings.Contains(got.Body.String(), "2 exports") {
		t.Errorf("beyond the limit: %d %s", got.Code, got.Body.String())
	}
	if got := r.ask("ops", http.MethodGet, "/admin/decisions", ""); got.Code != http.StatusOK { // a page is not an export
		t.Errorf("a page: %d", got.Code)
	}
	r.plane.records.exports.Store(2 - 1)
	for range 2 {
		if got := export(); got.Code != http.StatusOK || strings.Count(got.Body.String(), "\n") != 1 {
			t.Errorf("below the limit: %d %s", got.Code, got.Body.String())
		}
	}
	if n := r.plane.records.exports.Load(); n != 2-1 {
		t.Errorf("%d exports are left", n)
	}
}

// TestStreamHasNoTimeLimit: all other requests end after adminPatience.
func TestStreamHasNoTimeLimit(t *testing.T) {
	r := newPlaneRig(t)
	for _, op := range r.plane.guard.routes {
		if want := op.id == "stream-decisions" || op.id == "stream-events"; op.endless != want {
			t.Errorf("%s is endless: %v", op.id, op.endless)
		}
	}
	var bounded, endless bool
	for _, path := range []string{"/admin/decisions", "/admin/decisions/stream", "/admin/stream"} {
		e := gin.New()
		e.Use(r.plane.guard.check)
		e.GET(path, func(c *gin.Context) {
			_, has := c.Request.Context().Deadline()
			bounded, endless = bounded || has, endless || !has
		})
		req := httptest.NewRequest(http.MethodGet, path, nil)
		req.Header.Set("Authorization", "Bearer ops")
		e.ServeHTTP(httptest.NewRecorder(), req)
	}
	if !bounded || !endless {
		t.Errorf("bounded %v, endless %v", bounded, endless)
	}
}
