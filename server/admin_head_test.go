package server

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// TestHeadOfTheAdminAPIIsGetWithoutABody, with the same rights. HEAD of a stream ends at once.
func TestHeadOfTheAdminAPIIsGetWithoutABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		front := newServer(t, r.front)
		names := strings.NewReplacer("{name}", "w0", "{id}", "none", "{tier}", "small")
		paths := []string{"/metrics", "/admin/tenants/filed", "/admin/workers?limit=x", "/admin/audit?limit=x",
			"/admin/nowhere"}
		endless := map[string]bool{}
		for _, op := range r.plane.Operations() {
			if op.Method == http.MethodGet {
				path := names.Replace(op.Path)
				paths, endless[path] = append(paths, path), strings.HasSuffix(path, "stream")
			}
		}
		if len(endless) < 20 {
			t.Fatalf("only %d operations", len(endless))
		}
		for _, path := range paths {
			for _, key := range []string{"ops", "eyes", "filed"} {
				ask := func(method string) httpAnswer {
					return requestHost(t, front, method, path, "localhost", "", "Authorization", "Bearer "+key)
				}
				head := ask(http.MethodHead)
				get := httpAnswer{status: http.StatusOK, header: http.Header{"Content-Type": {"text/event-stream"}}}
				if !endless[path] || key == "filed" {
					get = ask(http.MethodGet)
				}
				if head.status != get.status || head.body != "" ||
					head.header.Get("Content-Type") != get.header.Get("Content-Type") {
					t.Errorf("%s as %s: GET %d %v, HEAD %d %v %q", path, key, get.status, get.header, head.status, head.header,
						head.body)
				}
			}
		}
		got := requestHost(t, front, http.MethodPut, "/admin/workers", "localhost", "")
		if got.header.Get("Allow") != "GET, HEAD" {
			t.Errorf("PUT of a GET route: %d %v", got.status, got.header)
		}
		if got := requestHost(t, front, http.MethodHead, "/admin/reload", "localhost", ""); got.status != 405 {
			t.Errorf("HEAD of a POST route: %d", got.status)
		}
		if n := r.plane.Streams(); n != 0 {
			t.Errorf("%d streams are open", n)
		}
	})
}
