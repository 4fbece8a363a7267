package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"tierway/decisions"
)

// TestThereAreOnlySoManyExports: each may hold as much as the log, and one that is read
// whole gives its place back.
func TestThereAreOnlySoManyExports(t *testing.T) {
	r := newPlaneRig(t)
	r.decisions.Add(&decisions.Decision{RequestID: "one"})
	export := func() *httptest.ResponseRecorder {
		return r.ask("ops", http.MethodGet, "/admin/decisions", "", "Accept", "application/x-ndjson")
	}
	r.plane.records.exports.Store(2)
	if got := export(); got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") == "" ||
		!strings.Contains(got.Body.String(), "2 exports") {
		t.Errorf("one more: %d %s", got.Code, got.Body.String())
	}
	if got := r.ask("ops", http.MethodGet, "/admin/decisions", ""); got.Code != http.StatusOK { // a page is none
		t.Errorf("a page: %d", got.Code)
	}
	r.plane.records.exports.Store(2 - 1)
	for range 2 {
		if got := export(); got.Code != http.StatusOK || strings.Count(got.Body.String(), "\n") != 1 {
			t.Errorf("where there is room: %d %s", got.Code, got.Body.String())
		}
	}
	if n := r.plane.records.exports.Load(); n != 2-1 {
		t.Errorf("%d exports are left", n)
	}
}

// TestAStreamOutlivesWhatBoundsOtherRequests: an answer of the admin API ends after
// adminPatience, a stream does not.
func TestAStreamOutlivesWhatBoundsOtherRequests(t *testing.T) {
	r := newPlaneRig(t)
	for _, op := range r.plane.guard.routes {
		if want := op.id == "stream-decisions"; op.endless != want {
			t.Errorf("%s is endless: %v", op.id, op.endless)
		}
	}
	var bounded, endless bool
	for _, path := range []string{"/admin/decisions", "/admin/decisions/stream"} {
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
