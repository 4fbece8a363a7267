package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
)

// AU-05: a client that tries many keys gets 429. A valid key from the same address is not affected.
func TestGuessingAdminKeysIsRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		for range 20 {
			if got := r.callAdmin("wrong", http.MethodGet, "/admin/status", ""); got.status != http.StatusUnauthorized {
				t.Fatalf("%d: %s", got.status, got.body)
			}
		}
		if got := r.callAdmin("wrong", http.MethodGet, "/admin/status", ""); got.status != http.StatusTooManyRequests ||
			got.header.Get("Retry-After") == "" {
			t.Errorf("one more is %d: %s", got.status, got.body)
		}
		if got := r.callAdmin("", http.MethodPost, "/admin/bootstrap", `{"secret":"x","name":"eve"}`); got.status !=
			http.StatusTooManyRequests {
			t.Errorf("a guess at the bootstrap is %d: %s", got.status, got.body)
		}
		r.ops(http.StatusOK, http.MethodGet, "/admin/status", "")
	})
}

// AD-14: no search text, cursor or number reaches beyond the list.
func TestQueriesMatchNothingBeyondTheirList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		for query, status := range map[string]int{
			"q=%25_%25_%25": 200, "q=%27%3BDROP+TABLE+tenants": 200, "cursor=%00": 200, "cursor=zzz": 200,
			"limit=0": 422, "limit=1000": 200, "limit=1001": 422, "limit=1e9": 422, "limit=-1": 422, "sort=%3Bdrop": 422, "page=1000000000": 422,
			"q=" + strings.Repeat("x", 101): 422,
		} {
			if got := r.callAdmin("ops", http.MethodGet, "/admin/tenants?"+query, ""); got.status != status {
				t.Errorf("%s is %d: %s", query, got.status, got.body)
			}
		}
		for query, status := range map[string]int{
			"actor=%25": 200, "action=';--": 200, "since=2020-01-01T00:00:00Z": 200, "since=yesterday": 422, "cursor=-1": 422,
			"cursor=9223372036854775807": 200, "limit=500": 422,
		} {
			if got := r.callAdmin("ops", http.MethodGet, "/admin/audit?"+query, ""); got.status != status {
				t.Errorf("audit: %s is %d: %s", query, got.status, got.body)
			}
		}
	})
}

// TestAdminBodiesAreLimited: a body above 1 MiB is rejected.
func TestAdminBodiesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		r.ops(http.StatusRequestEntityTooLarge, http.MethodPost, "/admin/config/validate",
			`{"text":"`+strings.Repeat("#", 1<<20)+`"}`)
		r.ops(http.StatusBadRequest, http.MethodPost, "/admin/tenants", "{")
		r.ops(http.StatusBadRequest, http.MethodPost, "/admin/tenants", "")
		rec := httptest.NewRecorder()
		r.front.ServeHTTP(rec, httptest.NewRequest(http.MethodPut, "/admin/tenants", nil))
		if rec.Code != http.StatusMethodNotAllowed || rec.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("PUT is %d in %s", rec.Code, rec.Header().Get("Content-Type"))
		}
	})
}
