package admin

import (
	crand "crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"tierway/tenants"
)

// AU-05, AD-08: a rejected request leaves an entry with its path. Of several in one second, the next
// entry has the number.
func TestRejectedRequestLeavesAnAuditEntry(t *testing.T) {
	wellFormed, err := tenants.NewKey(crand.Reader, tenants.AdminPrefix)
	if err != nil {
		t.Fatal(err)
	}
	r := newPlaneRig(t)
	for i, tt := range []struct {
		method, path, key, body, site string
		status                        int
		target, why, actor            string
	}{
		{"GET", "/admin/tenants/acme", "wrong", "", "", 401, "GET /admin/tenants/acme", "an unknown key", "unknown"},
		{"GET", "/admin/keys/k1", wellFormed, "", "", 401, "GET /admin/keys/k1", "an unknown key", "unknown"},
		{"GET", "/admin/keys/k1", "filed", "", "", 401, "GET /admin/keys/k1", "a tenant's key", "tenant:filed"},
		{"PATCH", "/admin/tenants/acme", "eyes", "{}", "", 403, "PATCH /admin/tenants/acme", "the role is viewer", "eyes"},
		{"POST", "/admin/bootstrap", "", `{"secret":"guess","name":"eve"}`, "", 401, "POST /admin/bootstrap",
			"an incorrect secret", "bootstrap"},
		{"POST", "/admin/tenants", "ops", "{}", "cross-site", 403, "POST /admin/tenants", "a page of another site",
			"unknown"},
	} {
		r.plane.guard.refused = map[string]refusals{"192.0.2.1": {second: 1, more: i}} // the second before
		if got := r.ask(tt.key, tt.method, tt.path, tt.body, "Sec-Fetch-Site", tt.site); got.Code != tt.status {
			t.Fatalf("%s is %d: %s", tt.target, got.Code, got.Body)
		}
		want := tt.why
		if i > 0 {
			want += fmt.Sprintf("; %d more from this address since its last line", i)
		}
		all := r.audited()
		if e := all[0]; len(all) != i+1 || e.Action != "admin.refused" || e.Target != tt.target || e.Outcome != want ||
			e.Actor != tt.actor || e.IP != "192.0.2.1" || e.RequestID == "" {
			t.Errorf("%s is logged as %+v", tt.target, e)
		}
		log := r.log.String()
		if lines := strings.Count(log, "\n"); lines != i+1 || !strings.Contains(log, tt.why) ||
			strings.Contains(log, "guess") || tenants.WellFormed(tt.key) && strings.Contains(log, tt.key) {
			t.Errorf("the log is %s", log)
		}
	}
	r.ask("", http.MethodGet, "/admin/tenants", "") // a request without a key is not logged
	r.plane.guard.refused = map[string]refusals{}
	for range 5 {
		r.ask("wrong", http.MethodGet, "/admin/"+strings.Repeat("x", 400), "")
		r.ask("wrong", http.MethodGet, "/admin/tenants/"+strings.Repeat("x", 400), "")
	}
	if all := r.audited(); len(all) < 7 || len(all) > 9 || len(all[0].Target) != 300 { // a second may have passed
		t.Errorf("of five in one second are logged: %+v", all)
	}
}

// TestRejectedChangeLeavesAnAuditEntry: drains and reloads too. Errors of the request itself and
// previews leave none.
func TestRejectedChangeLeavesAnAuditEntry(t *testing.T) {
	stale := []string{"If-Match", `"v9"`}
	r := newPlaneRig(t)
	for _, tt := range []struct {
		method, path, body string
		headers            []string
		status             int
		action             string // of the new entry; empty: there is none
	}{
		{"POST", "/admin/workers/w0/drain", "{}", stale, 412, "worker.drain"},
		{"POST", "/admin/workers/w0/undrain", "", stale, 412, "worker.undrain"},
		{"PATCH", "/admin/workers/w0", `{"weight":2}`, stale, 412, "worker.weigh"},
		{"POST", "/admin/reload", "", nil, 409, "config.reload"}, // there is no file
		{"PATCH", "/admin/tenants/filed", "{}", nil, 409, "tenant.update"},
		{"POST", "/admin/reload?dry_run=true", "", nil, 409, ""},
		{"PATCH", "/admin/workers/w0?dry_run=true", `{"weight":2}`, stale, 412, ""},
		{"POST", "/admin/workers/none/drain", "{}", nil, 404, ""},
		{"POST", "/admin/workers/w0/drain", `{"timeout_s":0}`, nil, 422, ""},
		{"PATCH", "/admin/tenants/none", "{}", nil, 404, ""},
	} {
		r.plane.guard.refused = map[string]refusals{} // one entry per second and address
		before := len(r.audited())
		if got := r.ask("ops", tt.method, tt.path, tt.body, tt.headers...); got.Code != tt.status {
			t.Fatalf("%s %s is %d, want %d: %s", tt.method, tt.path, got.Code, tt.status, got.Body)
		}
		fresh := r.audited()
		fresh = fresh[:len(fresh)-before]
		switch {
		case tt.action == "" && len(fresh) > 0:
			t.Errorf("%s %s leaves %+v", tt.method, tt.path, fresh)
		case tt.action != "" && (len(fresh) != 1 || fresh[0].Action != tt.action || fresh[0].Actor != "ops" ||
			fresh[0].Outcome != "refused: "+http.StatusText(tt.status)):
			t.Errorf("%s %s leaves %+v, want one entry %s", tt.method, tt.path, fresh, tt.action)
		}
	}
}

func TestPanicOfAHandlerIsAnswered500WithoutItsValue(t *testing.T) {
	r := newPlaneRig(t)
	r.plane.engine.GET("/broken", func(*gin.Context) { panic("a key") })
	w := r.ask("", http.MethodGet, "/broken", "")
	if w.Code != 500 || w.Header().Get("Content-Type") != "application/problem+json" ||
		strings.Contains(w.Body.String(), "a key") || strings.Count(r.log.String(), "recovered from a panic") != 1 {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// TestOnlyAdminsFlushTheRecords: requests without a key, and those for files of the UI, must not make the gateway work.
func TestOnlyAdminsFlushTheRecords(t *testing.T) {
	r := newPlaneRig(t)
	flushed := 0
	r.plane.guard.flushRecords = func() { flushed++ }
	for _, c := range []struct {
		key, method, path string
		want              int
	}{
		{"", http.MethodGet, "/admin/overview", 0},
		{"filed", http.MethodGet, "/admin/decisions", 0},
		{"", http.MethodGet, "/", 0},
		{"ops", http.MethodGet, "/admin/nothing", 0},
		{"", http.MethodPost, "/admin/login", 0},
		{"eyes", http.MethodPost, "/admin/reload", 0},
		{"eyes", http.MethodGet, "/admin/decisions", 1},
		{"ops", http.MethodGet, "/admin/overview", 1},
	} {
		flushed = 0
		if r.ask(c.key, c.method, c.path, ""); flushed != c.want {
			t.Errorf("%s %s with the key %q flushes the records %d times", c.method, c.path, c.key, flushed)
		}
	}
}
